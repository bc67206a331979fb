"""Image files: those in folders, and images in memory as the content of one.

Neither TensorFlow nor Keras is imported here.
"""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Iterable
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import PIL.Image
import PIL.ImageOps

from keras_vit.images.pixels import FULL_DEPTH, scaled_pixels
from keras_vit.images.transcoding import (
    IMAGE_SUFFIXES,
    OTHER_IMAGE_SUFFIXES,
    SIGNATURE_BYTES,
    check_range,
    kind_of,
    to_rgb,
)
from keras_vit.utils.safe_text import for_line

# The reason why a name such as x.jpg is left out that is no file; a pipe would be waited for.
NO_FILE = "Not a regular file, but a pipe, a socket, a device or a link to nothing."

PATHS = (str, os.PathLike)

# An image: its path or its folder's path, the content of a file, an open binary file, a PIL image,
# or an array `(H, W, 3)` of uint8. And one or several.
Image: TypeAlias = (
    str | os.PathLike | bytes | bytearray | memoryview | BinaryIO | PIL.Image.Image | np.ndarray
)
Images: TypeAlias = Image | Iterable[Image]


def image_files(paths: str | os.PathLike | Iterable) -> list[str]:
    """Returns image files: the given ones, and all in the given folders; see `images_below`.

    A line on standard error names each pipe or link to nothing in a folder that is named as an
    image; see `is_no_file`.

    Raises:
        ValueError: If a path does not exist, or a folder has no images.
    """
    paths = [paths] if isinstance(paths, PATHS) else list(paths)
    files = []
    for path in map(pathlib.Path, paths):
        if path.is_dir():
            inside, others = images_below(path)
            if not inside:
                raise ValueError(
                    f"A folder must have images in it ({', '.join(sorted(IMAGE_SUFFIXES))}). "
                    f"Received: {path}{only_others(others)}"
                )
            for other in filter(is_no_file, others):
                print(for_line(f"keras-vit: left out {other}: {NO_FILE}"), file=sys.stderr)
            files += sorted(inside)
        elif path.is_file():
            files.append(str(path))
        else:  # Opening a pipe would wait for ever.
            reason = f". {NO_FILE}" if path.exists() else ""
            whole = " ".join(map(os.fspath, paths))
            if len(paths) > 1 and os.path.exists(whole):  # A shell has divided it.
                reason = f'. A path with spaces needs quotes: "{whole}"'
            raise ValueError(
                f"An image must be an existing file or folder. Received: {path}{reason}"
            )
    return files


def as_images(images: Images, bit_depth: int = FULL_DEPTH) -> list[str | bytes | np.ndarray]:
    """Returns the paths of image files, and images as `as_image` returns them, in order.

    Args:
        images: A file, a folder (with its subfolders), an image in memory, or several of these.
        bit_depth: See `as_image`.

    Raises:
        ValueError: If a path does not exist, a folder has no images, or an image in memory is of
            another type.
    """
    if hasattr(images, "element_spec"):
        raise ValueError(
            "Photos must be paths, a folder or images in memory; a tf.data.Dataset goes to Keras's "
            "classifier.model.predict, with pixels by classifier.preprocess. "
            f"Received: {type(images).__name__}"
        )
    several: Any = [images] if isinstance(images, PATHS) or is_one_image(images) else images
    readable: list[str | bytes | np.ndarray] = []
    for image in several:
        if isinstance(image, PATHS):
            readable += image_files(image)
        else:
            readable.append(as_image(image, bit_depth))
    return readable


def is_one_image(images: Images) -> bool:
    """Returns whether something is one image in memory or a path of one, and no folder."""
    if isinstance(images, PATHS):
        return not os.path.isdir(images)
    in_memory = isinstance(images, (bytes, bytearray, memoryview)) or hasattr(images, "read")
    return in_memory or hasattr(images, "getexif") or getattr(images, "ndim", 0) == 3


def as_image(image: Any, bit_depth: int = FULL_DEPTH) -> bytes | np.ndarray:
    """Returns an image of this program as the content of a file or as uint8 pixels `(H, W, 3)`.

    Args:
        image: The content of an image file, an open binary file, a PIL image, or an array
            `(H, W, 3)` of uint8.
        bit_depth: Bits of the values of a PIL image of 16 bits; see `decode_file`.

    Raises:
        ValueError: If it is none of these.
    """
    image = image.read() if hasattr(image, "read") else image
    if isinstance(image, (bytes, bytearray, memoryview)):
        return bytes(image)
    if hasattr(image, "getexif"):
        check_range(image, f"a PIL image of mode {image.mode}")
        return np.asarray(to_rgb(PIL.ImageOps.exif_transpose(image), bit_depth))
    pixels = np.asarray(image)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or not pixels.size:
        received = f"{type(image).__name__} of shape {pixels.shape}, {pixels.dtype}"
        raise ValueError(
            "An image must be a path, bytes of a file, a PIL image or an array (height, width, 3) "
            f"of uint8. {scaled_pixels(image) or f'Received: {received}'}"
        )
    return pixels


def images_below(
    folder: str | os.PathLike, *, deep: bool = True, follow: bool = True
) -> tuple[list[str], list[str]]:
    """Returns the images in a folder and its subfolders, and the other files.

    Images are recognised by their suffix, or if it is not one of an image, by their first
    bytes. Some of these kinds cannot be read, which shows when they are. Hidden files and
    folders are left out, and linked folders that lead back to one that they lie in. Among the
    others is what is named as an image but no regular file (`is_no_file`).

    Args:
        folder: The folder.
        deep: Whether subfolders are looked into.
        follow: Whether linked folders are looked into; else they are among the others.
    """
    images: list[str] = []
    others: list[str] = []
    for path in _files_below(folder, deep, follow):
        (images if _is_image(path) else others).append(path)
    return images, others


def has_images(folder: str | os.PathLike) -> bool:
    """Returns whether `images_below` finds an image; it looks no further than the first."""
    return any(map(_is_image, _files_below(folder, deep=True, follow=True)))


def _files_below(folder, deep, follow):
    """Yields the files of `images_below`, and the linked folders that are not looked into."""
    for root, folders, files in os.walk(os.fspath(folder), followlinks=True):
        seen = sorted(name for name in folders if deep and not is_hidden(name))
        linked = {name for name in seen if os.path.islink(os.path.join(root, name))}
        if not follow:
            yield from (os.path.join(root, name) for name in sorted(linked))
        folders[:] = [
            name
            for name in seen
            if name not in linked or (follow and not leads_back(os.path.join(root, name)))
        ]
        yield from (os.path.join(root, name) for name in sorted(files) if not is_hidden(name))


def only_others(others: Iterable[str]) -> str:
    """Returns the end of the error that a folder has no images: the other files in it."""
    others = list(others)
    if not others:
        return ""
    names = ", ".join(os.path.basename(path) for path in others[:3])
    return f", which holds {len(others)} other files, such as {names}"


# Folders that systems add: archives of macOS, network disks (QNAP, Synology), Windows and Linux.
_SYSTEM_FOLDERS = {
    "__macosx",
    *("@eadir", "@recently-snapshot", "@recycle", "@tmp", "#recycle", "#snapshot", "~snapshot"),
    *("$recycle.bin", "system volume information"),
    "lost+found",
}


def is_hidden(name: str) -> bool:
    """Returns whether a file or folder is hidden, or a folder that the system added."""
    return name.startswith(".") or name.lower() in _SYSTEM_FOLDERS


def leads_back(path: str | os.PathLike) -> bool:
    """Returns whether a linked folder leads to a folder that it lies in, so that it never ends."""
    if not os.path.islink(path):
        return False
    real, above = os.path.realpath(path), pathlib.Path(os.path.abspath(path)).parents
    inside = os.path.join(os.path.realpath(above[0]), "")
    return inside.startswith(os.path.join(real, "")) or any(
        os.path.realpath(folder) == real for folder in above
    )


def is_no_file(path: str) -> bool:
    """Returns whether a path is named as an image, but is no regular file."""
    return has_image_suffix(path) and not os.path.isfile(path)


def _is_image(path):
    if not os.path.isfile(path):
        return False
    if has_image_suffix(path):
        return True
    with open(path, "rb") as file:
        head = file.read(SIGNATURE_BYTES)
    # BMP's two letters may also begin a text.
    return kind_of(head) not in (None, "BMP")


def has_image_suffix(path: str) -> bool:
    """Returns whether a path is named as an image."""
    suffix = os.path.splitext(path)[1].lower()
    return suffix in IMAGE_SUFFIXES or suffix in OTHER_IMAGE_SUFFIXES
