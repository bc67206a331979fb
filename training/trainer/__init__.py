"""The trainer: the same numbers on one device, several replicas and several workers."""
