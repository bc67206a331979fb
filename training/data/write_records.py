"""Writing labelled images as sharded TFRecord files."""

from __future__ import annotations

import hashlib
import os
import pathlib

import numpy as np
import tensorflow as tf

from keras_vit.files import atomic_folder, check_folder
from keras_vit.progress import ProgressBar, progress_bar

from .examples import Examples, add_to_hash, without_autotune
from .record_files import CLASSES, IMAGE, LABEL, NAME, Shards, open_tfrecords, write_index
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

    Encoded images are copied unchanged, in an order drawn by the seed, so that each shard is
    a sample of all classes. The folder appears after everything has been written, read back
    and compared.

    Args:
        source: The data, from `open_source`.
        folder: New or empty. It receives the shards, `classes.txt` and `index.npz`.
        seed: Decides the order.
        shard_mebibytes: Size at which a shard is closed.
        progress: Whether to show a line with the rate and the time left.

    Returns:
        Files, counts, labels and names of each split.

    Raises:
        ValueError: If the folder is not empty, or the size not positive.
        OSError: If the files cannot be written, or differ when they are read back.
    """
    folder = pathlib.Path(folder)
    check_folder(folder)
    if shard_mebibytes <= 0:
        raise ValueError(
            f"A shard must have a positive size. Received: shard_mebibytes={shard_mebibytes}"
        )
    all_names = [name for examples in source.splits.values() for name in examples.names]
    # Files are named relative to their common folder, so that moved data keep their names.
    is_files = all(map(os.path.isabs, all_names))
    root = os.path.join(os.path.commonpath(all_names), "") if is_files else ""
    total = sum(map(len, source.splits.values()))
    with (
        atomic_folder(folder) as scratch,
        progress_bar(total, "write", disable=not progress) as bar,
    ):
        text = "".join(f"{name}\n" for name in source.class_names)
        (scratch / CLASSES).write_text(text, encoding="utf-8")
        written, digests = {}, {}
        for split, examples in source.splits.items():
            names = np.array([os.fsencode(name.removeprefix(root)) for name in examples.names])
            written[split], digests[split] = _write_split(
                scratch,
                split,
                examples,
                names=names,
                seed=seed,
                shard_bytes=shard_mebibytes * 2**20,
                bar=bar,
            )
        write_index(scratch, written)
        _, splits = open_tfrecords(scratch)
        for split, examples in splits.items():
            if examples.content_hash() != digests[split]:
                raise OSError(
                    f"The files of {split} differ from what was written: is the disk damaged?"
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


def _write_split(
    folder: pathlib.Path,
    split: str,
    examples: Examples,
    *,
    names: np.ndarray,
    seed: int,
    shard_bytes: float,
    bar: ProgressBar,
) -> tuple[Shards, str]:
    """Writes the shards of a split.

    Args:
        folder: An existing folder.
        split: First part of the files' names.
        examples: The images, which are written in an order drawn by the seed.
        names: Names of the examples, bytes `(N,)`.
        seed: Decides the order.
        shard_bytes: Size at which a shard is closed.
        bar: Updated after every image.

    Returns:
        The shards, and the SHA-256 of all images and labels in them.
    """
    elements = examples.shuffled(seed).take(len(examples))
    elements = elements.map(
        lambda handle, epoch, index: (*examples.read(handle), index),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    ).prefetch(16)
    paths: list[pathlib.Path] = []
    counts: list[int] = []
    order, labels = [], []
    digest, writer, size = hashlib.sha256(), None, 0.0
    try:
        for encoded, label, index in without_autotune(elements).as_numpy_iterator():
            if writer is None or size >= shard_bytes:
                if writer is not None:
                    writer.close()
                # The total, and with it the final name, is known at the end.
                paths.append(folder / f"{split}-{len(paths):05d}.tfrecord")
                counts.append(0)
                writer, size = tf.io.TFRecordWriter(str(paths[-1])), 0
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
    for path in paths:
        final = path.with_name(f"{path.stem}-of-{len(paths):05d}.tfrecord")
        path.rename(final)
        files.append(str(final))
    shards = Shards(tuple(files), np.array(counts), np.array(labels, "int32"), names[order])
    return shards, digest.hexdigest()


def _example(encoded: bytes, label: int, name: bytes) -> bytes:
    features = {
        IMAGE: tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
        LABEL: tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        NAME: tf.train.Feature(bytes_list=tf.train.BytesList(value=[name])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
