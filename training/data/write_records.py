"""Any labelled images as sharded TFRecord files: written whole or not at all, and checked."""

from __future__ import annotations

import hashlib
import os
import pathlib

import numpy as np
import tensorflow as tf

from keras_vit.files import atomic_folder, check_folder
from keras_vit.progress import progress_bar

from .examples import Examples, add_to_hash, untuned
from .records import CLASSES, IMAGE, LABEL, NAME, Shards, open_tfrecords, write_index
from .sources import Source

SHARD_MEBIBYTES = 128


def write_records(
    source: Source,
    folder: str | os.PathLike,
    *,
    seed: int = 0,
    shard_mebibytes: float = SHARD_MEBIBYTES,
    progress: bool = False,
) -> dict[str, Shards]:
    """Writes the splits of a source as `SPLIT-00000-of-00008.tfrecord` and so on.

    Images are copied as they are encoded, in an order drawn by the seed, so that each shard
    is a sample of all classes. The folder appears once everything is written, read back and
    found to be the same.

    Args:
        source: What `open_source` gives.
        folder: New or empty. It gets the shards, `classes.txt` and `index.npz`.
        seed: Decides the order.
        shard_mebibytes: Size at which a shard is closed.
        progress: Whether to show a line with the rate and the time left.

    Returns:
        Files, counts, labels and names of each split.

    Raises:
        ValueError: If the folder is not empty, or the size not positive.
        OSError: If the files cannot be written, or do not come back as written.
    """
    folder = pathlib.Path(folder)
    check_folder(folder)
    if shard_mebibytes <= 0:
        raise ValueError(
            f"A shard must have a positive size. Received: shard_mebibytes={shard_mebibytes}"
        )
    names = [name for examples in source.splits.values() for name in examples.names]
    # Of files, names that are the same wherever the data are.
    root = os.path.join(os.path.commonpath(names), "") if all(map(os.path.isabs, names)) else ""
    total = sum(map(len, source.splits.values()))
    with (
        atomic_folder(folder) as scratch,
        progress_bar(total, "write", disable=not progress) as bar,
    ):
        text = "".join(f"{name}\n" for name in source.class_names)
        (scratch / CLASSES).write_text(text, encoding="utf-8")
        written, digests = {}, {}
        for split, examples in source.splits.items():
            writer = _SplitWriter(scratch, split, shard_mebibytes * 2**20, root)
            written[split], digests[split] = writer.write(examples, seed, bar)
        write_index(scratch, written)
        _, splits = open_tfrecords(scratch)
        for split, examples in splits.items():
            if examples.content_hash() != digests[split]:
                raise OSError(
                    f"The files of {split} do not come back as written: is the disk good?"
                )
    return {
        split: Shards(
            tuple(str(folder / os.path.basename(path)) for path in shards.files),
            shards.counts,
            shards.labels,
            shards.names,
        )
        for split, shards in written.items()
    }


class _SplitWriter:
    def __init__(self, folder, split, shard_bytes, root):
        self._folder, self._split, self._shard_bytes = folder, split, shard_bytes
        self._root = root

    def write(self, examples: Examples, seed, bar) -> tuple[Shards, str]:
        """Returns the shards and the SHA-256 of all images and labels in them."""
        names = np.array([os.fsencode(name.removeprefix(self._root)) for name in examples.names])
        elements = examples.shuffled(seed).take(len(examples))
        elements = elements.map(
            lambda handle, epoch, index: (*examples.read(handle), index),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        ).prefetch(16)
        counts: list[int] = []
        order, labels = [], []
        digest, writer, size = hashlib.sha256(), None, 0.0
        try:
            for encoded, label, index in untuned(elements).as_numpy_iterator():
                if writer is None or size >= self._shard_bytes:
                    if writer is not None:
                        writer.close()
                    writer = tf.io.TFRecordWriter(str(self._path(len(counts))))
                    counts.append(0)
                    size = 0
                record = _example(encoded, int(label), names[index])
                writer.write(record)
                size += len(record)
                counts[-1] += 1
                add_to_hash(digest, encoded, label)
                order.append(index)
                labels.append(label)
                bar.update()
        finally:
            if writer is not None:
                writer.close()
        files = []
        for number in range(len(counts)):
            path = self._path(number, len(counts))
            self._path(number).rename(path)
            files.append(str(path))
        shards = Shards(tuple(files), np.array(counts), np.array(labels, "int32"), names[order])
        return shards, digest.hexdigest()

    def _path(self, number, total=None):
        # How many there will be is known at the end.
        of = "" if total is None else f"-of-{total:05d}"
        return self._folder / f"{self._split}-{number:05d}{of}.tfrecord"


def _example(encoded, label, name):
    features = {
        IMAGE: tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
        LABEL: tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        NAME: tf.train.Feature(bytes_list=tf.train.BytesList(value=[name])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
