"""Defaults and bounds of exports, `keras-vit convert` and `keras-vit verify`.

Imports neither NumPy nor TensorFlow. The options of an export are the fields of its format; see
`export_format.py`.
"""

from __future__ import annotations

# Classes that a SavedModel names.
TOP = 5

VERIFY_SECONDS = 600.0  # In which an export answers its golden samples.

# Formats that `convert` writes, with the end of the file's name; "" is a folder.
CONVERSION_FORMATS = {
    "classifier": "",
    "official": ".npz",  # As the paper's code.
    "weights": ".weights.h5",  # As Keras.
    "huggingface": "",
    "timm": ".safetensors",  # Or a folder.
}
