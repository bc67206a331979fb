"""VTAB-1k's tasks as labelled images."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.training.data.examples import Examples
from keras_vit.training.data.records import RecordExamples, SplitRecords

from .vtab_tasks import NUM_TRAIN, NUM_VALIDATION, TASKS, Part, Task, resolve


class TaskRecords(SplitRecords):
    """Reads parts of a data set, with the labels of a task.

    Args:
        builder: A prepared `tfds.core.DatasetBuilder`.
        task: The task.
        parts: What to read, one after another.
    """

    def __init__(self, builder: Any, task: Task, *parts: Part):
        self._builder, self._task = builder, task
        self._split = "+".join(map(str, parts))
        self.count = sum(map(len, parts))
        info = builder.info.splits[parts[0].split]
        self.mean_bytes = max(1.0, info.num_bytes / max(1, info.num_examples))

    def dataset(self, start, stop):
        elements = self._read(self._split, with_ids=False)
        return elements.skip(start).take(stop - start)

    def read(self, handle):
        return handle

    def _read(self, split, with_ids):
        import tensorflow_datasets as tfds

        features = self._builder.info.features
        images = [key for key, value in features.items() if isinstance(value, tfds.features.Image)]
        examples = self._builder.as_dataset(
            split=split,
            shuffle_files=False,
            decoders={key: tfds.decode.SkipDecoding() for key in images},
            read_config=tfds.ReadConfig(add_tfds_id=with_ids, try_autocache=False),
        )

        def element(example):
            image = example["image"]
            if self._task.image_scale != 1:
                pixels = tf.io.decode_png(image, channels=1)
                image = tf.io.encode_png(pixels * tf.cast(self._task.image_scale, tf.uint8))
            values = image, tf.cast(self._task.label(example), tf.int32)
            return (*values, example["tfds_id"]) if with_ids else values

        return examples.map(element, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def open_vtab(
    name: str, data_dir: str | os.PathLike | None = None, *, tune: bool = False
) -> tuple[tuple[str, ...], dict[str, Examples]]:
    """Returns the class names and the splits of a task.

    Args:
        name: One of `vtab_tasks.TASKS`.
        data_dir: Where prepared data sets are; by default where TFDS puts them. What is
            not there is downloaded.
        tune: Whether to train on 800 images and to test on the 200 for validation, to
            choose settings; else training has all 1000, and the test images are the test's.

    Raises:
        ValueError: If the task is unknown, its data are not there and cannot be
            downloaded, or have other splits than VTAB's.
    """
    (task,) = resolve([name]).values() if name in TASKS else _unknown(name)
    builder = open_builder(task, data_dir)
    _check_sizes(builder, task)
    train, validation = task.train.first(NUM_TRAIN), task.validation.first(NUM_VALIDATION)
    parts: dict[str, tuple[Part, ...]]
    if tune:
        parts = {"train": (train,), "test": (validation,)}
    else:
        parts = {"train": (train, validation), "test": (task.test,)}
    splits: dict[str, Examples] = {}
    for split, of_split in parts.items():
        records = TaskRecords(builder, task, *of_split)
        splits[split] = RecordExamples(records, np.arange(records.count))
    return _class_names(builder, task), splits


def open_builder(task: Task, data_dir: str | os.PathLike | None = None) -> Any:
    """Returns the prepared TFDS builder of a task, the published major version if it is there.

    Raises:
        ValueError: If it is not prepared and cannot be.
    """
    import tensorflow_datasets as tfds

    try:
        try:
            builder = tfds.builder(f"{task.dataset}:{task.version}.*.*", data_dir=data_dir)
        except (tfds.core.DatasetNotFoundError, AssertionError):
            builder = tfds.builder(task.dataset, data_dir=data_dir)
        builder.download_and_prepare()
    except Exception as error:  # Of any type: networks, checksums, import errors.
        if task.manual:
            where = os.path.join(
                os.fspath(data_dir or tfds.core.constants.DATA_DIR), "downloads", "manual"
            )
            raise ValueError(
                f"The data of {task.title} must be downloaded by hand: get {task.manual}, and "
                f"put it in {os.path.expanduser(where)}"
            ) from error
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(
            f"The data of {task.title}, tfds:{task.dataset}, must be prepared in data_dir or "
            f"downloadable. Received: data_dir={data_dir}. {said[0]}"
        ) from error
    return builder


def is_published_version(builder: Any, task: Task) -> bool:
    """Returns whether the data are of the version that the published splits are of.

    In another one the same slices may hold other images.
    """
    return str(builder.version).partition(".")[0] == task.version


def _check_sizes(builder, task):
    """The slices are absolute: of another size they would not be VTAB's."""
    for split in {part.split for part in (task.train, task.validation, task.test)}:
        wanted = max(p.stop for p in (task.train, task.validation, task.test) if p.split == split)
        there = builder.info.splits[split].num_examples if split in builder.info.splits else 0
        if there != wanted:
            raise ValueError(
                f"{task.title} must have {wanted} images in its split {split}. Received: {there} "
                f"in {builder.info.full_name}"
            )


def _class_names(builder, task):
    features = builder.info.features
    if "label" in features and len(set(features["label"].names)) == task.num_classes:
        return tuple(features["label"].names)
    return tuple(map(str, range(task.num_classes)))


def _unknown(name):
    raise ValueError(f"A VTAB task must be one of {', '.join(TASKS)}. Received: {name!r}")
