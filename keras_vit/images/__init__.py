"""Encoded images to arrays: formats, decoding, resizing.

A file is loaded at first use: decoding needs TensorFlow, also where Keras runs on another backend.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["decoding"])
