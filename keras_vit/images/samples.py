"""Sample images of a classifier and its exports: photos without metadata, or synthetic images.

A photo is decoded, brought to the model's size and encoded anew, so that nothing of its file but
the pixels is left: no EXIF, no place, no names, no comments.
"""

from __future__ import annotations

import dataclasses
import io
import os
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np
from PIL import Image

from keras_vit.images.decoding import apply_preprocessing
from keras_vit.images.listing import image_files
from keras_vit.images.pixels import FULL_DEPTH
from keras_vit.images.resizing import Preprocessing
from keras_vit.images.transcoding import decode_file, read_image
from keras_vit.utils.files import SAMPLES, check_own_files

NO_SAMPLES = "none"
NUM_SYNTHETIC = 3
# Not the size of a model, so that an export must resize them.
_SYNTHETIC_SIZES = ((61, 83), (96, 64), (57, 57))


def sample_count(samples: str | int) -> int | None:
    """Returns the number that a value of `--samples` asks for; None for a folder.

    Args:
        samples: "none", a number, or a folder.
    """
    if samples == NO_SAMPLES:
        return 0
    return int(samples) if str(samples).isdecimal() else None


def own_samples(folder: str | os.PathLike | None) -> list[str]:
    """Returns the files of the samples in a classifier's folder; none for a file or None.

    Raises:
        ValueError: If a link leads out of the folder, whose samples go into what is given away.
    """
    if folder is None or not os.path.isdir(os.path.join(folder, SAMPLES)):
        return []
    check_own_files(folder)
    path = pathlib.Path(folder, SAMPLES)
    return image_files(path) if any(path.iterdir()) else []


def sample_files(
    samples: str | int | None, folder: str | os.PathLike | None, default: int | None = None
) -> list[str]:
    """Returns the photos that go from a classifier's folder into what is made of it.

    Args:
        samples: "none", a number of the classifier's samples, a folder of photos, or None for
            `default` of the classifier's samples.
        folder: The classifier's folder, or None.
        default: The number if `samples` is None; None for all.

    Raises:
        ValueError: If a folder has no photos; see also `own_samples`.
    """
    own = own_samples(folder)
    count = default if samples is None else sample_count(samples)
    if samples is not None and count is None:
        return image_files(str(samples))
    return own if count is None else [own[place] for place in spread(len(own), count)]


def spread(total: int, count: int) -> list[int]:
    """Returns at most `count` of `total` places, evenly spread."""
    count = min(count, total)
    return [index * total // count for index in range(count)]


def at_model_size(image: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """Returns an image at the model's size, resized as in evaluation: uint8 `(height, width, 3)`.

    Args:
        image: uint8 `(H, W, 3)`.
        preprocessing: The classifier's.
    """
    if image.shape[:2] == preprocessing.image_size:
        return image
    pixels = apply_preprocessing(
        image, dataclasses.replace(preprocessing, value_range=(0.0, 255.0))
    )
    return np.clip(np.rint(np.asarray(pixels)), 0, 255).astype("uint8")


def seen_picture(encoded: bytes, preprocessing: Preprocessing | None) -> bytes:
    """Returns what a model sees of an image file, as a file; b"" if that is all of it, or unknown.

    Args:
        encoded: The image file.
        preprocessing: The classifier's, or None.
    """
    if preprocessing is None:
        return b""
    image = decode_file(encoded, preprocessing.bit_depth)
    seen = at_model_size(image, preprocessing)
    return b"" if seen is image else encoded_png(seen)


def encoded_png(image: np.ndarray) -> bytes:
    """Returns a PNG file of pixels, uint8 `(H, W, 3)`, and of nothing else."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def write_samples(
    folder: pathlib.Path, images: Iterable[np.ndarray], preprocessing: Preprocessing
) -> None:
    """Writes images as the samples of a classifier's folder, if there are any.

    Args:
        folder: The classifier's folder.
        images: Decoded images, uint8 `(H, W, 3)` of any sizes.
        preprocessing: The classifier's.
    """
    for index, image in enumerate(images):
        (folder / SAMPLES).mkdir(exist_ok=True)
        content = encoded_png(at_model_size(image, preprocessing))
        (folder / SAMPLES / f"{index:02}.png").write_bytes(content)


def read_images(
    files: Iterable[str | os.PathLike], bit_depth: int = FULL_DEPTH
) -> list[np.ndarray]:
    """Returns the pixels of image files; see `decode_file`.

    Raises:
        ValueError: If one cannot be read.
    """
    images = []
    for file in files:
        try:
            images.append(read_image(file, bit_depth))
        except ValueError as error:
            raise ValueError(f"{file} cannot be read as an image. {error}") from error
    return images


def pixels_of(image: str | bytes | np.ndarray, bit_depth: int) -> np.ndarray:
    """Returns the pixels of one of `listing.as_images`, uint8 `(H, W, 3)`.

    Raises:
        ValueError: If it cannot be read.
    """
    if isinstance(image, np.ndarray):
        return image
    if isinstance(image, bytes):
        return decode_file(image, bit_depth)
    return read_images([image], bit_depth)[0]


def synthetic_images() -> list[np.ndarray]:
    """Returns images of coloured waves, uint8 `(H, W, 3)`, always the same ones."""
    images = []
    for number, (height, width) in enumerate(_SYNTHETIC_SIZES, 1):
        down, across = np.mgrid[:height, :width] / max(height, width)
        waves = [
            np.sin(2 * np.pi * (number * down + channel * across) + number + channel)
            for channel in range(1, 4)
        ]
        images.append(np.rint(127.5 + 127.5 * np.stack(waves, axis=-1)).astype("uint8"))
    return images


def describe_samples(count: int, of: str, size: Sequence[int], where: str) -> str:
    """Returns the sentence about the photos that travel with a classifier or an export.

    Args:
        count: Their number.
        of: Where they are taken from, such as "of the test part".
        size: Their pixels (height, width).
        where: With what they travel.
    """
    if not count:
        return f"no photos travel {where}"
    noun, verb = ("photo", "travels") if count == 1 else ("photos", "travel")
    return (
        f"{count} {noun} {of}, {size[0]}x{size[1]}, without metadata, {verb} {where}; "
        "--samples none leaves them out"
    )
