"""Repositories of the Hugging Face Hub and models of Kaggle: their names, downloads and uploads.

Neither Keras nor TensorFlow is imported.
"""
