"""Repositories of the Hugging Face Hub: their names and downloads.

Neither Keras nor TensorFlow is imported.
"""
