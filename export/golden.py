"""Golden samples: images with their probabilities, kept in an export to verify it anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from keras_vit.utils.json_files import parse_json

from .texts import GOLDEN


class GoldenSample(NamedTuple):
    """An image, and the probabilities that the Keras model gives for it.

    Args:
        png: The image's file.
        sha256: Checksum of its decoded pixels, uint8 `(H, W, 3)` in C order, in hexadecimal.
        probabilities: K numbers.
        is_synthetic: Whether it is made by this package instead of a photo.
        answers: By signature, the K probabilities that an export with integers gave itself.
    """

    png: bytes
    sha256: str
    probabilities: tuple[float, ...]
    is_synthetic: bool = False
    answers: Mapping[str, tuple[float, ...]] = {}


def parse_golden(text: str) -> list[GoldenSample]:
    """Returns the samples of a `golden.json`.

    Raises:
        ValueError: If the text is not one.
    """
    try:
        samples = [
            GoldenSample(
                base64.b64decode(sample["png"], validate=True),
                str(sample["sha256"]),
                tuple(map(float, sample["probabilities"])),
                bool(sample.get("synthetic")),
                {name: tuple(map(float, row)) for name, row in sample.get("answers", {}).items()},
            )
            for sample in parse_json(text, GOLDEN)
        ]
        if not samples:
            raise ValueError("Received: an empty list")
        return samples
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{GOLDEN} must be a list of golden samples: png, sha256, probabilities. {error}"
        ) from error


def with_answers(text: str, answers: Mapping[str, np.ndarray]) -> str:
    """Returns the text of `golden.json` with the export's own answers.

    Args:
        text: The text without them.
        answers: By signature, an array `(N, K)` for the N samples.
    """
    samples = parse_json(text, GOLDEN)
    for index, sample in enumerate(samples):
        rows = {name: rows[index].tolist() for name, rows in answers.items()}
        sample["answers"] = {
            name: [float(f"{value:.7g}") for value in row] for name, row in rows.items()
        }
    return json.dumps(samples)


def checksum(pixels: np.ndarray) -> str:
    """Returns the checksum of an image's pixels, uint8 `(H, W, 3)`."""
    return hashlib.sha256(pixels.tobytes()).hexdigest()
