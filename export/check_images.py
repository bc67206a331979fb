"""Images on which an export is calibrated and compared with its Keras model, and those it holds."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from PIL import Image

from keras_vit.checkpoints.catalogue import name_of_folder
from keras_vit.classifier import Classifier
from keras_vit.description.without_paths import last_part
from keras_vit.images.decoding import apply_preprocessing
from keras_vit.images.listing import image_files
from keras_vit.images.samples import (
    NUM_SYNTHETIC,
    at_model_size,
    describe_samples,
    encoded_png,
    own_samples,
    read_images,
    sample_count,
    sample_files,
    spread,
    synthetic_images,
)
from keras_vit.images.transcoding import read_image

from .artefacts import with_size
from .formats import CALIBRATED, QuantizedFormat

# More images change the result little and take minutes.
MAX_CHECK_IMAGES = 256

# Calibration only needs the ranges of the activations.
MAX_CALIBRATION_IMAGES = 128

NUM_SAMPLES = 3  # Images that an export holds.
LONGEST_SIDE = 128  # Pixels of these; larger images are shrunk, for the size of the export.

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
            "Ranges of activations need real images, and this classifier has no samples: pass "
            "check_images (--check-images), of which none goes into the export. "
            f"Received: {name_of_folder(classifier.folder)}"
        )
    with tempfile.TemporaryDirectory() as folder:
        notes: tuple[str, ...] = ()
        if not found and check_images is None:
            found, notes = written_images(folder, synthetic_images()), (SYNTHETIC,)
        files = image_files(found)
        yield [files[place] for place in spread(len(files), MAX_CHECK_IMAGES)], notes


def calibration(
    export: QuantizedFormat, classifier: Classifier, files: Sequence[str]
) -> tuple[Sequence[str], list[np.ndarray], tuple[str, ...]]:
    """Returns the files to check an export on, calibration images, and remarks for the user.

    Only the precisions of `CALIBRATED` have calibration images. By default they are every second
    check image, which the check then leaves out.

    Args:
        export: The format, with its options.
        classifier: The exported classifier.
        files: Images to check on.

    Raises:
        ValueError: If there are too few images.
    """
    if export.precision not in CALIBRATED:
        return files, [], ()
    if export.calibration_images is not None:
        ranges: Sequence[str] = image_files(export.calibration_images)
    elif len(files) > 1:
        files, ranges = files[1::2], files[::2]
    else:
        raise ValueError(
            f"precision={export.precision} needs at least two images, for calibration and for the "
            f"check. Received: {len(files)}"
        )
    ranges = ranges[:MAX_CALIBRATION_IMAGES]
    images = input_images(export, classifier, ranges)
    return files, images, (f"Ranges of activations from {len(ranges)} images.",)


def input_images(
    export: QuantizedFormat, classifier: Classifier, files: Sequence[str]
) -> list[np.ndarray]:
    """Returns image files as an export takes them, without the batch's dimension."""
    if export.input == "float":
        return list(load_images(classifier, files))
    size = getattr(export, "input_size", None)
    return [with_size(pixels, size) for pixels in read_images(files)]


def written_images(folder: str | os.PathLike, images: Iterable[np.ndarray]) -> list[str]:
    """Returns PNG files of images, uint8 `(H, W, 3)`, in a folder."""
    files = []
    for number, image in enumerate(images):
        path = pathlib.Path(folder, f"{number}.png")
        path.write_bytes(encoded_png(image))
        files.append(str(path))
    return files


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


def golden_files(
    folder: str | os.PathLike,
    classifier: Classifier,
    samples: str | int | None = None,
    input_size: tuple[int, int] | None = None,
) -> tuple[list[str], bool, str]:
    """Writes the images that an export will hold.

    Args:
        folder: An empty folder for them.
        classifier: The exported classifier.
        samples: The option of the export.
        input_size: The only size of pixels that the export takes, if it has one.

    Returns:
        PNG files of photos, or of synthetic images where there are none; whether they are
        synthetic; and the sentence about photos among them.

    Raises:
        ValueError: If a photo cannot be read, or a number is asked for and there are none.
    """
    known = classifier.preprocessing
    found = sample_files(samples, classifier.folder, NUM_SAMPLES)
    photos = [_shrunk(at_model_size(photo, known)) for photo in read_images(found)]
    images = [with_size(image, input_size) for image in photos or synthetic_images()]
    is_folder = samples is not None and sample_count(samples) is None
    of = f"of {last_part(str(samples))}" if is_folder else "of the classifier's samples"
    size = photos[0].shape[:2] if photos else known.image_size
    line = describe_samples(len(photos), of, size, "with the export")
    return written_images(folder, images), not photos, line


def _shrunk(image):
    result = Image.fromarray(image)
    result.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    return np.asarray(result)
