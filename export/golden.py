"""Golden samples: images with their probabilities, kept in an export to verify it anywhere."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from keras_vit.classifier import Classifier, predict_batch
from keras_vit.images.decoding import read_image
from keras_vit.utils.json_files import parse_json

from .pillow_pixels import with_size
from .texts import GOLDEN

NUM_SAMPLES = 3
LONGEST_SIDE = 128  # Pixels; larger images are shrunk, for the size of the export.


class GoldenSample(NamedTuple):
    """An image, and the probabilities that the Keras model gives for it.

    Args:
        png: The image's file.
        sha256: Checksum of its decoded pixels, uint8 `(H, W, 3)` in C order, in hexadecimal.
        probabilities: K numbers.
        answers: By signature, the K probabilities that an export with integers gave itself.
    """

    png: bytes
    sha256: str
    probabilities: tuple[float, ...]
    answers: Mapping[str, tuple[float, ...]] = {}


def golden_json(
    classifier: Classifier, files: Sequence[str], input_size: tuple[int, int] | None = None
) -> str:
    """Returns the text of `golden.json`: a few of the check images with their probabilities.

    Args:
        classifier: The exported classifier.
        files: The check images.
        input_size: The only size of pixels that the export takes, if it has one.
    """
    samples = []
    for index in np.linspace(0, len(files) - 1, min(NUM_SAMPLES, len(files))).round().astype(int):
        image = Image.fromarray(read_image(files[index]))
        image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
        pixels = with_size(np.asarray(image), input_size)
        (probabilities,) = predict_batch(classifier.model, classifier.preprocess(pixels))
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG", optimize=True)
        samples.append(
            {
                "png": base64.b64encode(buffer.getvalue()).decode(),
                "sha256": checksum(pixels),
                "probabilities": [float(f"{value:.7g}") for value in probabilities],
            }
        )
    return json.dumps(samples)


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
