"""Golden samples: images with their probabilities, kept in an export to verify it anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from keras_vit.answering import predict_batch
from keras_vit.classifier import Classifier
from keras_vit.description.without_paths import last_part
from keras_vit.images.samples import (
    at_model_size,
    describe_samples,
    encoded_png,
    read_images,
    sample_count,
    sample_files,
    synthetic_images,
)
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
        is_synthetic: Whether it is made by this package instead of a photo.
        answers: By signature, the K probabilities that an export with integers gave itself.
    """

    png: bytes
    sha256: str
    probabilities: tuple[float, ...]
    is_synthetic: bool = False
    answers: Mapping[str, tuple[float, ...]] = {}


def golden_images(
    classifier: Classifier, samples: str | int | None = None
) -> tuple[list[np.ndarray], str]:
    """Returns the images to verify an export by, and the sentence about photos among them.

    Args:
        classifier: The exported classifier.
        samples: The option of the export.

    Raises:
        ValueError: If a photo cannot be read, or a number is asked for and there are none.
    """
    known = classifier.preprocessing
    files = sample_files(samples, classifier.folder, NUM_SAMPLES)
    photos = [_shrunk(at_model_size(photo, known)) for photo in read_images(files)]
    is_folder = samples is not None and sample_count(samples) is None
    of = f"of {last_part(str(samples))}" if is_folder else "of the classifier's samples"
    size = photos[0].shape[:2] if photos else known.image_size
    return photos, describe_samples(len(photos), of, size, "with the export")


def _shrunk(image):
    """An image whose longer side is at most `LONGEST_SIDE`."""
    shrunk = Image.fromarray(image)
    shrunk.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    return np.asarray(shrunk)


def golden_json(
    classifier: Classifier,
    photos: Sequence[np.ndarray] = (),
    input_size: tuple[int, int] | None = None,
) -> str:
    """Returns the text of `golden.json`: a few images with their probabilities.

    Args:
        classifier: The exported classifier.
        photos: uint8 `(H, W, 3)`; synthetic images are taken where there are none.
        input_size: The only size of pixels that the export takes, if it has one.
    """
    samples = []
    for photo in photos or synthetic_images():
        pixels = with_size(_shrunk(photo), input_size)
        (probabilities,) = predict_batch(classifier.model, classifier.preprocess(pixels))
        samples.append(
            {
                "synthetic": not photos,
                "png": base64.b64encode(encoded_png(pixels)).decode(),
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
