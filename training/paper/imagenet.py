"""ImageNet and the test sets made for it: ReaL, V2, A, R and ObjectNet.

All take a classifier of the 1000 ImageNet classes and count an image as right if the
likeliest class, or one of the five likeliest, is among those that are right for it.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import gzip
import importlib.resources
import os
import pathlib
import re
from collections.abc import Iterable, Sequence

import keras
import numpy as np

from keras_vit.classifier import image_files
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import Source, evaluation_batches, open_source
from keras_vit.training.data.image_files import FileExamples
from keras_vit.training.evaluation.predictions import predictions
from keras_vit.training.evaluation.protocols import IMAGENET_PROTOCOLS

from .objectnet import open_objectnet

NUM_CLASSES = 1000
_NUM_VALIDATION = 50_000

_VALIDATION_NAME = re.compile(r"ILSVRC2012_val_(\d{8})")


@dataclasses.dataclass(frozen=True)
class Hits:
    """How many images were right.

    Args:
        title: The test set.
        count: Images evaluated.
        left_out: Images without a class that could be right.
        in_top_1: Images whose likeliest class was right.
        in_top_5: Images with a right class among the five likeliest.
        skipped: `(path, reason)` of images that could not be read.
    """

    title: str
    count: int
    left_out: int
    in_top_1: int
    in_top_5: int
    skipped: tuple[tuple[str, str], ...] = ()

    @property
    def top_1(self) -> float:
        """Share of images whose likeliest class was right."""
        return self.in_top_1 / self.count

    @property
    def top_5(self) -> float:
        """Share of images with a right class among the five likeliest."""
        return self.in_top_5 / self.count

    def __str__(self) -> str:
        lines = [
            f"{self.title}",
            f"images  {self.count} (each once), {self.left_out} without a label left out",
            f"top-1   {self.top_1:.4f}  ({self.in_top_1} of {self.count})",
            f"top-5   {self.top_5:.4f}  ({self.in_top_5} of {self.count})",
        ]
        lines += [f"skipped {path}: {reason}" for path, reason in self.skipped]
        return "\n".join(lines)

    def to_json(self) -> dict:
        """Returns the numbers as JSON can hold them."""
        return {
            "images": self.count,
            "left_out": self.left_out,
            "correct": self.in_top_1,
            "top_1": self.top_1,
            "top_5": self.top_5,
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
) -> Hits:
    """Evaluates an ImageNet classifier by one of the protocols.

    Args:
        model: From images to scores `(B, 1000)`.
        protocol: A name of `IMAGENET_PROTOCOLS`.
        data: Where the images are, if not in TFDS: a folder with a folder for each WordNet
            id; for ReaL any folder, where the files keep their names; for ObjectNet its own
            unpacked folder.
        preprocessing: How an image becomes the model's input.
        data_dir: The folder of TFDS.
        batch_size: Images that the model takes at once; changes no number.
        progress: Whether to show a line with the rate and the time left.

    Raises:
        ValueError: If the protocol is unknown, the model has other classes, or the data
            are not there or not as they should be.
    """
    if protocol not in IMAGENET_PROTOCOLS:
        raise ValueError(
            f"The protocol must be one of {', '.join(IMAGENET_PROTOCOLS)}. Received: {protocol!r}"
        )
    plan = IMAGENET_PROTOCOLS[protocol]
    if model.output_shape[-1] != NUM_CLASSES:
        raise ValueError(
            f"{plan.title} needs a classifier of the 1000 ImageNet classes. "
            f"Received: a model with outputs of shape {model.output_shape}"
        )
    if plan.dataset is None:
        if data is None:
            raise ValueError(
                "ObjectNet is not in TFDS: download objectnet-1.0.zip from "
                "https://objectnet.dev, unpack it and give the folder objectnet-1.0 (--data)."
            )
        source = open_objectnet(data)
        batches = source.batches(preprocessing=preprocessing, batch_size=batch_size)
        return _count(model, plan, batches, source.targets(), source.left_out, progress=progress)
    if plan.real_labels and data is not None and pathlib.Path(data).is_dir():
        # The labels go by the files' names, so that the classes' folders are not needed.
        paths = image_files(data)
        source = Source((), {plan.split: FileExamples(paths, np.zeros(len(paths)))})
    else:
        source = open_source(data or f"tfds:{plan.dataset}", data_dir=data_dir, holdout=0)
    examples = _split(source, plan)
    left_out, among = 0, None
    if plan.real_labels:
        is_tfds = data is None or str(data).startswith("tfds:")
        names = _tfds_file_names(data or plan.dataset, data_dir) if is_tfds else examples.names
        targets = _one_hot(real_labels(), [validation_index(name) for name in names])
        labelled = np.flatnonzero(targets.any(axis=1))
        left_out = len(examples) - len(labelled)
        examples, targets = examples.take(labelled), targets[labelled]
    else:
        classes = imagenet_indices(source.class_names)[examples.labels]
        targets = np.eye(NUM_CLASSES, dtype=bool)[classes]
        among = np.unique(classes) if plan.only_its_classes else None
    return _count(
        model,
        plan,
        evaluation_batches(examples, preprocessing=preprocessing, batch_size=batch_size)
        if len(examples)
        else (),
        targets,
        left_out,
        among=among,
        skipped=tuple(source.skipped),
        progress=progress,
    )


def count_hits(scores, targets, among=None) -> tuple[int, int]:
    """Returns how many rows are right by the likeliest class, and by the five likeliest.

    Args:
        scores: `(B, K)`; equal ones are ordered by class.
        targets: bool `(B, K)`, the classes that are right.
        among: Class indices to choose from; None allows all.
    """
    scores = np.asarray(scores, np.float64)
    if among is not None:
        masked = np.full_like(scores, -np.inf)
        masked[:, among] = scores[:, among]
        scores = masked
    order = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    right = np.take_along_axis(targets, order, axis=1)
    return int(right[:, 0].sum()), int(right.any(axis=1).sum())


@functools.cache
def real_labels() -> tuple[tuple[int, ...], ...]:
    """Returns the ReaL classes of each validation image; the first is number 1.

    From google-research/reassessed-imagenet. 3163 images have none.
    """
    file = importlib.resources.files(__package__).joinpath("imagenet_real_labels.txt.gz")
    lines = gzip.decompress(file.read_bytes()).decode().split("\n")[:-1]
    return tuple(tuple(map(int, line.split())) for line in lines)


def validation_index(name: str) -> int:
    """Returns 0 of "ILSVRC2012_val_00000001.JPEG", in any folder.

    Raises:
        ValueError: If the name is not that of a validation image.
    """
    found = _VALIDATION_NAME.search(os.fspath(name))
    number = int(found[1]) if found else 0
    if not 1 <= number <= _NUM_VALIDATION:
        raise ValueError(
            "ReaL labels are found by the file's name, ILSVRC2012_val_00000001.JPEG to "
            f"ILSVRC2012_val_00050000.JPEG. Received: {name}"
        )
    return number - 1


def imagenet_indices(class_names: Sequence[str]) -> np.ndarray:
    """Returns the ImageNet class index of each WordNet id.

    Raises:
        ValueError: If a name is no WordNet id of an ImageNet class.
    """
    known = _wordnet_ids()
    unknown = [name for name in class_names if name not in known]
    if unknown:
        raise ValueError(
            "The classes must be WordNet ids of ImageNet, such as n01440764 (a folder for "
            f"each). Received: {', '.join(unknown[:3])}"
        )
    return np.array([known[name] for name in class_names])


@functools.cache
def _wordnet_ids():
    import keras_vit

    path = pathlib.Path(keras_vit.__file__).with_name("imagenet_classes.csv")
    with open(path, newline="", encoding="utf-8") as file:
        return {row["wordnet_id"]: int(row["index"]) for row in csv.DictReader(file)}


def _split(source, plan):
    for name in (plan.split, "validation", "test", "train"):
        if name in source.splits and len(source.splits[name]):
            return source.splits[name]
    raise ValueError(f"{plan.title} must have images. Received: none")


def _tfds_file_names(dataset, data_dir):
    """The names of the validation files in reading order; the ids do not hold them."""
    import tensorflow_datasets as tfds

    builder = tfds.builder(str(dataset).removeprefix("tfds:"), data_dir=data_dir)
    names = builder.as_dataset(
        split="validation",
        shuffle_files=False,
        decoders=tfds.decode.PartialDecoding({"file_name": True}),
        read_config=tfds.ReadConfig(try_autocache=False),
    )
    return [example["file_name"].decode() for example in names.as_numpy_iterator()]


def _one_hot(labels: Sequence[Sequence[int]], indices: Iterable[int]) -> np.ndarray:
    indices = list(indices)
    targets = np.zeros((len(indices), NUM_CLASSES), bool)
    for row, index in enumerate(indices):
        targets[row, list(labels[index])] = True
    return targets


def _count(model, plan, batches, targets, left_out, *, among=None, skipped=(), progress=False):
    if not len(targets):
        raise ValueError(f"{plan.title} must have images with labels. Received: none")
    done, in_top_1, in_top_5 = 0, 0, 0
    for scores, _ in predictions(
        model, batches, len(targets), progress="evaluate" if progress else None
    ):
        first, five = count_hits(scores, targets[done : done + len(scores)], among)
        in_top_1, in_top_5, done = in_top_1 + first, in_top_5 + five, done + len(scores)
    return Hits(plan.title, done, left_out, in_top_1, in_top_5, tuple(skipped))
