"""Labelled images in TFRecord files, ours and TensorFlow Datasets', which are read in sequence."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from keras_vit.checkpoints.formats import load_arrays
from keras_vit.description import check_class_names
from keras_vit.images.transcoding import transcoded
from keras_vit.utils.files import CLASSES, atomic_folder, check_folder
from keras_vit.utils.progress import progress_bar

from .examples import (
    Examples,
    Handle,
    KeyedExamples,
    class_numbers,
    label_array,
    multi_hot,
    random_key,
    tf,
    tfds,
    unconverted,
    without_autotune,
)
from .labelled_images import Source
from .parts import SPLITS
from .spec import INDEX, TFDS
from .split_record import PARTS
from .tables import Reading

# Features as in the ImageNet files of TensorFlow's model garden.
IMAGE, LABEL, NAME = "image/encoded", "image/class/label", "image/filename"
SHARD_MEBIBYTES = 128

_PARTS = ("files", "bytes", "counts", "labels", "names")  # Arrays of the index, for each split.
_BIT_DEPTH = "bit_depth"  # In the index, of data with 16-bit images.
BUFFER_BYTES = 512 * 2**20  # Shuffle buffer of encoded images.
READ_BYTES = 4 * 2**20  # Read buffer of a file.


class NotPrepared(ValueError):
    """Data or weights would have to be downloaded first; the message names them."""


@dataclasses.dataclass(frozen=True)
class Records:
    """The TFRecord files of one split.

    Args:
        files: Paths, in order.
        counts: Number of records in each file, int `(F,)`.
        num_bytes: Approximate size of all files.
        image: Function from a record to its encoded image (graph operations).
        name: Function from the place of a record to its name.
    """

    files: Sequence[str]
    counts: np.ndarray
    num_bytes: int
    image: Callable[[tf.Tensor], tf.Tensor]
    name: Callable[[int], str]

    def dataset(self, start: int, stop: int) -> tf.data.Dataset:
        """Returns records `start` to `stop - 1`; other files are not opened."""
        ends = np.cumsum(self.counts)
        first, last = np.searchsorted(ends, [start, max(start, stop - 1)], side="right")
        before = int(ends[first] - self.counts[first])
        records = tf.data.TFRecordDataset(self.files[first : last + 1], "", READ_BYTES)
        return records.skip(start - before).take(stop - start)


class RecordExamples(KeyedExamples):
    """Some examples of one split in record files; their keys are places in the split.

    Records have no random access, so an epoch is shuffled by a buffer of up to 512 MiB of
    encoded images. A smaller split is shuffled completely.

    Args:
        records: The split.
        labels: Labels of all records, as `Examples.labels`.
        chosen: Ascending places in the split of these examples; None: all.
    """

    def __init__(self, records: Records, labels: np.ndarray, chosen: np.ndarray | None = None):
        chosen = np.arange(len(labels)) if chosen is None else chosen
        super().__init__(chosen, labels[chosen])
        self._records = records

    @property
    def names(self) -> list[str]:
        return [self._records.name(index) for index in self.keys.tolist()]

    def ordered(self) -> tf.data.Dataset:
        return self._elements(tf.constant(0, tf.int64))

    def shuffled_epoch(self, seed: int, epoch: tf.Tensor, done: tf.Tensor) -> tf.data.Dataset:
        elements = self._elements(epoch)
        mean_bytes = max(1.0, self._records.num_bytes / max(1, self._records.counts.sum()))
        size = max(1, min(len(self), int(BUFFER_BYTES / mean_bytes)))
        first, second = tf.unstack(random_key(seed, epoch))
        spec = elements.element_spec
        parts = tf.nest.flatten(spec)
        # Not `Dataset.shuffle`: it keeps the first epoch's seed and depends on TensorFlow's
        # global seed.
        shuffled = tf.raw_ops.ShuffleDataset(
            input_dataset=tf.data.experimental.to_variant(elements),
            buffer_size=size,
            seed=first,
            seed2=second,
            output_types=[part.dtype for part in parts],
            output_shapes=[part.shape for part in parts],
            reshuffle_each_iteration=False,
        )
        elements = tf.data.experimental.from_variant(shuffled, spec)
        return elements.skip(done)

    def fingerprints(self) -> None:
        return None  # All bytes of the files would have to be read.

    def pixel_fingerprints(self) -> None:
        return None

    def read(self, handle: Handle) -> tuple[tf.Tensor, tf.Tensor]:
        record, label = handle
        return self._records.image(record), label

    def _elements(self, epoch):
        """Returns `(handle, epoch, index)`, in order.

        Records before the first and after the last example are not read.
        """
        start, stop = (self.keys[0], self.keys[-1] + 1) if len(self) else (0, 0)
        # Built outside of any graph: a TFDS builder creates its data set in Python.
        with tf.init_scope():
            records = self._records.dataset(int(start), int(stop))
            is_chosen = np.isin(np.arange(start, stop), self.keys)
            if not is_chosen.all():
                chosen = tf.data.Dataset.from_tensor_slices(is_chosen)
                records = tf.data.Dataset.zip(records, chosen)
                records = records.filter(unconverted(lambda record, is_chosen: is_chosen))
                records = records.map(unconverted(lambda record, is_chosen: record))
            labels = tf.data.Dataset.from_tensor_slices(self.labels)
            handles = tf.data.Dataset.zip(records, labels)
        indices = tf.data.Dataset.range(len(self))
        epochs = tf.data.Dataset.from_tensors(epoch).repeat()
        return tf.data.Dataset.zip(handles, epochs, indices)


def open_tfrecords(
    folder: str | os.PathLike, reading: Reading
) -> tuple[tuple[str, ...], dict[str, Examples]]:
    """Returns the class names and the splits of a folder that `write_records` wrote.

    Args:
        folder: The folder.
        reading: It receives the bit depth of the images.

    Raises:
        ValueError: If it is no such folder, or a file is missing, damaged or of another size than
            in the index.
    """
    folder = pathlib.Path(folder)
    path = folder / INDEX
    if not path.is_file():
        raise ValueError(
            f"A folder of TFRecord files must be one that keras-vit records wrote, with {INDEX}. "
            f"Received: {folder}"
        )
    try:
        class_names = tuple((folder / CLASSES).read_text(encoding="utf-8").splitlines())
        check_class_names(class_names)
        stored = sum(file.stat().st_size for file in folder.iterdir())
        index = load_arrays(path, stored)
        bit_depth = index.pop(_BIT_DEPTH, None)
        reading.bit_depth = None if bit_depth is None else int(bit_depth)
        splits: dict[str, Examples] = {}
        for split in dict.fromkeys(name.partition("/")[0] for name in index):
            arrays = [index[f"{split}/{part}"] for part in _PARTS]
            splits[split] = _indexed(folder, len(class_names), *arrays)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"The records in {folder} are damaged or incomplete: write them again. {error}"
        ) from error
    return class_names, splits


def _indexed(folder, num_classes, files, sizes, counts, labels, names):
    """A split by the arrays of the index; raises ValueError if these do not fit."""
    paths = [os.path.join(folder, os.path.basename(name)) for name in files.tolist()]
    is_multilabel = labels.ndim == 2  # Zeros and ones by class, else the class.
    last = 1 if is_multilabel else num_classes - 1
    shape = (num_classes,) if is_multilabel else ()
    fits = labels.shape[1:] == shape and labels.dtype.kind in "iu"
    fits = fits and labels.min(initial=0) >= 0 and labels.max(initial=0) <= last
    if not (fits and len(labels) == len(names) == counts.sum()):
        raise ValueError(
            f"The index must have a label of the {num_classes} classes for each image. Received: "
            f"{labels.dtype} of shape {labels.shape}, {len(names)} names, counts {counts.sum()}"
        )
    for file, size in zip(paths, sizes, strict=True):
        if os.path.getsize(file) != size:
            raise ValueError(f"{file} must have {size} bytes, as written.")
    records = Records(paths, counts, int(sizes.sum()), _image, lambda index: names[index].decode())
    return RecordExamples(records, labels)


def _image(record):
    return tf.io.parse_single_example(record, {IMAGE: tf.io.FixedLenFeature([], tf.string)})[IMAGE]


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
    after everything has been written. Each record has a checksum, which reading checks.

    Args:
        source: The data, from `open_source`.
        folder: New or empty. It receives the shards, `classes.txt` and `index.npz`.
        seed: Decides the order.
        shard_mebibytes: Size at which a shard is closed.
        progress: Whether to show a line with the rate and the time left.

    Returns:
        Numbers of images and of files of each split.

    Raises:
        ValueError: If the folder is not empty, or a class name is not one line of text.
        OSError: If the files cannot be written.
    """
    folder = pathlib.Path(folder)
    check_folder(folder)
    check_class_names(source.class_names)
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
        if source.bit_depth is not None:
            index[_BIT_DEPTH] = np.array(source.bit_depth)
        for split, examples in source.splits.items():
            names = np.array([os.fsencode(name.removeprefix(root)) for name in examples.names])
            limit = shard_mebibytes * 2**20
            arrays = _write_split(scratch, split, examples, names, seed, limit, bar)
            index |= {f"{split}/{part}": array for part, array in arrays.items()}
        # It saves `open_tfrecords` from scanning all files.
        np.savez_compressed(scratch / INDEX, **index)  # type: ignore[arg-type]
    return {
        split: (len(part), len(index[f"{split}/files"])) for split, part in source.splits.items()
    }


def _write_split(folder, split, examples, names, seed, shard_bytes, bar):
    """Writes the shards of a split; returns its part of the index."""
    elements = examples.shuffled(seed).take(len(examples))
    elements = elements.map(
        unconverted(lambda handle, epoch, index: (*examples.read(handle), index)),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    ).prefetch(16)
    shards: list[pathlib.Path] = []
    counts: list[int] = []
    order, labels = [], []
    size = math.inf
    with contextlib.ExitStack() as open_file:
        for encoded, label, index in without_autotune(elements).as_numpy_iterator():
            if size >= shard_bytes:
                open_file.close()
                # The total, and with it the final name, is known at the end.
                shards.append(folder / f"{split}-{len(shards):05d}")
                counts.append(0)
                writer = open_file.enter_context(tf.io.TFRecordWriter(str(shards[-1])))
                size = 0
            record = _example(transcoded(encoded, small=True), class_numbers(label), names[index])
            writer.write(record)
            size += len(record)
            counts[-1] += 1
            order.append(index)
            labels.append(label)
            bar.update()
    files = [
        shard.rename(folder / f"{shard.name}-of-{len(shards):05d}.tfrecord") for shard in shards
    ]
    return {
        "files": np.array([file.name for file in files]),
        "bytes": np.array([file.stat().st_size for file in files]),
        "counts": np.array(counts),
        "labels": label_array(labels),
        "names": names[order],
    }


def _example(encoded: bytes, labels: list[int], name: bytes) -> bytes:
    features = {
        IMAGE: tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
        LABEL: tf.train.Feature(int64_list=tf.train.Int64List(value=labels)),
        NAME: tf.train.Feature(bytes_list=tf.train.BytesList(value=[name])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


# TensorFlow Datasets


def open_tfds(reading: Reading) -> tuple[tuple[str, ...], dict[str, Examples]]:
    """Returns the class names and the labelled splits of a data set.

    It is downloaded and prepared if necessary.

    Args:
        reading: The data of its `DataSpec` are `tfds:NAME`, `tfds:NAME:version` or
            `tfds:NAME/config`; its `data_dir` is the folder of prepared data sets, by default
            TensorFlow Datasets' own. It receives a line about each split, and about images, that
            are left out.

    Raises:
        NotPrepared: If it is missing and may not be downloaded.
        ValueError: If it is unknown, cannot be prepared, or does not have one image and one
            label, or else one list of labels, per example.
    """
    name, notes = reading.spec.data.removeprefix(TFDS), reading.notes
    builder = _prepared(name, reading.spec.data_dir, reading.download)
    features = builder.info.features
    images = [key for key, value in features.items() if isinstance(value, tfds.features.Image)]
    labels = [key for key, value in features.items() if isinstance(value, tfds.features.ClassLabel)]
    # A list of classes counts where no feature is one class.
    lists = [key for key, value in features.items() if _is_list_of_classes(value)]
    image = _choice("image", images, features, name)
    label = _choice("label" if labels or not lists else "labels", labels or lists, features, name)
    splits: dict[str, Examples] = {}
    # Names of parts before other words for them.
    for split, info in sorted(builder.info.splits.items(), key=lambda item: item[0] not in PARTS):
        if (part := SPLITS.get(split)) is None or part in splits:
            parts = f"the parts are {', '.join(PARTS)}, each once"
            notes.append(f"left out the split {split} of {info.num_examples:,} images: {parts}")
        elif info.num_examples:
            records = _records(builder, split, image)
            numbers, has_label = _labels(builder, label, records)
            if not has_label.all():
                without = f"{np.sum(~has_label):,} of {len(numbers):,} images of the split {split}"
                notes.append(f"left out {without}: no label, which is the number -1")
            if has_label.any():
                splits[part] = RecordExamples(records, numbers, np.flatnonzero(has_label))
    if not splits:
        raise ValueError(
            "A data set of TensorFlow Datasets must have images with labels in splits called "
            f"{', '.join(PARTS)}. Received: {name}, with "
            f"{', '.join(builder.info.splits) or 'no splits'}{''.join(f'; {n}' for n in notes)}"
        )
    classes = features[label].feature if label in lists else features[label]
    return tuple(classes.names), {part: splits[part] for part in PARTS if part in splits}


def _prepared(name, data_dir, download):
    """The builder of a data set whose files are there."""
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
    return builder


def _is_list_of_classes(feature):
    return isinstance(getattr(feature, "feature", None), tfds.features.ClassLabel)


def _choice(usual_key, keys, features, name):
    """The key to use: the usual one, or the only one."""
    if usual_key not in keys and len(keys) != 1:
        kind = "Image" if usual_key == "image" else "ClassLabel, which numbers and texts are not"
        present = [f"{key} ({type(feature).__name__})" for key, feature in features.items()]
        raise ValueError(
            f"A data set must have one {usual_key} (a feature {kind}), or one named "
            f"{usual_key!r}. Received: {name}, with {', '.join(keys or present)}"
        )
    return usual_key if usual_key in keys else keys[0]


def _records(builder, split, image):
    """The files of a prepared split, read without the work of TFDS on each record."""
    info = builder.info.splits[split]
    features = tfds.features.FeaturesDict({image: builder.info.features[image]})
    decoders = {image: tfds.decode.SkipDecoding()}
    files, counts = [os.fspath(path) for path in info.filepaths], np.array(info.shard_lengths)
    ends = np.cumsum(counts)

    def name(place):  # As TFDS gives it with `add_tfds_id`.
        shard = int(np.searchsorted(ends, place, side="right"))
        return f"{os.path.basename(files[shard])}__{place - ends[shard] + counts[shard]}"

    return Records(
        files,
        counts,
        info.num_bytes,
        lambda record: features.deserialize_example(record, decoders=decoders)[image],
        name,
    )


def _labels(builder, label, records):
    """The labels of all records, as `Examples.labels`, and which have one, bool `(N,)`."""
    feature = builder.info.features[label]
    features = tfds.features.FeaturesDict({label: feature})
    elements = records.dataset(0, int(records.counts.sum()))
    elements = elements.map(unconverted(lambda record: features.deserialize_example(record)[label]))
    labels = list(without_autotune(elements).as_numpy_iterator())
    if not _is_list_of_classes(feature):
        return label_array(labels), np.asarray(labels) >= 0
    # Without a label; an empty list says that none of the classes is in the image.
    without = [len(of_image) > 0 and max(of_image) < 0 for of_image in labels]
    lists = [[number for number in of_image if number >= 0] for of_image in labels]
    return multi_hot(lists, feature.feature.num_classes), ~np.array(without)
