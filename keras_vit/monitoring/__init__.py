"""Watching the photos that a classifier answers: signals, martingales, and their state on disk."""
