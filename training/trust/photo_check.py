"""The check of labelled photos: everything that `keras-vit check` finds, without its files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from keras_vit.description.tasks import MULTILABEL
from keras_vit.training.data import Examples
from keras_vit.training.data.labels import task_of
from keras_vit.training.evaluation.features import extract
from keras_vit.training.evaluation.intervals import wilson_interval
from keras_vit.training.evaluation.predictions import EvaluatedModel
from keras_vit.training.evaluation.ridge import Decomposition, one_hot
from keras_vit.utils.progress import progress_bar

from .copies import Copy, find_copies, joined_groups
from .learning_curve import LearningCurve, learning_curve, right_answers
from .odd_images import OddImage, find_odd_images
from .photo_facts import PhotoFacts, all_photo_facts
from .shortcuts import Shortcut, find_shortcuts
from .wrong_labels import LabelDoubts, doubts_of_classes, doubts_of_labels

L2_SHARES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)  # Regularisations, of the mean eigenvalue.


class Expected(NamedTuple):
    """What to expect from photos: accuracy of images that the map was fitted without.

    Args:
        accuracy: In [0, 1]; for multi-label data the share of right decisions.
        low: Lower end of the 95% interval by Wilson, for as many independent images as the groups
            are worth.
        high: Its upper end.
    """

    accuracy: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class PhotoCheck:
    """Everything that was found about labelled images.

    Args:
        class_names: The K names.
        names: The N images.
        parts: The part of the data that each image is in, "" for data without parts.
        targets: Whether each image has each class, uint8 `(N, K)`.
        multilabel: Whether an image may have any number of classes.
        features: float32 `(N, D)`.
        facts: Facts about each file.
        groups: Group of each image, int `(N,)`: given groups, joined by the copies.
        given_groups: Whether groups were given.
        expected: What to expect from these photos.
        doubts: For each class of multi-label data, else once: see `wrong_labels`.
        copies: Pairs of copies.
        shortcuts: All that were looked for.
        odd: Odd images.
        curve: Accuracy by the number of photos; None for too few.
        unreadable: `(path, reason)` of files that cannot be read.
    """

    class_names: tuple[str, ...]
    names: list[str]
    parts: list[str]
    targets: np.ndarray
    multilabel: bool
    features: np.ndarray
    facts: list[PhotoFacts]
    groups: np.ndarray
    given_groups: bool
    expected: Expected
    doubts: list[LabelDoubts]
    copies: list[Copy]
    shortcuts: list[Shortcut]
    odd: list[OddImage]
    curve: LearningCurve | None
    unreadable: tuple[tuple[str, str], ...]

    def label_text(self, number: int) -> str:
        """Returns the names of an image's classes."""
        return ";".join(self.class_names[k] for k in np.flatnonzero(self.targets[number]))

    def leaks(self) -> list[Copy]:
        """Returns the copies whose two images are in different parts of the data."""
        return [pair for pair in self.copies if self.parts[pair.first] != self.parts[pair.second]]

    def conflicts(self) -> list[Copy]:
        """Returns the copies, other than of features alone, whose labels differ."""
        return [
            pair
            for pair in self.copies
            if pair.kind != "alike"
            and (self.targets[pair.first] != self.targets[pair.second]).any()
        ]


def check_examples(
    model: EvaluatedModel,
    splits: Mapping[str, Examples],
    class_names: tuple[str, ...],
    *,
    groups: np.ndarray | None = None,
    feature: str = "pre_logits",
    batch_size: int = 32,
    cache: str | os.PathLike | None = None,
    unreadable: tuple[tuple[str, str], ...] = (),
    seed: int = 0,
    progress: bool = False,
) -> PhotoCheck:
    """Checks labelled images.

    Args:
        model: The model whose features are used, from `predictions.build_evaluated`.
        splits: The images by part.
        class_names: The K names.
        groups: Group of each image, in the order of the parts, `(N,)`.
        feature: One of `configs.FEATURES`.
        batch_size: Images in a batch.
        cache: Folder for computed features, or None; see `features.extract`.
        unreadable: `(path, reason)` of files that cannot be read.
        seed: Seed of permutations and parts.
        progress: Whether to show lines with the rate and the time left.

    Raises:
        ValueError: If there are fewer than ten images, or the model does not have the feature.
    """
    count = sum(map(len, splits.values()))
    if count < 10:
        raise ValueError(f"There must be at least 10 images to check. Received: {count}")
    found = [
        extract(
            model.model,
            examples,
            preprocessing=model.preprocessing,
            feature=feature,
            batch_size=batch_size,
            cache=cache,
            progress=progress,
        )
        for examples in splits.values()
    ]
    facts: list[PhotoFacts] = []
    with progress_bar(count, "files", disable=not progress) as bar:
        for examples in splits.values():
            for photo in all_photo_facts(image for image, _ in examples.encoded()):
                facts.append(photo)
                bar.update(1)
    return check_features(
        np.concatenate([part.values for part in found]),
        np.concatenate([examples.labels for examples in splits.values()]),
        facts,
        class_names=class_names,
        names=[name for examples in splits.values() for name in examples.names],
        parts=[
            part if len(splits) > 1 else ""
            for part, examples in splits.items()
            for _ in examples.names
        ],
        groups=groups,
        unreadable=unreadable,
        seed=seed,
    )


def check_features(
    features: np.ndarray,
    labels: np.ndarray,
    facts: list[PhotoFacts],
    *,
    class_names: tuple[str, ...],
    names: list[str],
    parts: list[str],
    groups: np.ndarray | None = None,
    unreadable: tuple[tuple[str, str], ...] = (),
    seed: int = 0,
) -> PhotoCheck:
    """Checks labelled images whose features are known; see `check_examples`.

    Args:
        features: `(N, D)`.
        labels: Class numbers `(N,)`, or multi-label zeros and ones `(N, K)`.
        facts: Facts about each file.
        class_names: The K names.
        names: The N images.
        parts: The part that each is in, "" for data without parts.
        groups: Group of each image, `(N,)`.
        unreadable: `(path, reason)` of files that cannot be read.
        seed: Seed of permutations and parts.
    """
    multilabel = task_of(labels) == MULTILABEL
    targets = labels if multilabel else one_hot(labels, len(class_names)).astype("uint8")
    copies = find_copies([photo.fingerprint for photo in facts], features)
    joined = joined_groups(len(names), copies, groups)
    if joined.max() == 0:
        raise ValueError("The images must be of two groups at least. Received: one group")
    decomposition = Decomposition(features)
    ridge = decomposition.ridge(targets, decomposition.l2_of(L2_SHARES), groups=joined)
    right = right_answers(ridge.left_out_predictions, targets, multilabel)
    if multilabel:
        doubts = doubts_of_labels(ridge.left_out_predictions, targets)
    else:
        doubts = [doubts_of_classes(ridge.left_out_predictions, labels)]
    return PhotoCheck(
        tuple(class_names),
        names,
        parts,
        targets,
        multilabel,
        features,
        facts,
        joined,
        groups is not None,
        expected_accuracy(right, joined),
        doubts,
        copies,
        find_shortcuts(facts, targets, joined, seed=seed),
        find_odd_images(facts, ridge.leverages),
        learning_curve(
            features, targets, right, joined, L2_SHARES, multilabel=multilabel, seed=seed
        ),
        unreadable,
    )


def expected_accuracy(right: np.ndarray, groups: np.ndarray) -> Expected:
    """Returns the mean of right answers with an interval that knows of groups.

    Args:
        right: Share of right answers for each image, `(N,)`.
        groups: Group of each image, int from 0 `(N,)`.
    """
    mean = float(right.mean())
    variance = float(np.square(np.bincount(groups, right - mean)).sum()) / len(right) ** 2
    alone = float(np.square(right - mean).sum()) / len(right) ** 2
    # As many independent images as have this variance; all alike leave it open.
    count = len(right) * min(1.0, alone / variance) if variance else float(groups.max() + 1)
    count = max(1, round(count))
    return Expected(mean, *wilson_interval(round(mean * count), count))
