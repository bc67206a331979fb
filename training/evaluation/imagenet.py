"""Accuracy on ImageNet, by the original labels or the re-assessed ones of ReaL.

Both need a classifier of the 1000 ImageNet classes. An image counts as correct if the top-1
prediction, or one of the top 5, is among its correct classes.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import importlib.resources
import os
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.images.listing import image_files
from keras_vit.preprocessing import Preprocessing, imagenet_classes
from keras_vit.reports.report import NamedFact, Report
from keras_vit.training.data import Examples, Source, evaluation_batches, open_source
from keras_vit.training.data.examples import multi_hot
from keras_vit.training.data.image_files import FileExamples
from keras_vit.training.data.labelled_files import describe_skipped
from keras_vit.training.evaluation.measures import Share
from keras_vit.training.evaluation.predictions import predictions
from keras_vit.training.evaluation.results import IMAGENET_PROTOCOLS, REAL

NUM_CLASSES = 1000
DATASET, SPLIT = "imagenet2012", "validation"  # In TensorFlow Datasets.

_NUM_VALIDATION = 50_000

_VALIDATION_NAME = re.compile(r"ILSVRC2012_val_(\d{8})")


@dataclasses.dataclass(frozen=True)
class ImageNetAccuracy:
    """Counts of correct predictions; `str` gives the text.

    Args:
        title: The test set.
        count: Images evaluated.
        left_out: Images without a correct class, which do not count.
        in_top_1: Images whose top-1 prediction is correct.
        in_top_5: Images with a correct class among the top 5.
        skipped: `(path, reason)` of images that could not be read.
    """

    title: str
    count: int
    left_out: int
    in_top_1: int
    in_top_5: int
    skipped: tuple[tuple[str, str], ...] = ()

    def report(self) -> Report:
        """Returns the report, of which `str` is the text."""
        images = f"{self.count} (each once), {self.left_out} without a label left out"
        facts = [NamedFact("test set", self.title), NamedFact("images", images)]
        for name, number in (("top-1", self.in_top_1), ("top-5", self.in_top_5)):
            share = Share(number / self.count, self.count)
            facts.append(NamedFact(name, f"{share}  {number} of {self.count}"))
        return Report(facts, notes=describe_skipped(self.skipped), numbers=self.to_json())

    def __str__(self) -> str:
        return str(self.report())

    def to_json(self) -> dict[str, Any]:
        """Returns the numbers as JSON values."""
        return {
            "images": self.count,
            "left_out": self.left_out,
            "correct": self.in_top_1,
            "top_1": self.in_top_1 / self.count,
            "top_5": self.in_top_5 / self.count,
            "skipped": [list(item) for item in self.skipped],
        }


def evaluate(
    model: keras.Model,
    protocol: str,
    data: str | os.PathLike | None = None,
    *,
    preprocessing: Preprocessing,
    data_dir: str | os.PathLike | None = None,
    batch_size: int = 32,
    progress: bool = False,
) -> ImageNetAccuracy:
    """Evaluates an ImageNet classifier by one of the protocols.

    Args:
        model: A model from images to scores `(B, 1000)`.
        protocol: A name of `IMAGENET_PROTOCOLS`.
        data: Images that are not in TFDS: a folder with a subfolder for each WordNet id; for
            ReaL any folder with the original file names.
        preprocessing: The model's preprocessing.
        data_dir: The folder of TFDS.
        batch_size: Images per batch; it changes no result.
        progress: Whether to show progress.

    Raises:
        ValueError: If the protocol is unknown, the model has other classes, or the data
            are missing or damaged.
    """
    if protocol not in IMAGENET_PROTOCOLS:
        raise ValueError(
            f"The protocol must be one of {', '.join(IMAGENET_PROTOCOLS)}. Received: {protocol!r}"
        )
    title = IMAGENET_PROTOCOLS[protocol]
    if model.output_shape[-1] != NUM_CLASSES:
        raise ValueError(
            f"{title} needs a classifier of the 1000 ImageNet classes. "
            f"Received: a model with outputs of shape {model.output_shape}"
        )
    examples, targets, left_out, skipped = _open_test_set(protocol, data, data_dir)
    batches = evaluation_batches(
        examples,
        preprocessing=preprocessing,
        batch_size=batch_size,
        as_pixels=getattr(model, "takes_pixels", False),
    )
    in_top_1, in_top_5 = count_all(model, batches, targets, progress=progress)
    return ImageNetAccuracy(title, len(targets), left_out, in_top_1, in_top_5, skipped)


def count_all(
    model: keras.Model, batches: Iterable[tuple], targets: np.ndarray, *, progress: bool = False
) -> tuple[int, int]:
    """Returns the number of images whose top-1, and whose top 5, have a correct class.

    Args:
        model: From images to scores `(B, K)`.
        batches: Tuples of images, in order.
        targets: bool `(N, K)`, the correct classes.
        progress: Whether to show progress.
    """
    done, in_top_1, in_top_5 = 0, 0, 0
    name = "evaluate" if progress else None
    for scores, _ in predictions(model, batches, len(targets), progress=name):
        first, five = count_correct(scores, targets[done : done + len(scores)])
        in_top_1, in_top_5, done = in_top_1 + first, in_top_5 + five, done + len(scores)
    return in_top_1, in_top_5


def _open_test_set(protocol, data, data_dir):
    """Returns the images of a protocol with their correct classes; see `evaluate`.

    They are the examples; the correct classes of each, bool `(N, 1000)`; the number of images
    without one, which are left out; and `(path, reason)` of images that could not be read.
    """
    is_real = protocol == REAL
    if is_real and data is not None and pathlib.Path(data).is_dir():
        # The file names give the labels; folders of classes are not needed.
        paths = image_files(data)
        source = Source((), {SPLIT: FileExamples(paths, np.zeros(len(paths)))})
    else:
        source = open_source(
            data or f"tfds:{DATASET}", data_dir=data_dir, holdout=0, follow_symlinks=True
        )
    parts = (source.splits.get(name) for name in (SPLIT, "test", "train"))
    examples: Examples | None = next(
        (part for part in parts if part is not None and len(part)), None
    )
    if examples is None:
        raise ValueError(f"{IMAGENET_PROTOCOLS[protocol]} must have images. Received: none")
    left_out = 0
    if is_real:
        is_tfds = data is None or str(data).startswith("tfds:")
        names = _tfds_file_names(data or DATASET, data_dir) if is_tfds else examples.names
        classes_of = real_labels()
        targets = multi_hot([classes_of[validation_index(name)] for name in names], NUM_CLASSES) > 0
        labelled = np.flatnonzero(targets.any(axis=1))
        left_out = len(examples) - len(labelled)
        examples, targets = examples.take(labelled), targets[labelled]
    else:
        classes = imagenet_indices(source.class_names)[examples.labels]
        targets = np.eye(NUM_CLASSES, dtype=bool)[classes]
    return examples, targets, left_out, tuple(source.skipped)


def count_correct(scores: np.ndarray, targets: np.ndarray) -> tuple[int, int]:
    """Returns the number of rows whose top-1, and whose top 5, have a correct class.

    Args:
        scores: `(B, K)`; ties go to the lower class index.
        targets: bool `(B, K)`, the correct classes.
    """
    scores = np.asarray(scores, np.float64)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    correct = np.take_along_axis(targets, order, axis=1)
    return int(correct[:, 0].sum()), int(correct.any(axis=1).sum())


@functools.cache
def real_labels() -> tuple[tuple[int, ...], ...]:
    """Returns the ReaL classes of each validation image, from number 1 on.

    From google-research/reassessed-imagenet. 3163 images have none.
    """
    file = importlib.resources.files(__package__).joinpath("imagenet_real_labels.txt.gz")
    lines = gzip.decompress(file.read_bytes()).decode().split("\n")[:-1]
    return tuple(tuple(map(int, line.split())) for line in lines)


def validation_index(name: str) -> int:
    """Returns the index of a validation image: 0 for "ILSVRC2012_val_00000001.JPEG".

    Args:
        name: The file name or a path.

    Raises:
        ValueError: If it is not the name of a validation image.
    """
    match = _VALIDATION_NAME.search(os.fspath(name))
    number = int(match[1]) if match else 0
    if not 1 <= number <= _NUM_VALIDATION:
        raise ValueError(
            "ReaL labels are found by the file name, ILSVRC2012_val_00000001.JPEG to "
            f"ILSVRC2012_val_00050000.JPEG. Received: {name}"
        )
    return number - 1


def imagenet_indices(class_names: Sequence[str]) -> np.ndarray:
    """Returns the ImageNet class index of each WordNet id.

    Raises:
        ValueError: If a name is not the WordNet id of an ImageNet class.
    """
    index_of = {wordnet_id: index for index, (wordnet_id, _) in enumerate(imagenet_classes())}
    unknown = [name for name in class_names if name not in index_of]
    if unknown:
        raise ValueError(
            "The classes must be WordNet ids of ImageNet, such as n01440764 (a folder for "
            f"each). Received: {', '.join(unknown[:3])}"
        )
    return np.array([index_of[name] for name in class_names])


def _tfds_file_names(
    dataset: str | os.PathLike | None, data_dir: str | os.PathLike | None
) -> list[str]:
    """The names of the validation files in reading order, which TFDS ids lack."""
    import tensorflow_datasets as tfds

    builder = tfds.builder(str(dataset).removeprefix("tfds:"), data_dir=data_dir)
    names = builder.as_dataset(
        split="validation",
        shuffle_files=False,
        decoders=tfds.decode.PartialDecoding({"file_name": True}),
        read_config=tfds.ReadConfig(try_autocache=False),
    )
    return [example["file_name"].decode() for example in names.as_numpy_iterator()]
