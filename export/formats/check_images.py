"""Images on which an export is calibrated and compared with its Keras model, and those it holds."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from PIL import Image

from keras_vit.checkpoints.catalogue import name_of_folder
from keras_vit.description.without_paths import shown_path
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
from keras_vit.images.transcoding import with_size
from keras_vit.predictor import Predictor

from .export_format import CheckImages, ExportFormat, QuantizedFormat

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
def images_of_export(export: ExportFormat, classifier: Predictor) -> Iterator[CheckImages]:
    """Yields all images of an export, made once.

    It is checked on at most `MAX_CHECK_IMAGES`, spread evenly over all files; by default on the
    classifier's samples, or else on synthetic images.

    Args:
        export: The format, with its options.
        classifier: The exported classifier.

    Raises:
        ValueError: If there are too few images, a photo cannot be read, or a number of photos is
            asked for and there are none.
    """
    calibrated = getattr(export, "precision", None) == "int8"
    notes: tuple[str, ...] = ()
    with tempfile.TemporaryDirectory() as synthetic, tempfile.TemporaryDirectory() as golden:
        paths = export.check_images
        if paths is None:
            paths = own_samples(classifier.folder)
            if not paths and calibrated:
                raise ValueError(
                    "Ranges of activations need real images, and this classifier has no samples: "
                    "pass check_images (--check-images), of which none goes into the export. "
                    f"Received: {name_of_folder(classifier.folder)}"
                )
            if not paths:
                paths, notes = written_images(synthetic, synthetic_images()), (SYNTHETIC,)
        files = image_files(paths)
        checked = [files[index] for index in spread(len(files), MAX_CHECK_IMAGES)]
        images = CheckImages(checked, notes)
        if calibrated:
            images = _with_calibration(images)
        yield _with_golden(images, export, classifier, golden)


def _with_calibration(images):
    """Takes every second image for the ranges of activations, which the check leaves out."""
    files, calibration = images.files[1::2], images.files[::2][:MAX_CALIBRATION_IMAGES]
    if not files:
        raise ValueError(
            "Ranges of activations need at least two images, for calibration and for the check. "
            f"Received: {len(images.files)}"
        )
    note = f"Ranges of activations from {len(calibration)} images."
    return CheckImages(files, (*images.notes, note), calibration)


def _with_golden(images, export, classifier, folder):
    """Writes the images that the export will hold: photos, or synthetic images without any."""
    samples, preprocessing = export.samples, classifier.preprocessing
    files = sample_files(samples, classifier.folder, NUM_SAMPLES)
    decoded = read_images(files, preprocessing.bit_depth)
    photos = [_shrunk(at_model_size(photo, preprocessing)) for photo in decoded]
    is_folder = samples is not None and sample_count(samples) is None
    of = f"of {shown_path(str(samples))}" if is_folder else "of the classifier's samples"
    size = photos[0].shape[:2] if photos else preprocessing.image_size
    line = describe_samples(len(photos), of, size, "with the export")
    input_size = getattr(export, "input_size", None)
    golden = [with_size(image, input_size) for image in photos or synthetic_images()]
    return dataclasses.replace(
        images,
        notes=(*images.notes, f"{line[0].upper()}{line[1:]}."),
        golden=written_images(folder, golden),
        has_synthetic_golden=not photos,
    )


def input_images(
    export: QuantizedFormat, classifier: Predictor, files: Sequence[str]
) -> list[np.ndarray]:
    """Returns image files as an export takes them, without the batch's dimension."""
    if export.input == "float":
        return list(load_images(classifier, files)) if files else []
    size = getattr(export, "input_size", None)
    decoded = read_images(files, classifier.preprocessing.bit_depth)
    return [with_size(pixels, size) for pixels in decoded]


def written_images(folder: str | os.PathLike, images: Iterable[np.ndarray]) -> list[str]:
    """Returns PNG files of images, uint8 `(H, W, 3)`, in a folder."""
    files = []
    for number, image in enumerate(images):
        path = pathlib.Path(folder, f"{number}.png")
        path.write_bytes(encoded_png(image))
        files.append(str(path))
    return files


def load_images(classifier: Predictor, files: Iterable[str | os.PathLike]) -> np.ndarray:
    """Returns image files as the model's input, `(N, H, W, C)` float32, as `predict` reads them."""
    return preprocessed(classifier, read_images(files, classifier.preprocessing.bit_depth))


def preprocessed(classifier: Predictor, images: Iterable[np.ndarray]) -> np.ndarray:
    """Returns images, uint8 `(H, W, 3)`, as the model's input, `(N, H, W, C)` float32."""
    inputs = (apply_preprocessing(image, classifier.preprocessing) for image in images)
    return np.stack([np.asarray(each) for each in inputs])


def _shrunk(image):
    result = Image.fromarray(image)
    result.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    return np.asarray(result)
