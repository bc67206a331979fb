"""Reports: text and tables (`report.py`), and HTML pages of them with pictures (`pages.py`)."""
