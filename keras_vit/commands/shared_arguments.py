"""Arguments that several commands share."""

from __future__ import annotations

from typing import Any

from keras_vit.configs import FEATURES
from keras_vit.utils.fields import AT_LEAST_1, REQUIRED, setting


def classifier(more: str = "") -> Any:
    """Returns the field of MODEL, which `open_classifier` opens.

    Args:
        more: What else it may be, for the help text.
    """
    return setting(
        REQUIRED,
        "a classifier's folder, or an export of one: a folder of SavedModel or OpenVINO, a "
        f".tflite or an .onnx file{more}",
        unit="MODEL",
        positional=True,
    )


def batch_size(default: int = 32) -> Any:
    """Returns the field of --batch-size."""
    return setting(default, "images at once", unit="N", limits=AT_LEAST_1)


def folds(what: str, **options: Any) -> Any:
    """Returns the field of --folds.

    Args:
        what: What it does, for the help text.
        **options: As for `setting`.
    """
    at_least_2 = ("at least 2", lambda value: value >= 2)
    return setting(None, what, unit="K", limits=at_least_2, **options)


def feature() -> Any:
    """Returns the field of --feature."""
    return setting(
        FEATURES[0],
        "input of the head, class token, or mean of the patch tokens",
        choices=FEATURES,
    )
