"""Encoded images with their names, of data that need no labels."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterator

from keras_vit.classifier import image_files

_FOLDERS = {"train": ("train", "training"), "test": ("test", "testing", "val", "validation")}


class ImageList:
    """The images of a folder, a CSV file or a TFDS name.

    Args:
        data: A folder: its `train` or `test` folder if it has one, else all images in it,
            subfolders included. Or what `keras_vit.training.data.open_source` takes.
        part: "train" or "test".
        data_dir: Of TFDS, or that paths in a CSV file start from.

    Raises:
        ValueError: If there is nothing there, or no image.
    """

    def __init__(self, data: str | os.PathLike, part: str, data_dir=None):
        self.data = os.fspath(data)
        self._examples = None
        self._paths: dict[str, str] = {}
        if pathlib.Path(data).is_dir():
            folder = pathlib.Path(data)
            inside = next((folder / n for n in _FOLDERS[part] if (folder / n).is_dir()), None)
            root = folder if inside else folder.absolute().parent
            for path in image_files(inside or folder):
                # With the folder's name in front: an exclusion takes the ends of paths.
                self._paths[os.path.relpath(path, root)] = path
            return
        from keras_vit.training.data import open_source

        splits = open_source(data, data_dir=data_dir, holdout=0, verify=False).splits
        self._examples = splits[part if part in splits else "train"]

    def __len__(self) -> int:
        return len(self._paths if self._examples is None else self._examples)

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        if self._examples is None:
            for name, path in self._paths.items():
                yield name, pathlib.Path(path).read_bytes()
            return
        encoded = (image for image, _ in self._examples.encoded())
        yield from zip(self._examples.names, encoded, strict=True)

    @property
    def paths(self) -> dict[str, str] | None:
        """The files by name; None if the images are in no files of their own."""
        return None if self._examples is not None else self._paths

    def read(self, names) -> Callable[[str], bytes]:
        """Returns a function that gives the content of some images by name.

        Args:
            names: The names that will be asked for; where images are in no files of their
                own these are kept in memory, after one pass.
        """
        if self._examples is None:
            return lambda name: pathlib.Path(self._paths[name]).read_bytes()
        wanted = set(names)
        return {name: encoded for name, encoded in self if name in wanted}.__getitem__
