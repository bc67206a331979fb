"""Decisions of a classifier: when it answers, with a bound on its errors, and when it does not."""
