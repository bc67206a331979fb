"""Encoded images to arrays: formats, decoding, resizing.

A file is loaded at first use: decoding needs TensorFlow, also where Keras runs on another backend.
"""

import lazy_loader

# Limit of TensorFlow's decoders, 2^29 bytes of RGB. Pillow has the same limit. Here, as the command
# line shows it and imports neither NumPy nor Pillow.
MAX_PIXELS = 2**29 // 3

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["decoding"])
