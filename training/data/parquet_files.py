"""Parquet files with encoded images, as Hugging Face `datasets` writes them."""

from __future__ import annotations

import collections
import json
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.images.listing import is_hidden
from keras_vit.utils.optional_packages import import_optional

from . import lazy_tensorflow as tf
from .examples import Examples
from .label_tables import sorted_classes
from .labels import label_array, multi_hot
from .parts import SPLITS
from .record_examples import RecordExamples, Records

PARQUET = "parquet:"
_ROWS = 64  # Images that are read at once.
_SHARD = re.compile(r"-of-(\d+)")


def open_parquet(
    path: pathlib.Path, image_column: str | None = None, label_column: str | None = None
) -> tuple[tuple[str, ...], dict[str, Examples]]:
    """Returns the class names and the splits of Parquet files; needs the package pyarrow.

    Names of files or their folders start with the part, as in `train-00000-of-00002.parquet`;
    otherwise all images are in "train". Labels are read at once, images when they are needed.

    Args:
        path: A file, or a folder with files that end in .parquet, also in folders within it.
        image_column: The column of the images: a struct of `bytes` and `path`, or bytes. None: the
            only one of this kind.
        label_column: The column of the labels: class numbers, names, or lists of either for
            multi-label images. None: "label" or "labels", or the only column of classes.

    Raises:
        ImportError: If pyarrow is not installed.
        ValueError: If a file is damaged, a column or a shard is missing, files differ in their
            columns, an image is without bytes, or a label is missing.
    """
    parquet = import_optional("pyarrow.parquet", "A Parquet file", "parquet")
    by_part = _by_part(path)
    opened = {str(file): _open(parquet, file) for files in by_part.values() for file in files}
    schemas = [reader.schema_arrow for reader in opened.values()]
    if any(not schema.equals(schemas[0]) for schema in schemas):
        raise ValueError(f"All Parquet files must have the same columns. Received: {path}")
    features = _features(schemas[0])
    image = _column(schemas[0], image_column, "path", _is_image, ("image",), path)
    label = _column(
        schemas[0],
        label_column,
        "label",
        lambda field: _class_names(features.get(field.name)) is not None,
        ("label", "labels"),
        path,
    )
    names = _class_names(features.get(label))
    is_struct = not _is_binary(schemas[0].field(image).type)
    values: dict[str, list] = {}
    keys: dict[str, list[str]] = {}
    for part, files in by_part.items():
        values[part], keys[part] = [], []
        for file in files:
            reader = opened[str(file)]
            _check_bytes(reader, file, f"{image}.bytes" if is_struct else image)
            wanted = [label, *([f"{image}.path"] if is_struct else [])]
            table = reader.read(columns=wanted)
            found = table.column(label).to_pylist()
            if any(value is None for value in found):
                raise ValueError(f"Every image must have a label. Received: {file}, without some")
            values[part] += found
            places = [f"{file.name}:{row}" for row in range(len(found))]
            rows = table.column(image).to_pylist() if is_struct else [{}] * len(found)
            keys[part] += [row.get("path") or key for row, key in zip(rows, places, strict=True)]
    classes, labels = _numbered(values, names, path)
    splits: dict[str, Examples] = {}
    for part, files in by_part.items():
        readers = [opened[str(file)].metadata for file in files]
        size = sum(
            reader.row_group(group).total_byte_size
            for reader in readers
            for group in range(reader.num_row_groups)
        )
        records = ParquetRecords(
            [str(file) for file in files],
            [reader.num_rows for reader in readers],
            labels[part],
            _unique(keys[part], part, by_part),
            image,
            size / max(len(labels[part]), 1),
        )
        splits[part] = RecordExamples(records, np.arange(records.count))
    return classes, splits


def column_of_images(
    path: pathlib.Path, splits: Mapping[str, Examples], column: str
) -> dict[str, str] | None:
    """Returns the text of each image in a column, by the image's name; None without the column.

    Args:
        path: See `open_parquet`.
        splits: The result of `open_parquet`, all images.
        column: The column.
    """
    parquet = import_optional("pyarrow.parquet", "A Parquet file", "parquet")
    found: dict[str, str] = {}
    for part, files in _by_part(path).items():
        readers = [_open(parquet, file) for file in files]
        if any(column not in reader.schema_arrow.names for reader in readers):
            return None
        cells = [
            cell
            for reader in readers
            for cell in reader.read(columns=[column]).column(column).to_pylist()
        ]
        texts = ("" if cell is None else str(cell) for cell in cells)
        found |= dict(zip(splits[part].names, texts, strict=True))
    return found


class ParquetRecords(Records):
    """One split in Parquet files.

    Args:
        files: Paths, in order.
        counts: Number of rows in each file.
        labels: As `Examples.labels`.
        names: Name of each image.
        image: The column of the images.
        mean_bytes: Mean bytes of an image.
    """

    local = True  # Only this process reads the files.

    def __init__(
        self,
        files: Sequence[str],
        counts: Sequence[int],
        labels: np.ndarray,
        names: list[str],
        image: str,
        mean_bytes: float,
    ):
        self._files, self._starts = files, np.cumsum([0, *counts])
        self._labels, self._names, self._image = label_array(labels), names, image
        self.count, self.mean_bytes = len(labels), max(mean_bytes, 1.0)

    @property
    def labels(self) -> np.ndarray:
        return self._labels

    @property
    def names(self) -> list[str]:
        return self._names

    def dataset(self, start: int, stop: int) -> tf.data.Dataset:
        images = tf.data.Dataset.from_generator(
            lambda: self._images(start, stop), output_signature=tf.TensorSpec((), tf.string)
        )
        labels = tf.data.Dataset.from_tensor_slices(self._labels[start:stop])
        return tf.data.Dataset.zip(images, labels)

    def read(self, handle: Any) -> tuple[tf.Tensor, tf.Tensor]:
        return handle

    def _images(self, start: int, stop: int) -> Iterator[bytes]:
        """Yields the encoded images `start` to `stop - 1`; other row groups are not read."""
        parquet = import_optional("pyarrow.parquet", "A Parquet file", "parquet")
        for file, first, end in zip(self._files, self._starts[:-1], self._starts[1:], strict=True):
            if end <= start or first >= stop:
                continue
            with parquet.ParquetFile(file) as reader:
                groups: list[int] = []
                place, skipped = int(first), 0
                for group in range(reader.num_row_groups):
                    rows = reader.metadata.row_group(group).num_rows
                    if place + rows <= start and not groups:
                        skipped += rows
                    elif place < stop:
                        groups.append(group)
                    place += rows
                place = int(first) + skipped
                for batch in reader.iter_batches(_ROWS, groups, [self._image]):
                    column = batch.column(0)
                    for number in range(max(start - place, 0), min(stop - place, len(column))):
                        value = column[number].as_py()
                        yield value["bytes"] if isinstance(value, dict) else value
                    place += len(column)


def _by_part(path):
    if path.is_file():
        return {SPLITS.get(re.split(r"[-_.]", path.name)[0].lower(), "train"): [path]}
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else []
    files = [file for file in files if not is_hidden(file.name)]
    if not files:
        raise ValueError(
            "parquet: must be followed by a file, or a folder with files that end in .parquet. "
            f"Received: {path}"
        )
    by_part: dict[str, list[pathlib.Path]] = {}
    known = [
        SPLITS.get(re.split(r"[-_.]", file.name)[0].lower()) or SPLITS.get(file.parent.name.lower())
        for file in files
    ]
    if any(known) and not all(known):
        unknown = files[known.index(None)]
        raise ValueError(
            f"Parquet files must be named after one part each ({', '.join(SPLITS)}), or none of "
            f"them. Received: {unknown}"
        )
    for file, part in zip(files, known, strict=True):
        by_part.setdefault(part or "train", []).append(file)
    for part, of_part in by_part.items():
        if len({file.parent for file in of_part}) > 1:
            folders = ", ".join(sorted({str(file.parent) for file in of_part})[:3])
            raise ValueError(
                f"The files of {part} must lie in one folder: give one of them. Received: {folders}"
            )
        totals = {int(match[1]) for file in of_part if (match := _SHARD.search(file.name))}
        if totals and totals != {len(of_part)}:
            raise ValueError(
                f"All shards of a part must exist, with the same total. Received: {len(of_part)} "
                f"files of {part}, such as {of_part[0].name}"
            )
    return by_part


def _open(parquet, file):
    try:
        return parquet.ParquetFile(file)
    except (OSError, ValueError) as error:  # pyarrow's errors are of both types.
        reason = str(error).splitlines()[0]
        raise ValueError(f"{file} must be a Parquet file. Received: {reason}") from error


def _features(schema):
    """What Hugging Face's metadata say about the columns; {} without them."""
    try:
        text = (schema.metadata or {})[b"huggingface"]
        found = json.loads(text)["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _class_names(feature):
    """The names in a feature of classes, or of lists of them; None of another."""
    if isinstance(feature, list) and len(feature) == 1:
        feature = feature[0]
    if not isinstance(feature, dict):
        return None
    if isinstance(feature.get("feature"), dict | list):
        return _class_names(feature["feature"])
    names = feature.get("names")
    if feature.get("_type") != "ClassLabel" or not isinstance(names, list):
        return None
    return tuple(map(str, names))


def _is_binary(kind):
    return str(kind) in ("binary", "large_binary", "binary_view")


def _is_image(field):
    kind = field.type
    is_struct = str(kind).startswith("struct<") and kind.get_field_index("bytes") >= 0
    return _is_binary(kind) or (is_struct and _is_binary(kind.field("bytes").type))


def _column(schema, given, flag, fits, usual, path):
    """The name of a column: the given one, a usual one, or the only one that fits."""
    names = [name for name in schema.names if fits(schema.field(name))]
    if flag == "path":
        usual = [name for name in usual if name in names]
    found = [name for name in usual if name in schema.names] if given is None else [given]
    if not found and len(names) == 1:
        found = names
    is_image = flag != "path" or (found and found[0] in names)
    if not found or found[0] not in schema.names or not is_image:
        raise ValueError(
            f"--{flag}-column ({flag}_column=) must be the column of "
            f"{'images' if flag == 'path' else 'labels'} in {path}: {', '.join(schema.names)}. "
            f"Received: {given}"
        )
    return found[0]


def _check_bytes(reader, file, leaf):
    """Raises ValueError if images are paths without bytes."""
    metadata = reader.metadata
    for group in range(metadata.num_row_groups):
        of_group = metadata.row_group(group)
        for number in range(of_group.num_columns):
            column = of_group.column(number)
            counts = column.statistics if column.path_in_schema == leaf else None
            if counts is not None and counts.has_null_count and counts.null_count:
                raise ValueError(
                    "Images must be in the Parquet file: write it with their bytes, as "
                    "datasets' push_to_hub and to_parquet do. "
                    f"Received: {file}, with {counts.null_count} images that are paths only"
                )


def _numbered(values, names, path):
    """The class names, and the labels of each part as `Examples.labels`."""
    several = any(isinstance(value, list) for part in values.values() for value in part)
    lists = {
        part: [value if isinstance(value, list) else [value] for value in found]
        for part, found in values.items()
    }
    if names is None:
        texts = {str(item) for part in lists.values() for items in part for item in items}
        names = tuple(sorted_classes(texts))
        numbers = {name: number for number, name in enumerate(names)}
        lists = {
            part: [[numbers[str(item)] for item in items] for items in found]
            for part, found in lists.items()
        }
    for part, found in lists.items():
        wrong = [item for items in found for item in items if item not in range(len(names))]
        if wrong:
            raise ValueError(
                f"Labels must be from 0 to {len(names) - 1}; a part without labels cannot be used: "
                f"give the file of another (parquet:FILE). Received: {wrong[0]} in {part} of {path}"
            )
    if several:
        return names, {part: multi_hot(found, len(names)) for part, found in lists.items()}
    return names, {
        part: np.array([items[0] for items in found], "int32") for part, found in lists.items()
    }


def _unique(names, part, parts):
    """The names, with a number where one occurs again, and the part where there are several."""
    counts = collections.Counter(names)
    prefix = f"{part}/" if len(parts) > 1 else ""
    return [
        f"{prefix}{name}" if counts[name] == 1 else f"{prefix}{place}/{name}"
        for place, name in enumerate(names)
    ]
