"""Export formats, a file for each, and exports as classifiers in their own runtimes."""
