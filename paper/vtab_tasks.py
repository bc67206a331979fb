"""The 19 tasks of VTAB-1k: a table of data sets, splits and label rules, and their image files.

Splits and rules are from google-research/task_adaptation, which defined the benchmark.
"""

from __future__ import annotations

import dataclasses
import operator
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_vit.utils.files import atomic_folder

GROUPS = ("Natural", "Specialized", "Structured")
NUM_TRAIN = 800
NUM_VALIDATION = 200


# A rule from an example to its class, a scalar tensor.
Label = Callable[[dict], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a TFDS split: its examples from `start` to before `stop`."""

    split: str
    start: int
    stop: int

    def __len__(self):
        return self.stop - self.start

    def __str__(self):
        return f"{self.split}[{self.start}:{self.stop}]"

    def first(self, count: int) -> Part:
        """Returns the first examples of the part."""
        return Part(self.split, self.start, min(self.stop, self.start + count))


@dataclasses.dataclass(frozen=True)
class VtabTask:
    """A task of VTAB-1k.

    Args:
        title: The column of the paper's Table 9.
        group: One of `GROUPS`.
        dataset: The TFDS name, with its config.
        version: The major version of the published results. In other versions the first
            1000 examples may be other ones.
        num_classes: The count of classes, K.
        train: All training examples; VTAB-1k takes the first 800.
        validation: All validation examples; VTAB-1k takes the first 200.
        test: All test examples; VTAB-1k takes them all.
        label: Gives the class of an example, a scalar tensor.
        image_scale: Factor that brings the pixels to [0, 255].
        manual: Names and origin of files that TFDS cannot download; or None.
    """

    title: str
    group: str
    dataset: str
    version: str
    num_classes: int
    train: Part
    validation: Part
    test: Part
    label: Label = operator.itemgetter("label")
    image_scale: int = 1
    manual: str | None = None


def bins(name: str, num_values: int, num_bins: int) -> Label:
    """Returns the rule that groups neighbouring values of a field.

    A bin has `num_values / num_bins` values, not necessarily a whole number: with 40
    orientations in 16 bins, bins have two or three.
    """

    def label(example):
        return tf.cast(example[name], tf.int64) * num_bins // num_values

    return label


def count_objects(example: dict) -> tf.Tensor:
    """Returns the number of objects in a CLEVR image, 3 to 10, minus 3."""
    return tf.shape(example["objects"]["pixel_coords"], tf.int64)[0] - 3


def closest_object_distance(example: dict) -> tf.Tensor:
    """Returns the distance class of the object nearest to CLEVR's camera."""
    distances = example["objects"]["pixel_coords"][:, 2]
    return _threshold_class(tf.reduce_min(distances), (0, 8, 8.5, 9, 9.5, 10, 100))


def closest_vehicle_distance(example: dict) -> tf.Tensor:
    """Returns the distance class, in metres, of the nearest car, van or truck of KITTI.

    The classes are: up to 8 m, up to 20 m, further, and no vehicle.
    """
    objects = example["objects"]
    depths = tf.boolean_mask(objects["location"][:, 2], objects["type"] < 3)
    nearest = tf.reduce_min(tf.concat([depths, [1000.0]], axis=0))
    return _threshold_class(nearest, (-100, 8, 20, 999))


def _threshold_class(distance, thresholds):
    """Returns the index of the last threshold below the distance."""
    below = tf.constant(thresholds, tf.float32) < distance
    return tf.reduce_max(tf.where(below))


TASKS = {
    "caltech101": VtabTask(
        *("Caltech101", "Natural", "caltech101", "3", 102),  # One class is the background.
        *(Part("train", 0, 2754), Part("train", 2754, 3060), Part("test", 0, 6084)),
    ),
    "cifar100": VtabTask(
        *("CIFAR-100", "Natural", "cifar100", "3", 100),
        *(Part("train", 0, 45000), Part("train", 45000, 50000), Part("test", 0, 10000)),
    ),
    "dtd": VtabTask(
        *("DTD", "Natural", "dtd", "3", 47),
        *(Part("train", 0, 1880), Part("validation", 0, 1880), Part("test", 0, 1880)),
    ),
    "oxford_flowers102": VtabTask(
        *("Flowers102", "Natural", "oxford_flowers102", "2", 102),
        *(Part("train", 0, 1020), Part("validation", 0, 1020), Part("test", 0, 6149)),
    ),
    "oxford_iiit_pet": VtabTask(
        *("Pets", "Natural", "oxford_iiit_pet", "3", 37),
        *(Part("train", 0, 2944), Part("train", 2944, 3680), Part("test", 0, 3669)),
    ),
    "sun397": VtabTask(
        *("Sun397", "Natural", "sun397/tfds", "4", 397),
        *(Part("train", 0, 76128), Part("validation", 0, 10875), Part("test", 0, 21750)),
    ),
    "svhn": VtabTask(
        *("SVHN", "Natural", "svhn_cropped", "3", 10),
        *(Part("train", 0, 65931), Part("train", 65931, 73257), Part("test", 0, 26032)),
    ),
    "patch_camelyon": VtabTask(
        *("Camelyon", "Specialized", "patch_camelyon", "2", 2),
        *(Part("train", 0, 262144), Part("validation", 0, 32768), Part("test", 0, 32768)),
    ),
    "eurosat": VtabTask(
        *("EuroSAT", "Specialized", "eurosat/rgb", "2", 10),
        *(Part("train", 0, 16200), Part("train", 16200, 21600), Part("train", 21600, 27000)),
    ),
    "resisc45": VtabTask(
        *("Resisc45", "Specialized", "resisc45", "3", 45),
        *(Part("train", 0, 18900), Part("train", 18900, 25200), Part("train", 25200, 31500)),
        manual="NWPU-RESISC45.rar from https://gcheng-nwpu.github.io/#Datasets",
    ),
    "diabetic_retinopathy": VtabTask(
        *("Retinopathy", "Specialized", "diabetic_retinopathy_detection/btgraham-300", "3", 5),
        *(Part("train", 0, 35126), Part("validation", 0, 10906), Part("test", 0, 42670)),
        manual="the images and labels of "
        "https://www.kaggle.com/c/diabetic-retinopathy-detection/data, unpacked to the "
        "folders sample, train and test and the file trainLabels.csv",
    ),
    "clevr_count": VtabTask(
        *("Clevr-Count", "Structured", "clevr", "3", 8),
        # CLEVR's own test split has no labels.
        *(Part("train", 0, 63000), Part("train", 63000, 70000), Part("validation", 0, 15000)),
        label=count_objects,
    ),
    "clevr_distance": VtabTask(
        *("Clevr-Dist", "Structured", "clevr", "3", 6),
        *(Part("train", 0, 63000), Part("train", 63000, 70000), Part("validation", 0, 15000)),
        label=closest_object_distance,
    ),
    "dmlab": VtabTask(
        *("DMLab", "Structured", "dmlab", "2", 6),
        *(Part("train", 0, 65550), Part("validation", 0, 22628), Part("test", 0, 22735)),
    ),
    "dsprites_location": VtabTask(
        *("dSpr-Loc", "Structured", "dsprites", "2", 16),
        *(Part("train", 0, 589824), Part("train", 589824, 663552), Part("train", 663552, 737280)),
        label=bins("label_x_position", 32, 16),
        image_scale=255,  # The pixels are 0 and 1.
    ),
    "dsprites_orientation": VtabTask(
        *("dSpr-Ori", "Structured", "dsprites", "2", 16),
        *(Part("train", 0, 589824), Part("train", 589824, 663552), Part("train", 663552, 737280)),
        label=bins("label_orientation", 40, 16),
        image_scale=255,
    ),
    "kitti_distance": VtabTask(
        *("KITTI-Dist", "Structured", "kitti", "3", 4),
        *(Part("train", 0, 6347), Part("validation", 0, 423), Part("test", 0, 711)),
        label=closest_vehicle_distance,
    ),
    "smallnorb_azimuth": VtabTask(
        *("sNORB-Azim", "Structured", "smallnorb", "2", 18),
        *(Part("train", 0, 24300), Part("test", 0, 12150), Part("test", 12150, 24300)),
        label=operator.itemgetter("label_azimuth"),
    ),
    "smallnorb_elevation": VtabTask(
        *("sNORB-Elev", "Structured", "smallnorb", "2", 9),
        *(Part("train", 0, 24300), Part("test", 0, 12150), Part("test", 12150, 24300)),
        label=operator.itemgetter("label_elevation"),
    ),
}


def resolve(names: Sequence[str] = ()) -> dict[str, VtabTask]:
    """Returns tasks by name or group, in the paper's order; all by default.

    Raises:
        ValueError: If a name is unknown.
    """
    if not names:
        return dict(TASKS)
    chosen: dict[str, VtabTask] = {}
    for name in names:
        found = {
            key: task for key, task in TASKS.items() if name.lower() in (key, task.group.lower())
        }
        if not found:
            raise ValueError(
                f"A VTAB task must be one of {', '.join(TASKS)}, or a group: "
                f"{', '.join(GROUPS)}. Received: {name!r}"
            )
        chosen |= found
    return {key: task for key, task in TASKS.items() if key in chosen}


def write_task(
    name: str,
    folder: str | os.PathLike,
    data_dir: str | os.PathLike | None = None,
    *,
    tune: bool = False,
) -> None:
    """Writes the images of a task as two folders of TFRecords, `train` and `test`.

    The images have the bytes of the data set. They are two data sets, since a class may have no
    image among the 1000 for training.

    Args:
        name: One of `TASKS`.
        folder: The folder to write, complete or not at all.
        data_dir: The folder of prepared data sets; by default TFDS's own. Missing data are
            downloaded.
        tune: Whether to train on 800 images and test on the 200 validation images, to choose
            settings. Otherwise all 1000 train, and the test images test.

    Raises:
        ValueError: If the data cannot be downloaded, or the splits have other sizes than VTAB's.
    """
    task = TASKS[name]
    builder = open_builder(task, data_dir)
    train, validation = task.train.first(NUM_TRAIN), task.validation.first(NUM_VALIDATION)
    parts = {"train": (train,), "test": (validation,)}
    if not tune:
        parts = {"train": (train, validation), "test": (task.test,)}
    with atomic_folder(folder, marker="train") as partial:
        for split, of_split in parts.items():
            (partial / split).mkdir()
            names = "".join(f"{number}\n" for number in range(task.num_classes))
            (partial / split / "classes.txt").write_text(names, encoding="utf-8")
            path, labels = partial / split / f"{split}.tfrecord", []
            with tf.io.TFRecordWriter(str(path)) as writer:
                for image, label in read(builder, task, of_split):
                    writer.write(record(image, label))
                    labels.append(label)
            index = {
                "files": [path.name],
                "bytes": [path.stat().st_size],
                "counts": [len(labels)],
                "labels": np.array(labels, "int32"),
                "names": [f"{number}".encode() for number in range(len(labels))],
            }
            arrays: Any = {f"{split}/{name}": array for name, array in index.items()}
            np.savez(partial / split / "index.npz", **arrays)


def record(image: bytes, label: int) -> bytes:
    """Returns an image and its class number as `tfrecords:FOLDER` reads them."""
    features = {
        "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString()


def read(builder: Any, task: VtabTask, parts: Sequence[Part]) -> Any:
    """Returns an iterator over the encoded images and class numbers of parts, in their order."""
    features = builder.info.features
    images = [key for key, value in features.items() if isinstance(value, tfds.features.Image)]
    examples = builder.as_dataset(
        split="+".join(map(str, parts)),
        shuffle_files=False,
        decoders={key: tfds.decode.SkipDecoding() for key in images},
        read_config=tfds.ReadConfig(try_autocache=False),
    )

    def element(example):
        image = example["image"]
        if task.image_scale != 1:
            pixels = tf.io.decode_png(image, channels=1)
            image = tf.io.encode_png(pixels * tf.cast(task.image_scale, tf.uint8))
        return image, tf.cast(task.label(example), tf.int32)

    return examples.map(element).as_numpy_iterator()


def open_builder(task: VtabTask, data_dir: str | os.PathLike | None = None) -> Any:
    """Returns the prepared TFDS builder of a task, of the published major version if possible.

    Raises:
        ValueError: If the data can be neither found nor prepared, or have other sizes than VTAB's:
            the slices are absolute.
    """
    try:
        try:
            builder = tfds.builder(f"{task.dataset}:{task.version}.*.*", data_dir=data_dir)
        except (tfds.core.DatasetNotFoundError, AssertionError):
            builder = tfds.builder(task.dataset, data_dir=data_dir)
        builder.download_and_prepare()
    except Exception as error:  # Any type: networks, checksums, import errors.
        if task.manual:
            where = os.path.join(
                os.fspath(data_dir or tfds.core.constants.DATA_DIR), "downloads", "manual"
            )
            raise ValueError(
                f"The data of {task.title} must be downloaded by hand: get {task.manual}, and "
                f"put it in {os.path.expanduser(where)}"
            ) from error
        reasons = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(
            f"The data of {task.title}, tfds:{task.dataset}, must be prepared in data_dir or "
            f"downloadable. Received: data_dir={data_dir}. {reasons[0]}"
        ) from error
    parts = (task.train, task.validation, task.test)
    for split in {part.split for part in parts}:
        wanted = max(part.stop for part in parts if part.split == split)
        splits = builder.info.splits
        found = splits[split].num_examples if split in splits else 0
        if found != wanted:
            raise ValueError(
                f"{task.title} must have {wanted} images in its split {split}. Received: {found} "
                f"in {builder.info.full_name}"
            )
    return builder
