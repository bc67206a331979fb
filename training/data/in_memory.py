"""In-memory data: labelled images as arrays."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .examples import Examples, Handle, RandomAccessExamples, sorted_classes, tf
from .parts import SPLITS

Pairs: TypeAlias = "tuple[npt.ArrayLike, npt.ArrayLike]"
# What `open_source` opens.
Labelled: TypeAlias = "str | os.PathLike | Pairs | Mapping[str, Pairs] | InMemory"

MEMORY = "memory:"  # Before the hash that stands for such data in `recipe.json`.


class InMemory:
    """In-memory data: labelled images of a Python program.

    Args:
        data: One of
            a pair of arrays: images, uint8 `(N, H, W)`, `(N, H, W, 1)` or `(N, H, W, 3)`, and
            labels, which are class numbers `(N,)`, names `(N,)`, or multi-label zeros and ones
            `(N, K)`;
            a mapping of "train", "validation", "calibration" and "test" to such pairs.

    Raises:
        ValueError: If the data have another form, such as images of floats, whose range is
            not known.
    """

    def __init__(self, data: Pairs | Mapping[str, Pairs]):
        self._parts: dict[str | None, tuple[list[np.ndarray], np.ndarray]] = {}
        for key, part in (data if isinstance(data, Mapping) else {None: data}).items():
            split = None if key is None else SPLITS.get(str(key))
            if key is not None and (split is None or split in self._parts):
                raise ValueError(
                    "Splits must be train, validation, calibration or test, each once. "
                    f"Received: {key!r}"
                )
            self._parts[split] = _images_and_labels(part)
        if not self._parts:
            raise ValueError("There must be images in the data. Received: an empty mapping")

    def __str__(self) -> str:
        """What the data are, for messages."""
        return "the arrays"

    @functools.cached_property
    def name(self) -> str:
        """The data's name in `recipe.json`, "memory:" and the start of a SHA-256.

        The hash is of all images and labels in their order.
        """
        digest = hashlib.sha256(f"{self} null".encode())
        for split, (images, labels) in self._parts.items():
            digest.update(f"{split} {labels.dtype.kind} {labels.tolist()}".encode())
            for image in images:
                digest.update(f"{image.shape}".encode() + image.tobytes())
        return MEMORY + digest.hexdigest()[:16]

    def open(
        self, class_names: Sequence[str] | None = None
    ) -> tuple[tuple[str, ...], dict[str, Examples]]:
        """Returns the class names and the splits of arrays.

        Args:
            class_names: The names, in the order of the class numbers; by default the numbers.

        Raises:
            ValueError: If labels and class names do not fit.
        """
        kinds = {(labels.dtype.kind, labels.shape[1:]) for _, labels in self._parts.values()}
        if len(kinds) > 1:
            shapes = ", ".join(f"{part} {y.shape}" for part, (_, y) in self._parts.items())
            raise ValueError(f"All splits must have labels of the same kind. Received: {shapes}")
        all_labels = np.concatenate([labels for _, labels in self._parts.values()])
        keys: Sequence[str | int]  # The label of each class.
        if all_labels.ndim == 2:
            keys = range(all_labels.shape[1])
        elif class_names is None:
            different = np.unique(all_labels).tolist()
            keys = sorted_classes(different) if all_labels.dtype == object else different
        else:
            keys = class_names if all_labels.dtype == object else range(len(class_names))
        names = tuple(map(str, keys if class_names is None else class_names))
        numbers = {key: number for number, key in enumerate(keys)}
        unknown = []
        if all_labels.ndim == 1:
            unknown = sorted({*all_labels.tolist()} - {*keys})
        if unknown or len(names) != len(keys) or len({*names}) != len(names):
            values = f"; labels {', '.join(map(str, unknown[:10]))}" if unknown else ""
            raise ValueError(
                "class_names must have a different name for each class of the labels. Received: "
                f"{', '.join(names)}{values}"
            )
        splits: dict[str, Examples] = {}
        for part, (images, labels) in self._parts.items():
            if labels.ndim == 1:
                labels = np.array([numbers[label] for label in labels.tolist()], "int32")
            splits[part or "train"] = ArrayExamples(images, labels, f"{part}/" if part else "")
        return names, splits


class ArrayExamples(RandomAccessExamples):
    """Images in memory with labels.

    Args:
        images: N images, uint8 `(H, W, C)`, of any sizes.
        labels: Their class numbers `(N,)`, or multi-label zeros and ones `(N, K)`.
        prefix: Start of the names, which end with the place in the array.
    """

    def __init__(self, images: Iterable[np.ndarray], labels: np.ndarray, prefix: str = ""):
        super().__init__(np.arange(len(labels)), labels)
        self._prefix = prefix
        with tf.device("CPU:0"):  # PNGs, not compressed: each is decoded often.
            self._images = tf.stack([tf.io.encode_png(image, compression=0) for image in images])

    @property
    def names(self) -> list[str]:
        return [f"{self._prefix}{place}" for place in self.keys]

    def read(self, handle: Handle) -> tuple[tf.Tensor, tf.Tensor]:
        place, label = handle
        return tf.gather(self._images, place), label


def _images_and_labels(data):
    """Images uint8 `(H, W, C)`, and labels, see `_label_values`."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise ValueError(
            "The data must be a path, a pair (images, labels) of arrays, or a mapping of "
            '"train", "validation", "calibration" and "test" to pairs. A DataFrame of paths is '
            "written with its to_csv; of a tf.data.Dataset give the folder that it was made from. "
            f"Received: {type(data).__name__}"
        )
    images, labels = np.asarray(data[0]), _label_values(data[1])
    if images.ndim == 3:
        images = images[..., np.newaxis]
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] not in (1, 3):
        raise ValueError(
            "Images must be arrays of uint8 from 0 to 255, of one shape, (N, H, W), (N, H, W, 1) "
            "or (N, H, W, 3); cast floats, whose range is not known. "
            f"Received: {images.dtype} of shape {images.shape}"
        )
    if len(images) != len(labels) or not len(images):
        raise ValueError(
            "Images and labels must be of the same number, at least one. "
            f"Received: {len(images)} images, {len(labels)} labels"
        )
    return list(images), labels


def _label_values(labels):
    """Labels as class numbers int64 `(N,)`, names object `(N,)` or flags uint8 `(N, K)`."""
    array = np.asarray(labels)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]  # As in keras.datasets.cifar10.
    kind = array.dtype.kind
    if array.ndim == 1 and kind in "OSUT":
        values = [value.decode() if type(value) is bytes else value for value in array.tolist()]
        if all(isinstance(value, str) and value.strip() for value in values):
            return np.array(values, object)
    if array.ndim == 1 and kind in "biu" and (array >= 0).all():
        return array.astype("int64")
    # keras.utils.to_categorical gives floats.
    if array.ndim == 2 and kind in "biuf" and np.isin(array, (0, 1)).all():
        return array.astype("uint8")
    raise ValueError(
        "Labels must be class numbers from 0 or names, (N,), or multi-label zeros and ones, "
        f"(N, K). Received: {array.dtype} of shape {array.shape}"
    )
