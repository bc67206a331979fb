"""Findings among labelled photos: doubted labels, copies, photos of one color, shortcuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_vit.description.class_labels import MULTILABEL
from keras_vit.prediction import highest
from keras_vit.training.data import Source
from keras_vit.training.data.copies import ALIKE, Copy
from keras_vit.training.data.examples import task_of

from .check_report import COPIES, ONE_COLOR, Finding
from .shortcuts import PhotoFacts, Shortcut
from .wrong_labels import LabelDoubts

_NEIGHBOURS = 3  # Nearest images, in the given and in the proposed class.
_TYPICAL = 6  # Images of a shortcut.


class Photos(NamedTuple):
    """The photos of all parts of the data, one after the other.

    Args:
        names: The N names.
        labels: Class numbers, int `(N,)`.
        parts: The part that each is in; "" for data of one part.
        class_names: The names of the classes.
    """

    names: list[str]
    labels: np.ndarray
    parts: list[str]
    class_names: tuple[str, ...]

    @property
    def label_names(self) -> list[str]:
        """The name of each photo's class."""
        return [self.class_names[label] for label in self.labels]


def photos_of(source: Source) -> Photos:
    """Returns the photos of a source.

    Args:
        source: The photos in parts.

    Raises:
        ValueError: If they are fewer than ten or multi-label.
    """
    splits = source.splits
    names = [name for examples in splits.values() for name in examples.names]
    if len(names) < 10:
        raise ValueError(f"There must be at least 10 images to check. Received: {len(names)}")
    labels = np.concatenate([examples.labels for examples in splits.values()])
    if task_of(labels) == MULTILABEL:
        raise ValueError("Photos to check must have one class each. Received: multi-label data")
    parts = [part if len(splits) > 1 else "" for part in splits for _ in splits[part].names]
    return Photos(names, labels, parts, tuple(source.class_names))


def findings_of(
    photos: Photos,
    features: np.ndarray,
    doubts: LabelDoubts | None,
    facts: Sequence[PhotoFacts],
    pairs: Sequence[Copy],
    shortcuts: Sequence[Shortcut],
) -> list[Finding]:
    """Returns the findings about photos, doubted labels first.

    Args:
        photos: The N photos.
        features: Their features, `(N, D)`, by which the nearest photos are shown.
        doubts: The doubts of their labels; None where the features do not tell the classes apart.
        facts: What is known of each photo without a model.
        pairs: The copies among them.
        shortcuts: The shortcuts among them, of which significant and strong ones are findings.
    """
    return [
        *([] if doubts is None else _doubted_labels(photos, doubts, features)),
        *_of_one_color(photos, facts),
        *_copies(photos, pairs),
        *_shortcuts(shortcuts),
    ]


def _doubted_labels(photos, doubts, features):
    """Returns the doubted labels with the nearest images of the given and the proposed class."""
    centred = features - features.mean(axis=0)
    unit = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    findings = []
    for number in doubts.ranked().tolist():
        near = []
        for label in (photos.labels[number], doubts.proposed[number]):
            is_other = np.arange(len(unit)) != number
            members = np.flatnonzero((photos.labels == label) & is_other)
            nearest = members[highest(unit[members] @ unit[number], _NEIGHBOURS)]
            near.append((photos.class_names[label], nearest.tolist()))
        (given, _), (proposed, _) = near
        findings.append(
            Finding(
                "wrong labels",
                number,
                title=f"{given}, or {proposed}?",
                detail=f"score {doubts.score[number]:.2f}",
                score=float(doubts.score[number]),
                near=near,
                to=proposed,
            )
        )
    return findings


def _of_one_color(photos, facts):
    """Returns the photos that show nothing."""
    return [
        Finding(ONE_COLOR, number, "one color", f"labeled {photos.label_names[number]}")
        for number, photo in enumerate(facts)
        if photo.is_one_color
    ]


def _copies(photos, pairs):
    """Returns the pairs of copies, leaks and conflicts first."""
    labels, parts = photos.label_names, photos.parts
    described = [
        f"{label} in {part}" if part else label for label, part in zip(labels, parts, strict=True)
    ]
    findings = []
    for first, second, how in pairs:
        kind = "copies"
        if parts[first] != parts[second]:
            kind = "leaks"
        elif how != ALIKE and labels[first] != labels[second]:
            kind = "conflicts"
        detail = f"{described[first]} and {described[second]}"
        if described[first] == described[second]:
            detail = f"two of {described[first]}"
        findings.append(Finding(kind, second, how, detail, other=first))
    return sorted(findings, key=lambda row: COPIES.index(row.kind))


def _shortcuts(shortcuts):
    """Returns the shortcuts that are significant and strong."""
    return [
        Finding(
            "shortcuts",
            int(shortcut.images[0]),
            title=shortcut.name,
            detail=f"AUROC {shortcut.auroc:.3f}, p {shortcut.adjusted:.3g}",
            score=shortcut.auroc,
            near=[("most typical", shortcut.images[1:_TYPICAL].tolist())],
        )
        for shortcut in shortcuts
        if shortcut.is_strong
    ]
