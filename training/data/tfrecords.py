"""Labelled images in sharded TFRecord files, read and written."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import pathlib

import numpy as np

from keras_vit.checkpoints.formats import load_arrays
from keras_vit.description import check_class_names
from keras_vit.images.transcoding import transcoded
from keras_vit.utils.files import CLASSES, atomic_folder, check_folder
from keras_vit.utils.progress import progress_bar

from . import lazy_tensorflow as tf
from .examples import Examples, Source, add_to_hash, without_autotune
from .labels import class_numbers, label_array
from .record_examples import RecordExamples, Records

# Features as in the ImageNet files of TensorFlow's model garden.
IMAGE, LABEL, NAME = "image/encoded", "image/class/label", "image/filename"
INDEX = "index.npz"
SHARD_MEBIBYTES = 128

_PARTS = ("files", "bytes", "counts", "labels", "names")  # Arrays of the index, for each split.


def open_tfrecords(folder: str | os.PathLike) -> tuple[tuple[str, ...], dict[str, Examples]]:
    """Returns the class names and the splits of a folder that `write_records` wrote.

    Raises:
        ValueError: If it is no such folder, or a file is missing, damaged or of another size than
            in the index.
    """
    folder = pathlib.Path(folder)
    path = folder / INDEX
    if not path.is_file():
        raise ValueError(
            f"TFRecord files must be in a folder that keras-vit records wrote, with {INDEX}. "
            f"Received: {folder}"
        )
    try:
        class_names = tuple((folder / CLASSES).read_text(encoding="utf-8").splitlines())
        check_class_names(class_names)
        stored = sum(file.stat().st_size for file in folder.iterdir())
        index = load_arrays(path, stored)
        splits: dict[str, Examples] = {}
        for split in dict.fromkeys(name.partition("/")[0] for name in index):
            arrays = [index[f"{split}/{part}"] for part in _PARTS]
            splits[split] = RecordExamples(_indexed(folder, len(class_names), *arrays))
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"The records in {folder} are damaged or incomplete: write them again. {error}"
        ) from error
    return class_names, splits


def _indexed(folder, num_classes, files, sizes, counts, labels, names):
    """The records of a split by the arrays of the index; raises ValueError if these do not fit."""
    paths = [os.path.join(folder, os.path.basename(name)) for name in files.tolist()]
    hot = labels.ndim == 2
    if not (
        len(paths) == len(sizes) == len(counts)
        and labels.shape == ((len(names), num_classes) if hot else (len(names),))
        and len(names) == counts.sum()
        and 0 <= labels.min(initial=0) <= labels.max(initial=0) < (2 if hot else num_classes)
    ):
        raise ValueError(f"The index has arrays of other images or classes than {num_classes}.")
    for file, size in zip(paths, sizes, strict=True):
        if os.path.getsize(file) != size:
            raise ValueError(f"{file} must have {size} bytes, as written.")
    return Records(paths, counts, int(sizes.sum()), _image, lambda: labels, lambda: _decoded(names))


def _image(record):
    return tf.io.parse_single_example(record, {IMAGE: tf.io.FixedLenFeature([], tf.string)})[IMAGE]


def _decoded(names):
    return [name.decode() for name in names.tolist()]


def write_records(
    source: Source,
    folder: str | os.PathLike,
    *,
    seed: int = 0,
    shard_mebibytes: float = SHARD_MEBIBYTES,
    progress: bool = False,
) -> dict[str, tuple[int, int]]:
    """Writes the splits of a source as `SPLIT-00000-of-00008.tfrecord` and so on.

    Encoded images are copied unchanged, except that all but JPEG and PNG become PNG. Their order
    is drawn by the seed, so that each shard is a sample of all classes. The folder appears
    after everything has been written, read back and compared.

    Args:
        source: The data, from `open_source`.
        folder: New or empty. It receives the shards, `classes.txt` and `index.npz`.
        seed: Decides the order.
        shard_mebibytes: Size at which a shard is closed.
        progress: Whether to show a line with the rate and the time left.

    Returns:
        Numbers of images and of files of each split.

    Raises:
        ValueError: If the folder is not empty, a class name is not one line of text, or the size
            not positive.
        OSError: If the files cannot be written, or differ when they are read back.
    """
    folder = pathlib.Path(folder)
    check_folder(folder)
    check_class_names(source.class_names)
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
        index: dict[str, np.ndarray] = {}
        digests = {}
        for split, examples in source.splits.items():
            names = np.array([os.fsencode(name.removeprefix(root)) for name in examples.names])
            limit = shard_mebibytes * 2**20
            arrays, digests[split] = _write_split(scratch, split, examples, names, seed, limit, bar)
            index |= {f"{split}/{part}": array for part, array in arrays.items()}
        # It saves `open_tfrecords` from scanning all files.
        np.savez_compressed(scratch / INDEX, **index)  # type: ignore[arg-type]
        _, splits = open_tfrecords(scratch)
        for split, examples in splits.items():
            if examples.content_hash() != digests[split]:
                raise OSError(
                    f"The files of {split} differ from what was written: is the disk damaged?"
                )
    return {split: (len(part), len(index[f"{split}/files"])) for split, part in splits.items()}


def _write_split(folder, split, examples, names, seed, shard_bytes, bar):
    """Writes the shards of a split; returns its part of the index, and the hash of its images."""
    elements = examples.shuffled(seed).take(len(examples))
    elements = elements.map(
        lambda handle, epoch, index: (*examples.read(handle), index),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    ).prefetch(16)
    shards: list[pathlib.Path] = []
    counts: list[int] = []
    order, labels = [], []
    digest, size = hashlib.sha256(), math.inf
    with contextlib.ExitStack() as open_file:
        for encoded, label, place in without_autotune(elements).as_numpy_iterator():
            if size >= shard_bytes:
                open_file.close()
                # The total, and with it the final name, is known at the end.
                shards.append(folder / f"{split}-{len(shards):05d}")
                counts.append(0)
                writer = open_file.enter_context(tf.io.TFRecordWriter(str(shards[-1])))
                size = 0
            encoded = transcoded(encoded, small=True)
            record = _example(encoded, class_numbers(label), names[place])
            writer.write(record)
            size += len(record)
            counts[-1] += 1
            add_to_hash(digest, encoded, label)
            order.append(place)
            labels.append(label)
            bar.update()
    files = [
        shard.rename(folder / f"{shard.name}-of-{len(shards):05d}.tfrecord") for shard in shards
    ]
    arrays = {
        "files": np.array([file.name for file in files]),
        "bytes": np.array([file.stat().st_size for file in files]),
        "counts": np.array(counts),
        "labels": label_array(labels),
        "names": names[order],
    }
    return arrays, digest.hexdigest()


def _example(encoded: bytes, labels: list[int], name: bytes) -> bytes:
    features = {
        IMAGE: tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
        LABEL: tf.train.Feature(int64_list=tf.train.Int64List(value=labels)),
        NAME: tf.train.Feature(bytes_list=tf.train.BytesList(value=[name])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
