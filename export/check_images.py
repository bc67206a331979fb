"""Images on which an export is compared with its Keras model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import numpy as np

from keras_vit.classifier import Classifier
from keras_vit.images.decoding import apply_preprocessing, read_image
from keras_vit.images.listing import image_files
from keras_vit.images.samples import own_samples, read_images

# More images change the result little and take minutes.
MAX_CHECK_IMAGES = 256


def find_check_images(
    classifier: Classifier, check_images: str | os.PathLike | Iterable | None = None
) -> list[str]:
    """Returns the image files that an export is checked on.

    Args:
        classifier: The classifier, whose samples are the default.
        check_images: Files or folders of images.

    Returns:
        At most `MAX_CHECK_IMAGES` files, spread evenly over all that were found.

    Raises:
        ValueError: If there are none.
    """
    if check_images is None:
        check_images = own_samples(classifier.folder)
        if not check_images:
            raise ValueError(
                "An export is checked on real images, and this classifier has no samples: pass "
                "check_images (--check-images), of which none goes into the export. "
                f"Received: {classifier.folder}"
            )
    files = image_files(check_images)
    step = max(len(files) / MAX_CHECK_IMAGES, 1)
    return [files[int(index * step)] for index in range(min(len(files), MAX_CHECK_IMAGES))]


def load_images(
    classifier: Classifier,
    files: Iterable[str | os.PathLike],
    read: Callable[[str | os.PathLike], np.ndarray] = read_image,
) -> np.ndarray:
    """Returns image files as the model's input, `(N, H, W, C)` float32.

    Args:
        classifier: The classifier, for its preprocessing.
        files: Image files.
        read: Function from a file to its pixels; by default as `predict` reads it.
    """
    images = (
        apply_preprocessing(image, classifier.preprocessing) for image in read_images(files, read)
    )
    return np.stack([np.asarray(image) for image in images])
