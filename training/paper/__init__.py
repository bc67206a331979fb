"""Reproduction of the paper's tables and figures, which fine-tuning does not need."""
