"""Defaults and bounds of `keras-vit convert` and `keras-vit serve`.

Imports only the standard library. The options of an export are the fields of its format; see
`export_format.py`.
"""

import dataclasses

# Classes that a SavedModel names.
TOP = 5

PORT = 8501  # TensorFlow Serving's for REST.

# Formats that `convert` writes, with the end of the file's name; "" is a folder.
CONVERSION_FORMATS = {
    "classifier": "",
    "official": ".npz",  # As the paper's code.
    "weights": ".weights.h5",  # As Keras.
    "huggingface": "",
    "timm": ".safetensors",  # Or a folder.
}


@dataclasses.dataclass(frozen=True)
class ServingLimits:
    """Bounds of a server; what is beyond them is refused before it costs memory or time.

    Args:
        max_batch: Images that the model computes at once.
        batch_wait: Milliseconds that a batch waits for images that are being decoded.
        max_queue: Images that were accepted and are not yet answered, of all requests.
        max_body: Megabytes of a request's body.
        max_pixels: Height times width of an image.
    """

    max_batch: int = 8
    batch_wait: float = 2.0
    max_queue: int = 256
    max_body: float = 32.0
    max_pixels: int = 50_000_000

    def __post_init__(self):
        wrong = {
            name: value
            for name, value in dataclasses.asdict(self).items()
            if not value >= (0 if name == "batch_wait" else 1)
        }
        if wrong:
            raise ValueError(
                "max_batch, max_queue, max_body and max_pixels must be at least 1, and batch_wait "
                f"not negative. Received: {wrong}"
            )
