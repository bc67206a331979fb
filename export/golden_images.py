"""Golden samples of a new export: the images, and what the Keras model gives for them."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import numpy as np
from PIL import Image

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
from keras_vit.prediction import predict_batch

from .golden import checksum
from .pillow_pixels import with_size

NUM_SAMPLES = 3
LONGEST_SIDE = 128  # Pixels; larger images are shrunk, for the size of the export.


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
