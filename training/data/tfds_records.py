"""Labelled images of TensorFlow Datasets."""

from __future__ import annotations

import functools
import os
import pathlib
import socket
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from .examples import Examples, without_autotune
from .labels import label_array, multi_hot
from .record_examples import NotPrepared, RecordExamples, Records, read_tfrecords

_SECONDS = 10  # Until a host counts as not reachable.


def open_tfds(
    name: str, data_dir: str | os.PathLike | None, *, download: bool = True
) -> tuple[tuple[str, ...], dict[str, Examples]]:
    """Returns the class names and the labelled splits of a data set.

    It is downloaded and prepared if necessary.

    Args:
        name: Name in TensorFlow Datasets: `NAME`, `NAME:version`, `NAME/config`.
        data_dir: Folder of prepared data sets; by default TensorFlow Datasets' own.
        download: Whether a missing data set is downloaded and prepared.

    Raises:
        NotPrepared: If it is missing and may not be downloaded.
        ValueError: If it is unknown, cannot be prepared, or does not have one image and one
            label, or else one list of labels, per example.
    """
    try:
        builder = tfds.builder(name, data_dir=data_dir)
        prepare(builder, download=download)
    except NotPrepared:
        raise
    except Exception as error:  # Network, checksum and import errors among others.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(
            "The name after tfds: must be a data set of TensorFlow Datasets that is prepared in "
            f"data_dir or can be downloaded. Received: {name!r}, data_dir={data_dir}. {reason}"
        ) from error
    features = builder.info.features
    images = [key for key, value in features.items() if isinstance(value, tfds.features.Image)]
    labels = [key for key, value in features.items() if isinstance(value, tfds.features.ClassLabel)]
    # A list of classes counts where no feature is one class.
    lists = [key for key, value in features.items() if _is_list_of_classes(value)]
    image = _choice("image", images, name)
    label = _choice("label" if labels or not lists else "labels", labels or lists, name)
    splits: dict[str, Examples] = {}
    for split in ("train", "validation", "test"):
        if split in builder.info.splits and builder.info.splits[split].num_examples:
            records = TfdsRecords(builder, split, image, label)
            if records.has_labels():
                splits[split] = RecordExamples(records)
    return tuple(_class_label(features[label]).names), splits


def _is_list_of_classes(feature):
    return isinstance(getattr(feature, "feature", None), tfds.features.ClassLabel)


def _class_label(feature):
    """The feature of a class, alone or in a list."""
    return feature.feature if _is_list_of_classes(feature) else feature


def prepare(builder: Any, *, download: bool = True) -> None:
    """Downloads and prepares a data set, unless it is prepared.

    Args:
        builder: A `tfds.core.DatasetBuilder`.
        download: Whether it may be downloaded.

    Raises:
        NotPrepared: If it is missing and may not be downloaded.
    """
    if download or builder.is_prepared():
        if not builder.is_prepared():
            _check_network(builder)
        builder.download_and_prepare()
        return
    info = builder.info
    # A data set's description has its sizes, or its code has the sizes of the files to download.
    urls = sum(size for url in builder.url_infos.values() if (size := url.size))
    fetched, written = info.download_size or tfds.core.utils.Size(urls), info.dataset_size
    images = ", ".join(f"{split.num_examples:,} {name}" for name, split in info.splits.items())
    raise NotPrepared(
        f"The data set tfds:{info.full_name} is not prepared in {builder.data_dir}. A run would "
        f"download {fetched or 'an unknown number of bytes'} and write "
        f"{written or 'an unknown number of bytes'}" + (f" ({images} examples)" if images else "")
    )


def _check_network(builder):
    """Raises OSError where nothing was downloaded and no host can be reached.

    TensorFlow Datasets tries for minutes.
    """
    root = str(builder.data_dir).removesuffix(builder.info.full_name)
    downloads = pathlib.Path(root) / "downloads"
    address = urlsplit(next(iter(builder.url_infos), ""))
    if not address.hostname or getproxies() or any(downloads.glob("*")):
        return
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        socket.create_connection((address.hostname, port), timeout=_SECONDS).close()
    except OSError as error:
        raise OSError(f"{address.hostname} cannot be reached: {error.strerror or error}") from error


def _choice(wanted: str, keys: list[str], name: str) -> str:
    """Returns the key to use: the wanted one, or the only one."""
    if wanted in keys:
        return wanted
    if len(keys) != 1:
        raise ValueError(
            f"A data set must have one {wanted}, or one named {wanted!r}. "
            f"Received: {name}, with {keys or 'none'}"
        )
    return keys[0]


class TfdsRecords(Records):
    """One split of a TFDS builder.

    Args:
        builder: A prepared `tfds.core.DatasetBuilder`.
        split: The split's name.
        image: The key of its image.
        label: The key of its class, or of its list of classes.
    """

    def __init__(self, builder: Any, split: str, image: str, label: str):
        self._builder, self._split = builder, split
        self._image, self._label = image, label
        info = builder.info.splits[split]
        self.count = info.num_examples
        self.mean_bytes = max(1.0, info.num_bytes / max(1, info.num_examples))
        self._files = tfrecord_files(builder, split)

    def has_labels(self) -> bool:
        """Returns whether the labels are public; they are -1 otherwise."""
        first = next(self._read(f"{self._split}[:1]", self._label).as_numpy_iterator())
        return bool(np.all(first[0] >= 0))

    @property
    def labels(self) -> np.ndarray:
        return self._labels_and_names[0]

    @property
    def names(self) -> list[str]:
        return self._labels_and_names[1]

    @functools.cached_property
    def _labels_and_names(self) -> tuple[np.ndarray, list[str]]:
        """Labels and ids, read in one pass at first use."""
        elements = without_autotune(self._read(self._split, self._label)).as_numpy_iterator()
        labels, names = zip(*elements, strict=True)
        feature = self._builder.info.features[self._label]
        if _is_list_of_classes(feature):
            array = multi_hot(labels, _class_label(feature).num_classes)
        else:
            array = label_array(labels)
        return array, [name.decode() for name in names]

    def dataset(self, start: int, stop: int) -> tf.data.Dataset:
        if not self._files:
            found = self._read(f"{self._split}[{start}:{stop}]", self._image)
            return found.map(lambda image, _: image)
        # Same records, without the work of TFDS on each one: a quarter of a JPEG's time.
        lengths = self._builder.info.splits[self._split].shard_lengths
        return read_tfrecords(self._files, lengths, start, stop)

    def image(self, record: Any) -> tf.Tensor:
        if not self._files:
            return record
        features = tfds.features.FeaturesDict(
            {self._image: self._builder.info.features[self._image]}
        )
        decoders = {self._image: tfds.decode.SkipDecoding()}
        return features.deserialize_example(record, decoders=decoders)[self._image]

    def _read(self, split, key):
        """A feature of each record, images encoded, and the record's id; always in one order."""
        decoders = {key: tfds.decode.SkipDecoding()} if key == self._image else None
        elements = self._builder.as_dataset(
            split=split,
            shuffle_files=False,
            decoders=tfds.decode.PartialDecoding(
                {key: self._builder.info.features[key]}, decoders=decoders
            ),
            read_config=tfds.ReadConfig(
                add_tfds_id=True,
                try_autocache=False,
                interleave_cycle_length=1,  # File by file, in the order of slices.
            ),
        )
        return elements.map(lambda record: (record[key], record["tfds_id"]))


def tfrecord_files(builder, split):
    """Returns the TFRecord files of a prepared split; empty for another file format."""
    info = builder.info.splits[split]
    if builder.info.file_format != tfds.core.FileFormat.TFRECORD:
        return []
    files = [str(path) for path in info.filepaths]
    return files if files and all(map(tf.io.gfile.exists, files)) else []
