"""Images on which an export is compared with its Keras model."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from keras_vit.classifier import Classifier
from keras_vit.images.decoding import apply_preprocessing, read_image
from keras_vit.images.listing import image_files
from keras_vit.images.samples import (
    NUM_SYNTHETIC,
    encoded_png,
    own_samples,
    read_images,
    synthetic_images,
)

# More images change the result little and take minutes.
MAX_CHECK_IMAGES = 256


SYNTHETIC = (
    f"Checked on {NUM_SYNTHETIC} synthetic images, as the classifier has no samples: "
    "check_images (--check-images) takes real ones."
)


@contextlib.contextmanager
def found_check_images(
    classifier: Classifier,
    check_images: str | os.PathLike | Iterable | None = None,
    only_real: bool = False,
) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    """Yields the image files that an export is checked on, and remarks for the user.

    There are at most `MAX_CHECK_IMAGES`, spread evenly over all that were found.

    Args:
        classifier: The classifier, whose samples are the default, or else synthetic images.
        check_images: Files or folders of images.
        only_real: Whether synthetic images do not do.

    Raises:
        ValueError: If there are none.
    """
    found = own_samples(classifier.folder) if check_images is None else check_images
    if not found and check_images is None and only_real:
        raise ValueError(
            "precision=int8 needs real images, and this classifier has no samples: pass "
            "check_images (--check-images), of which none goes into the export. "
            f"Received: {classifier.folder}"
        )
    with tempfile.TemporaryDirectory() as folder:
        notes: tuple[str, ...] = ()
        if not found and check_images is None:
            found, notes = folder, (SYNTHETIC,)
            for number, image in enumerate(synthetic_images()):
                pathlib.Path(folder, f"{number}.png").write_bytes(encoded_png(image))
        files = image_files(found)
        step = max(len(files) / MAX_CHECK_IMAGES, 1)
        yield [files[int(n * step)] for n in range(min(len(files), MAX_CHECK_IMAGES))], notes


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
