"""Training jobs: from settings and data to a classifier folder."""
