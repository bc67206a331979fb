"""Labelled images in parts, with the things that they show."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from keras_vit.description.class_labels import MULTILABEL
from keras_vit.utils.safe_text import first_names

from .examples import Examples, class_counts, task_of


class Things(NamedTuple):
    """The thing that each photo shows.

    Args:
        numbers: The number of the thing of each image by its name.
        shown: How many things they are, human-readable.
        place: Whether each is in one part, human-readable; "" before there are parts, and where
            each image shows another.
        limits: What was not looked for, human-readable; "" for nothing.
        notes: Lines about things that were split.
        pixels: The `pixel_fingerprint` of each image, uint64 `(N,)`, as the search has read it;
            None where another process searched.
    """

    numbers: Mapping[str, int]
    shown: str
    place: str = ""
    limits: str = ""
    notes: tuple[str, ...] = ()
    pixels: np.ndarray | None = None

    @property
    def line(self) -> str:
        """How many things they are, where they are, and what was not looked for."""
        return self.shown + self.place + self.limits

    @property
    def are_single(self) -> bool:
        """Whether each photo shows another thing."""
        return len({*self.numbers.values()}) == len(self.numbers)

    def placed(self, splits: Mapping[str, Examples]) -> Things:
        """Returns these things with a text on whether each is in one part.

        Args:
            splits: The images by the name of their part.
        """
        if self.are_single:
            return self
        parts = [np.unique(self.of(examples)) for examples in splits.values()]
        several = int((np.unique(np.concatenate(parts), return_counts=True)[1] > 1).sum())
        place = ", kept together"
        if several:
            place = f", {several:,} of them in several parts: given parts and groups are not moved"
        return self._replace(place=place)

    def with_others(self, names: Iterable[str], others: Things | None) -> Things:
        """Returns these things and the things of other images, such as replayed ones.

        Args:
            names: The other images.
            others: Their things; None: each image shows another.
        """
        numbers, first = dict(self.numbers), max(self.numbers.values()) + 1
        for place, name in enumerate(names):
            own = place if others is None else others.numbers[name]
            numbers.setdefault(name, first + own)
        return self._replace(numbers=numbers)

    def of(self, examples: Examples) -> np.ndarray:
        """Returns the thing of each of some images, int64 `(N,)`."""
        return np.array([self.numbers[name] for name in examples.names], "int64")


@dataclasses.dataclass(frozen=True)
class Source:
    """Labelled images in splits.

    Args:
        class_names: The classes in the order of their numbers.
        splits: "train" and "test", "validation" where the data have all three, and "calibration"
            where they have it. A single validation or test split is "test", whatever its name in
            the data.
        skipped: Files that cannot be decoded and are left out, each with the reason.
        notes: Lines about the data for the user.
        groups: The group of each image by its name; None where images are not grouped.
        things: The things that the images show; None where they were not looked for.
        class_notes: Lines about the classes, which `class_line` has.
        bit_depth: Bits of the values of 16-bit images; None where these are not known, or none.
    """

    class_names: tuple[str, ...]
    splits: dict[str, Examples]
    skipped: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    notes: tuple[str, ...] = ()
    groups: Mapping[str, int] | None = None
    things: Things | None = None
    class_notes: tuple[str, ...] = ()
    bit_depth: int | None = None

    @property
    def task(self) -> str:
        """The task of the labels: "multiclass" or "multilabel"."""
        return task_of(next(iter(self.splits.values())).labels)

    @property
    def class_line(self) -> str:
        """The first classes with the number of their images in all parts, and what is to say."""
        parts = [class_counts(part.labels, len(self.class_names)) for part in self.splits.values()]
        counts = np.sum(parts, axis=0).tolist()
        images = zip(self.class_names, counts, strict=True)
        names = first_names([f"{name} {count:,}" for name, count in images if count])
        return "; ".join([names, *self.class_notes])

    def with_classes(self, class_names: Sequence[str]) -> Source:
        """Returns the images with more classes, or the classes in another order.

        Args:
            class_names: The names, which include the classes of the images.
        """
        number_of = {name: number for number, name in enumerate(class_names)}
        numbers = np.array([number_of[name] for name in self.class_names], "int32")
        count = len(class_names) if self.task == MULTILABEL else None
        splits = {
            split: examples.relabelled(numbers, count) for split, examples in self.splits.items()
        }
        return dataclasses.replace(self, class_names=tuple(class_names), splits=splits)
