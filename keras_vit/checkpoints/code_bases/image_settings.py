"""Preprocessing and configs of this package in the terms of libraries on PyTorch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from keras_vit.configs import ViTConfig
from keras_vit.preprocessing import PILLOW_EVALUATIONS, Preprocessing
from keras_vit.utils.files import DESCRIPTION


def differences(preprocessing: Preprocessing, library: str) -> list[str]:
    """Returns notes of how a library's antialiased resize and crop differ.

    Raises:
        ValueError: If they differ in more than a filter or a pixel.
    """
    evaluation, before = preprocessing.evaluation, preprocessing.resize_size
    if evaluation == "resize":
        return ["the resize there is antialiased, and was not here"]
    if evaluation not in PILLOW_EVALUATIONS:
        raise ValueError(
            'The way of resizing must be one of that library: "huggingface", "torchvision", or '
            f'nearly "resize" (evaluation in {DESCRIPTION}). Received: {evaluation!r}'
        )
    rests = {1, 3} if isinstance(before, int) else set()
    if isinstance(before, tuple):
        rests = {b - side for b, side in zip(before, preprocessing.image_size, strict=True)}
    if evaluation != library and any(rest // 2 != round(rest / 2) for rest in rests):
        return ["the crop there may start one pixel later or earlier"]
    return []


def mean_and_std(preprocessing: Preprocessing, channels: int) -> tuple[list, list]:
    """Returns the values of `(pixel / 255 - mean) / std`, by channel."""
    least, most = (np.broadcast_to(value, channels).tolist() for value in preprocessing.value_range)
    pairs = list(zip(least, most, strict=True))
    return [-low / (high - low) for low, high in pairs], [1 / (high - low) for low, high in pairs]


def differing_fields(config: ViTConfig, absent: Mapping[str, bool]) -> str:
    """Returns the fields of a config that have no counterpart, for a message."""
    return ", ".join(
        f"{name}={getattr(config, name)!r}" for name, is_absent in absent.items() if is_absent
    )
