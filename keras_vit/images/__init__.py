"""Encoded images to arrays: formats, decoding, resizing."""
