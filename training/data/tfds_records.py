"""Labelled images of TensorFlow Datasets."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf
import tensorflow_datasets as tfds

from .examples import Examples, without_autotune
from .labels import label_array, multi_hot
from .record_examples import READ_BYTES, NotPrepared, RecordExamples, Records


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
        if download:
            builder.download_and_prepare()
    except Exception as error:  # Network, checksum and import errors among others.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(
            "The name after tfds: must be a data set of TensorFlow Datasets that is prepared in "
            f"data_dir or can be downloaded. Received: {name!r}, data_dir={data_dir}. {reason}"
        ) from error
    if not builder.is_prepared():
        # A data set's code has the sizes of the files to download.
        size = sum(size for url in builder.url_infos.values() if (size := url.size))
        fetched = builder.info.download_size or tfds.core.utils.Size(size)
        raise NotPrepared(
            f"The data set tfds:{builder.info.full_name} is not prepared in {builder.data_dir}. A "
            f"run would download {fetched or 'an unknown number of bytes'}"
        )
    features = builder.info.features
    images = [key for key, value in features.items() if isinstance(value, tfds.features.Image)]
    labels = [key for key, value in features.items() if isinstance(value, tfds.features.ClassLabel)]
    # A list of classes counts where no feature is one class.
    lists = [key for key, value in features.items() if _is_list_of_classes(value)]
    image = _choice("image", images, features, name)
    label = _choice("label" if labels or not lists else "labels", labels or lists, features, name)
    splits: dict[str, Examples] = {}
    for split in ("train", "validation", "test"):
        if split in builder.info.splits and builder.info.splits[split].num_examples:
            records = _records(builder, split, image, label)
            if _labels(builder, label, records.dataset(0, 1)).max() >= 0:  # Else not published.
                splits[split] = RecordExamples(records)
    if not splits:
        raise ValueError(
            "A data set of TensorFlow Datasets must have images with labels in train, validation "
            f"or test. Received: {name}, with {', '.join(builder.info.splits) or 'no splits'}"
        )
    return tuple(_class_label(features[label]).names), splits


def _is_list_of_classes(feature):
    return isinstance(getattr(feature, "feature", None), tfds.features.ClassLabel)


def _class_label(feature):
    """The feature of a class, alone or in a list."""
    return feature.feature if _is_list_of_classes(feature) else feature


def _choice(wanted: str, keys: list[str], features: Any, name: str) -> str:
    """Returns the key to use: the wanted one, or the only one."""
    if wanted in keys:
        return wanted
    if len(keys) != 1:
        kind = "Image" if wanted == "image" else "ClassLabel, which numbers and texts are not"
        known = [f"{key} ({type(feature).__name__})" for key, feature in features.items()]
        raise ValueError(
            f"A data set must have one {wanted} (a feature {kind}), or one named {wanted!r}. "
            f"Received: {name}, with {', '.join(keys or known)}"
        )
    return keys[0]


def _records(builder, split, image, label):
    """The files of a prepared split, read without the work of TFDS on each record."""
    info = builder.info.splits[split]
    files = [os.fspath(path) for path in info.filepaths]
    if builder.info.file_format != tfds.core.FileFormat.TFRECORD:
        raise ValueError(
            "A data set of TensorFlow Datasets must be prepared as TFRecord files. "
            f"Received: {builder.info.full_name}, as {builder.info.file_format.value}"
        )
    features = tfds.features.FeaturesDict({image: builder.info.features[image]})
    decoders = {image: tfds.decode.SkipDecoding()}

    def names():  # As TFDS gives them with `add_tfds_id`.
        counts = zip(files, info.shard_lengths, strict=True)
        return [f"{os.path.basename(file)}__{n}" for file, count in counts for n in range(count)]

    return Records(
        files,
        info.shard_lengths,
        info.num_bytes,
        lambda record: features.deserialize_example(record, decoders=decoders)[image],
        lambda: _labels(builder, label, tf.data.TFRecordDataset(files, "", READ_BYTES)),
        names,
    )


def _labels(builder, label, records):
    """The labels of a dataset of records, as `Examples.labels`."""
    feature = builder.info.features[label]
    features = tfds.features.FeaturesDict({label: feature})
    found = records.map(lambda record: features.deserialize_example(record)[label])
    labels = list(without_autotune(found).as_numpy_iterator())
    if _is_list_of_classes(feature):
        return multi_hot(labels, _class_label(feature).num_classes)
    return label_array(labels)
