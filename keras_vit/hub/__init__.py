"""Repositories of the Hugging Face Hub: their names, downloads and uploads.

Neither Keras nor TensorFlow is imported.
"""
