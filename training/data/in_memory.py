"""In-memory data: labelled images as arrays, `tf.data.Dataset`s or data frames."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from . import lazy_tensorflow as tf
from .examples import Examples, RandomAccessExamples, without_autotune
from .label_tables import (
    Columns,
    LabelledFile,
    Table,
    cell_of,
    listed_files,
    sorted_classes,
)
from .labels import label_array
from .parts import SPLITS
from .record_examples import RecordExamples, Records

Pairs: TypeAlias = "tuple[npt.ArrayLike, npt.ArrayLike] | tf.data.Dataset"
# What `open_source` opens.
Labelled: TypeAlias = "str | os.PathLike | Pairs | Mapping[str, Pairs] | InMemory"

MEMORY = "memory:"  # Before the hash that stands for such data in `recipe.json`.

FORMS = (
    "a pair (images, labels) of arrays, a tf.data.Dataset of such pairs, a pandas.DataFrame, or "
    'a mapping of "train", "validation", "calibration" and "test" to pairs or Datasets'
)


class InMemory:
    """In-memory data: labelled images of a Python program.

    Args:
        data: One of
            a pair of arrays: images, uint8 `(N, H, W)`, `(N, H, W, 1)` or `(N, H, W, 3)`, and
            labels, which are class numbers `(N,)`, names `(N,)`, or multi-label zeros and ones
            `(N, K)`;
            a `tf.data.Dataset` of such pairs, in batches or one by one, whose images may
            differ in size;
            a mapping of "train", "validation", "calibration" and "test" to either of these;
            a `pandas.DataFrame` with the columns of a CSV file, see `label_tables.listed_files`.

    Raises:
        ValueError: If the data have another form, such as images of floats, whose range is
            not known.
    """

    def __init__(self, data: Any):
        self._frame = _frame_rows(data)
        self._parts: dict[str | None, ArrayPart | DatasetPart] = {}
        if self._frame is None:
            given = data if isinstance(data, Mapping) else {None: data}
            for key, part in given.items():
                split = None if key is None else SPLITS.get(str(key).lower())
                if key is not None and (split is None or split in self._parts):
                    raise ValueError(
                        "Splits must be train, validation, calibration or test, each once. "
                        f"Received: {key!r}"
                    )
                self._parts[split] = _part(part)
            if not self._parts:
                raise ValueError(f"The data must be {FORMS}. Received: an empty mapping")

    def __str__(self) -> str:
        """What the data are, for messages."""
        if self._frame is not None:
            return "the DataFrame"
        kinds = {type(part) for part in self._parts.values()}
        return "the arrays" if kinds == {ArrayPart} else "the tf.data.Dataset"

    @property
    def is_frame(self) -> bool:
        """Whether the images are files, listed in a data frame."""
        return self._frame is not None

    @functools.cached_property
    def name(self) -> str:
        """The data's name in `recipe.json`, "memory:" and the start of a SHA-256.

        The hash is of all images and labels in their order, or of the rows of a data frame.
        Arrays and a Dataset of the same images, which are shuffled differently, differ too.
        """
        digest = hashlib.sha256(f"{self} {json.dumps(self._frame)}".encode())
        for split, part in self._parts.items():
            digest.update(f"{split} {part.labels.dtype.kind} {part.labels.tolist()}".encode())
            for of_image in part.digests:
                digest.update(of_image)
        return MEMORY + digest.hexdigest()[:16]

    def files(
        self, root: pathlib.Path, task: str | None, names: Columns, notes: list[str]
    ) -> tuple[list[LabelledFile], tuple[str, ...]]:
        """Returns the files that the data frame lists, and the class names; see `listed_files`."""
        columns, rows = self._frame or ([], [])
        table = Table(columns, rows, 0)
        files, classes = listed_files(table, root, task, names, notes, title=str(self))
        return files, tuple(classes)

    def open(
        self, class_names: Sequence[str] | None = None, *, verify: bool = True
    ) -> tuple[tuple[str, ...], dict[str, Examples]]:
        """Returns the class names and the splits of arrays or Datasets.

        Args:
            class_names: The names, in the order of the class numbers; by default the numbers.
            verify: Whether a Dataset is read a second time, to see that it repeats itself.

        Raises:
            ValueError: If labels and class names do not fit, or a Dataset does not repeat
                itself.
        """
        of_parts = {split: part.labels for split, part in self._parts.items()}
        names, numbers = _numbered(of_parts, class_names)
        splits: dict[str, Examples] = {}
        for split, part in self._parts.items():
            if verify:
                part.verify()
            prefix = "" if split is None else f"{split}/"
            splits[split or "train"] = part.examples(numbers[split], prefix)
        return names, splits


def as_in_memory(data: Any) -> InMemory:
    """Returns the data as `InMemory`; they are themselves if they are that already."""
    return data if isinstance(data, InMemory) else InMemory(data)


class ArrayExamples(RandomAccessExamples):
    """Images of an array with labels.

    Args:
        images: uint8 `(N, H, W, C)`.
        labels: Their class numbers `(N,)`, or multi-label zeros and ones `(N, K)`.
        prefix: Start of the names, which end with the place in the array.
    """

    local = True

    def __init__(self, images: np.ndarray, labels: np.ndarray, prefix: str = ""):
        super().__init__(np.arange(len(labels)), labels)
        self._prefix = prefix
        with tf.device("CPU:0"):
            self._images = tf.constant(images)

    @property
    def names(self) -> list[str]:
        return [f"{self._prefix}{place}" for place in self.keys]

    def read(self, handle: Any) -> tuple[tf.Tensor, tf.Tensor]:
        place, label = handle
        return _encoded(tf.gather(self._images, place)), label


class DatasetRecords(Records):
    """Images of a `tf.data.Dataset`, which repeats itself.

    Args:
        dataset: Pairs of a uint8 image `(H, W, C)` and a label, which is not read.
        labels: As `Examples.labels`.
        mean_bytes: Mean bytes of an image.
        prefix: Start of the names, which end with the place in the Dataset.
    """

    local = True

    def __init__(
        self, dataset: tf.data.Dataset, labels: np.ndarray, mean_bytes: float, prefix: str = ""
    ):
        self._dataset, self._labels, self._prefix = dataset, label_array(labels), prefix
        self.count, self.mean_bytes = len(labels), mean_bytes

    @property
    def labels(self) -> np.ndarray:
        return self._labels

    @property
    def names(self) -> list[str]:
        return [f"{self._prefix}{place}" for place in range(self.count)]

    def dataset(self, start: int, stop: int) -> tf.data.Dataset:
        images = self._dataset.map(lambda image, _: image).skip(start).take(stop - start)
        labels = tf.data.Dataset.from_tensor_slices(self._labels[start:stop])
        return tf.data.Dataset.zip(images, labels)

    def read(self, handle: Any) -> tuple[tf.Tensor, tf.Tensor]:
        image, label = handle
        return _encoded(image), label


def _encoded(image):
    """A PNG of the same pixels. Not compressed, as it is decoded at once."""
    return tf.io.encode_png(image, compression=0)


class ArrayPart:
    """A pair of arrays, checked.

    Args:
        images: As for `InMemory`.
        labels: As for `InMemory`.
    """

    def __init__(self, images: Any, labels: Any):
        self.images, self.labels = _image_array(images), _label_values(labels)
        if len(self.images) != len(self.labels):
            raise ValueError(
                "Images and labels must be of the same number. "
                f"Received: {len(self.images)} images, {len(self.labels)} labels"
            )

    @property
    def digests(self) -> Iterator[bytes]:
        """A hash of each image."""
        return map(_digest, self.images)

    def verify(self) -> None:
        """Does nothing: arrays have one order."""

    def examples(self, labels: np.ndarray, prefix: str) -> Examples:
        """Returns the images with class numbers."""
        return ArrayExamples(self.images, labels, prefix)


class DatasetPart:
    """A `tf.data.Dataset` of pairs, checked and read once when its labels are first asked for.

    Args:
        dataset: As for `InMemory`.
    """

    def __init__(self, dataset: tf.data.Dataset):
        self._dataset = _single_pairs(dataset)
        self._is_verified = False

    @functools.cached_property
    def _read(self):
        """Digests, labels as the data set has them, and bytes of all images."""
        digests, labels, size = [], [], 0
        for image, label in self._pairs():
            if not image.size or image.shape[-1] not in (1, 3):
                raise ValueError(f"{_IMAGES} Received: one of shape {image.shape}")
            digests.append(_digest(image))
            labels.append(label)
            size += image.size
        if not digests:
            raise ValueError("There must be images in the data. Received: an empty tf.data.Dataset")
        return digests, labels, size

    def _pairs(self):
        return without_autotune(self._dataset).as_numpy_iterator()

    @functools.cached_property
    def labels(self) -> np.ndarray:
        """The labels, as `_label_values` returns them."""
        return _label_values(self._read[1])

    @property
    def digests(self) -> Iterator[bytes]:
        """A hash of each image."""
        return iter(self._read[0])

    def verify(self) -> None:
        """Raises ValueError if a second pass gives other pairs, or the same in another order."""
        if self._is_verified:
            return
        digests, labels, _ = self._read
        again = ((_digest(image), label) for image, label in self._pairs())
        pairs = itertools.zip_longest(zip(digests, labels, strict=True), again)
        for place, (first, second) in enumerate(pairs):
            if (
                first is None
                or second is None
                or first[0] != second[0]
                or not np.array_equal(first[1], second[1])
            ):
                raise ValueError(
                    "A tf.data.Dataset must give the same images in the same order each time, or "
                    "a held-out image would also be trained on: shuffle(..., seed=0, "
                    "reshuffle_each_iteration=False), deterministic=True, nothing drawn at "
                    f"random. Received: a second pass that differs at image {place}"
                )
        self._is_verified = True

    def examples(self, labels: np.ndarray, prefix: str) -> Examples:
        """Returns the images with class numbers."""
        mean_bytes = self._read[2] / len(labels)
        records = DatasetRecords(self._dataset, labels, mean_bytes, prefix)
        return RecordExamples(records, np.arange(records.count))


def _digest(image):
    return hashlib.sha256(str(image.shape).encode() + image.tobytes()).digest()


_IMAGES = (
    "Images must be arrays of uint8, (N, H, W), (N, H, W, 1) or (N, H, W, 3), with at least one "
    "image and one pixel."
)
_LABELS = (
    "Labels must be class numbers from 0 or names, (N,), or multi-label zeros and ones as "
    "integers, (N, K)."
)


def _part(data):
    if isinstance(data, tf.data.Dataset):
        return DatasetPart(data)
    if isinstance(data, tuple | list) and len(data) == 2:
        return ArrayPart(*data)
    raise ValueError(f"The data must be a path, {FORMS}. Received: {type(data).__name__}")


def _image_array(images):
    """Images as uint8 `(N, H, W, C)`."""
    try:
        array = np.asarray(images)
    except ValueError as error:  # The sizes differ.
        raise ValueError(f"{_IMAGES} Received: images of different shapes") from error
    _check_bytes(array.dtype)
    if array.ndim == 3:
        array = array[..., np.newaxis]
    if array.ndim != 4 or array.shape[-1] not in (1, 3) or not array.size:
        raise ValueError(f"{_IMAGES} Received: shape {np.shape(images)}")
    return array


def _check_bytes(dtype):
    if dtype == np.uint8:
        return
    reason = ""
    if np.issubdtype(dtype, np.floating):
        reason = (
            ", whose range is not known: cast them to uint8, multiplied by 255 and rounded before "
            "if they are 0 to 1"
        )
    name = np.dtype(dtype).name
    raise ValueError(f"Images must be uint8, from 0 to 255. Received: {name}{reason}")


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


def _single_pairs(dataset):
    """A Dataset of one image `(H, W, C)` and its label at a time."""
    spec = dataset.element_spec
    if not (
        isinstance(spec, tuple)
        and len(spec) == 2
        and all(isinstance(part, tf.TensorSpec) for part in spec)
        and spec[0].shape.rank in (2, 3, 4)
        and spec[1].shape.rank in (0, 1, 2)
    ):
        raise ValueError(
            "A tf.data.Dataset must be of pairs (image, label) of known rank. "
            f"Received: elements {spec}"
        )
    _check_bytes(spec[0].dtype.as_numpy_dtype)
    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ValueError("A tf.data.Dataset must have an end. Received: one that repeats")
    rank, of_label = (part.shape.rank for part in spec)
    # Batches of grey images have the rank of a colour image.
    if rank == 4 or (rank == 3 and of_label and spec[0].shape[-1] not in (1, 3)):
        dataset = dataset.unbatch()
        rank -= 1
    if rank == 2:
        dataset = dataset.map(lambda image, label: (image[..., tf.newaxis], label))
    return dataset


def _frame_rows(data):
    """Names of the columns and rows of text of a `pandas.DataFrame`; None for other data."""
    pandas = sys.modules.get("pandas")  # Imported, if there is a DataFrame.
    if pandas is None or not isinstance(data, pandas.DataFrame):
        return None
    columns = [str(name).strip() for name in data.columns]
    values = data.astype(object).where(data.notna(), "").to_numpy().tolist()
    return columns, [dict(zip(columns, map(cell_of, row), strict=True)) for row in values]
