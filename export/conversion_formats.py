"""Formats and normalisations of `keras-vit convert`. Imports no other package."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class ConversionFormat:
    """A format that `convert` writes.

    Args:
        summary: A short description, for messages.
        is_folder: Whether it is a folder; else it is a file.
        suffix: The end of the file's name, or "".
    """

    summary: str
    is_folder: bool
    suffix: str = ""


FORMATS = {
    "classifier": ConversionFormat("A classifier's folder", is_folder=True),
    "official": ConversionFormat("An official checkpoint", False, ".npz"),
    "weights": ConversionFormat("A weights file of Keras", False, ".weights.h5"),
    "huggingface": ConversionFormat("A folder of Hugging Face", is_folder=True),
    "timm": ConversionFormat("A state dict of timm", False, ".safetensors"),
}

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # By channel, of pixels in [0, 1].
IMAGENET_STD = (0.229, 0.224, 0.225)

# Mean and standard deviation of pixels in [0, 1].
NORMALIZATIONS = {
    "half": ((0.5,), (0.5,)),
    "imagenet": (IMAGENET_MEAN, IMAGENET_STD),
}
