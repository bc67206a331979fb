"""In-memory data: labelled images as arrays, `tf.data.Dataset`s or data frames."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from . import lazy_tensorflow as tf
from .examples import Examples, RandomAccessExamples, without_autotune
from .label_tables import Table, cell_of, sorted_classes
from .parts import SPLITS

Pairs: TypeAlias = "tuple[npt.ArrayLike, npt.ArrayLike] | tf.data.Dataset"
# What `open_source` opens.
Labelled: TypeAlias = "str | os.PathLike | Pairs | Mapping[str, Pairs] | InMemory"

MEMORY = "memory:"  # Before the hash that stands for such data in `recipe.json`.

_FORMS = (
    "a path, a pair (images, labels) of arrays, a tf.data.Dataset of such pairs, a "
    'pandas.DataFrame, or a mapping of "train", "validation", "calibration" and "test" to pairs '
    "or Datasets"
)


class InMemory:
    """In-memory data: labelled images of a Python program.

    Args:
        data: One of
            a pair of arrays: images, uint8 `(N, H, W)`, `(N, H, W, 1)` or `(N, H, W, 3)`, and
            labels, which are class numbers `(N,)`, names `(N,)`, or multi-label zeros and ones
            `(N, K)`;
            a `tf.data.Dataset` of such pairs, in batches or one by one, whose images may
            differ in size; it is read once, into memory;
            a mapping of "train", "validation", "calibration" and "test" to either of these;
            a `pandas.DataFrame` with the columns of a CSV file, see `label_tables.listed_files`.

    Raises:
        ValueError: If the data have another form, such as images of floats, whose range is
            not known.
    """

    def __init__(self, data: Any):
        self.frame = _frame_table(data)
        self._parts: dict[str | None, _Part] = {}
        if self.frame is not None:
            return
        for key, part in (data if isinstance(data, Mapping) else {None: data}).items():
            split = None if key is None else SPLITS.get(str(key).lower())
            if key is not None and (split is None or split in self._parts):
                raise ValueError(
                    "Splits must be train, validation, calibration or test, each once. "
                    f"Received: {key!r}"
                )
            self._parts[split] = _part(part)
        if not self._parts:
            raise ValueError(f"The data must be {_FORMS}. Received: an empty mapping")

    def __str__(self) -> str:
        """What the data are, for messages."""
        return "the arrays" if self.frame is None else "the DataFrame"

    @functools.cached_property
    def name(self) -> str:
        """The data's name in `recipe.json`, "memory:" and the start of a SHA-256.

        The hash is of all images and labels in their order, or of the rows of a data frame.
        """
        digest = hashlib.sha256(f"{self} {json.dumps(self.frame)}".encode())
        for split, (images, labels) in self._parts.items():
            digest.update(f"{split} {labels.dtype.kind} {labels.tolist()}".encode())
            for image in images:
                digest.update(f"{image.shape}".encode() + image.tobytes())
        return MEMORY + digest.hexdigest()[:16]

    def open(
        self, class_names: Sequence[str] | None = None
    ) -> tuple[tuple[str, ...], dict[str, Examples]]:
        """Returns the class names and the splits of arrays or Datasets.

        Args:
            class_names: The names, in the order of the class numbers; by default the numbers.

        Raises:
            ValueError: If labels and class names do not fit.
        """
        of_parts = {split: part.labels for split, part in self._parts.items()}
        names, numbers = _numbered(of_parts, class_names)
        splits: dict[str, Examples] = {}
        for split, part in self._parts.items():
            prefix = "" if split is None else f"{split}/"
            splits[split or "train"] = ArrayExamples(part.images, numbers[split], prefix)
        return names, splits


class ArrayExamples(RandomAccessExamples):
    """Images in memory with labels.

    Args:
        images: uint8 `(N, H, W, C)`, or a list of N images `(H, W, C)` of different sizes.
        labels: Their class numbers `(N,)`, or multi-label zeros and ones `(N, K)`.
        prefix: Start of the names, which end with the place in the array.
    """

    local = True

    def __init__(self, images: np.ndarray | list[np.ndarray], labels: np.ndarray, prefix: str = ""):
        super().__init__(np.arange(len(labels)), labels)
        self._prefix = prefix
        with tf.device("CPU:0"):
            if isinstance(images, list):  # A tensor has images of one size, or texts.
                self._images = tf.stack([_encoded(image) for image in images])
            else:
                self._images = tf.constant(images)

    @property
    def names(self) -> list[str]:
        return [f"{self._prefix}{place}" for place in self.keys]

    def read(self, handle: Any) -> tuple[tf.Tensor, tf.Tensor]:
        place, label = handle
        image = tf.gather(self._images, place)
        return (image if image.dtype == tf.string else _encoded(image)), label


def _encoded(image):
    """A PNG of the same pixels. Not compressed, as it is decoded at once."""
    return tf.io.encode_png(image, compression=0)


class _Part(NamedTuple):
    """Images and labels of a split.

    Args:
        images: As for `ArrayExamples`.
        labels: Class numbers int64 `(N,)`, names object `(N,)` or flags uint8 `(N, K)`.
    """

    images: Any
    labels: np.ndarray


def _part(data):
    if isinstance(data, tuple | list) and len(data) == 2:
        images, labels = _image_array(data[0]), data[1]
    elif isinstance(data, tf.data.Dataset):
        images, labels = _read(data)
    else:
        raise ValueError(f"The data must be {_FORMS}. Received: {type(data).__name__}")
    values = _label_values(labels)
    if len(images) != len(values):
        raise ValueError(
            "Images and labels must be of the same number. "
            f"Received: {len(images)} images, {len(values)} labels"
        )
    return _Part(images, values)


def _read(dataset):
    """All images of a Dataset, and their labels: an array if they are of one size, or a list."""
    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) != 2:
        raise ValueError(
            f"A tf.data.Dataset must be of pairs (image, label). Received: elements {spec}"
        )
    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ValueError("A tf.data.Dataset must have an end. Received: one that repeats")
    images, labels = [], []
    for image, label in without_autotune(dataset).as_numpy_iterator():
        # Batches of grey images have the rank of a colour image.
        is_grey_batch = np.ndim(image) == 3 and np.ndim(label) and np.shape(image)[-1] not in (1, 3)
        is_batch = np.ndim(image) == 4 or is_grey_batch
        images += list(_image_array(image if is_batch else np.asarray(image)[np.newaxis]))
        labels += list(label) if is_batch else [label]
    if not images:
        raise ValueError("There must be images in the data. Received: an empty tf.data.Dataset")
    return (np.stack(images) if len({image.shape for image in images}) == 1 else images), labels


_IMAGES = (
    "Images must be arrays of uint8, (N, H, W), (N, H, W, 1) or (N, H, W, 3), with at least one "
    "image and one pixel."
)
_LABELS = (
    "Labels must be class numbers from 0 or names, (N,), or multi-label zeros and ones as "
    "integers, (N, K)."
)


def _image_array(images):
    """Images as uint8 `(N, H, W, C)`."""
    try:
        array = np.asarray(images)
    except ValueError as error:  # The sizes differ.
        raise ValueError(f"{_IMAGES} Received: images of different shapes") from error
    if array.dtype != np.uint8:
        reason = ""
        if np.issubdtype(array.dtype, np.floating):
            reason = (
                ", whose range is not known: cast them to uint8, multiplied by 255 and rounded "
                "before if they are 0 to 1"
            )
        raise ValueError(f"Images must be uint8, from 0 to 255. Received: {array.dtype}{reason}")
    array = array[..., np.newaxis] if array.ndim == 3 else array
    if array.ndim != 4 or array.shape[-1] not in (1, 3) or not array.size:
        raise ValueError(f"{_IMAGES} Received: shape {np.shape(images)}")
    return array


def _label_values(labels):
    """Labels as class numbers int64 `(N,)`, names object `(N,)` or flags uint8 `(N, K)`."""
    try:
        array = np.asarray(labels)
    except ValueError as error:  # The sizes differ.
        raise ValueError(f"{_LABELS} Received: labels of different shapes") from error
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]  # As in keras.datasets.cifar10.
    kind = array.dtype.kind
    if array.ndim == 1 and kind in "OSU":
        values = [value.decode() if type(value) is bytes else value for value in array.tolist()]
        if all(isinstance(value, str) and value.strip() for value in values):
            return np.array(values, object)
    if array.ndim == 1 and kind in "biu" and (array >= 0).all():
        return array.astype("int64")
    # keras.utils.to_categorical gives floats.
    if array.ndim == 2 and kind in "biuf" and np.isin(array, (0, 1)).all():
        return array.astype("uint8")
    found = array.dtype if kind not in "biu" else f"{array.min()} to {array.max()}"
    raise ValueError(f"{_LABELS} Received: {found} of shape {array.shape}")


def _numbered(labels, class_names):
    """The class names, and the labels of each split as `Examples.labels`."""
    kinds = {(array.dtype.kind, array.shape[1:]) for array in labels.values()}
    if len(kinds) > 1:
        raise ValueError(
            "All splits must have labels of the same kind. Received: "
            + ", ".join(f"{split} {array.dtype} {array.shape}" for split, array in labels.items())
        )
    ((kind, columns),) = kinds
    names = None if class_names is None else tuple(class_names)
    if names is not None and len(set(names)) != len(names):
        raise ValueError(f"Class names must differ. Received: {', '.join(map(str, names))}")
    if kind == "O":
        found = sorted_classes(name for array in labels.values() for name in array)
        numbers = {name: number for number, name in enumerate(names or found)}
        unknown = [name for name in found if name not in numbers]
        if unknown:
            raise ValueError(
                f"Labels must be class names: {', '.join(numbers)}. "
                f"Received: {', '.join(unknown[:10])}"
            )
        return tuple(numbers), {
            split: np.array([numbers[name] for name in array], "int32")
            for split, array in labels.items()
        }
    if columns:
        count = columns[0]
    else:
        used = np.unique(np.concatenate(list(labels.values())))
        count = int(used[-1]) + 1
        if names is None and len(used) != count:
            missing = int(np.flatnonzero(used != np.arange(len(used)))[0])
            raise ValueError(
                "Without class_names every class number up to the highest must have an image. "
                f"Received: class numbers up to {count - 1}, without {missing}"
            )
    if names is not None and (len(names) != count if columns else len(names) < count):
        raise ValueError(
            f"There must be a class name for each of the {count} classes of the labels. "
            f"Received: {len(names)} names"
        )
    return names or tuple(map(str, range(count))), labels


def _frame_table(data):
    """The table in a `pandas.DataFrame`; None for other data."""
    pandas = sys.modules.get("pandas")  # Imported, if there is a DataFrame.
    if pandas is None or not isinstance(data, pandas.DataFrame):
        return None
    columns = [str(name).strip() for name in data.columns]
    values = data.astype(object).where(data.notna(), "").to_numpy().tolist()
    return Table(columns, [dict(zip(columns, map(cell_of, row), strict=True)) for row in values], 0)
