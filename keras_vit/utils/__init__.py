"""Files, texts, settings and tables: shared by all parts, without knowledge of models."""
