"""Defaults and bounds of `keras-vit convert`, `keras-vit verify` and `keras-vit serve`.

Imports neither NumPy nor TensorFlow. The options of an export are the fields of its format; see
`export_format.py`.
"""

from __future__ import annotations

import dataclasses

from keras_vit.utils.fields import AT_LEAST_1, NOT_NEGATIVE, check_fields, documented, setting

# Classes that a SavedModel names.
TOP = 5

VERIFY_SECONDS = 600.0  # In which an export answers its golden samples.

PORT = 8501  # TensorFlow Serving's for REST.

# Formats that `convert` writes, with the end of the file's name; "" is a folder.
CONVERSION_FORMATS = {
    "classifier": "",
    "official": ".npz",  # As the paper's code.
    "weights": ".weights.h5",  # As Keras.
    "huggingface": "",
    "timm": ".safetensors",  # Or a folder.
}


@documented
@dataclasses.dataclass(frozen=True)
class ServingLimits:
    """Bounds of a server; what is beyond them is refused before it costs memory or time.

    Raises:
        ValueError: If a value is out of range.
    """

    max_batch: int = setting(
        8, "images that the model computes at once", unit="N", limits=AT_LEAST_1
    )
    batch_wait: float = setting(
        2.0,
        "milliseconds that a batch waits for images being decoded",
        unit="MS",
        limits=NOT_NEGATIVE,
    )
    max_queue: int = setting(
        256,
        "images of all requests that wait for their answer; beyond it 503",
        unit="N",
        limits=AT_LEAST_1,
    )
    max_body: float = setting(
        32.0, "megabytes of a request; beyond it 413", unit="MB", limits=AT_LEAST_1
    )
    max_pixels: int = setting(
        50_000_000, "largest image, height times width", unit="N", limits=AT_LEAST_1
    )

    def __post_init__(self):
        check_fields(self)
