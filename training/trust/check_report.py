"""What `check_photos` found: the summary, and the levels of `--strict`."""

from __future__ import annotations

import dataclasses
import pathlib
from collections import Counter

import numpy as np

from keras_vit.training.data.sources import describe_skipped
from keras_vit.utils.safe_text import for_line

from .copies import Copy
from .shortcuts import Shortcut
from .wrong_labels import LabelDoubts

MAX_NOISE = 0.01  # Share of wrong labels.
FIRST = 50  # Labels, of which as many are expected to be wrong as the summary says.


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """The findings about labelled photos; `str` gives the summary.

    Args:
        class_names: The K names.
        names: The N images.
        parts: The part of the data that each image is in, "" for data without parts.
        targets: Whether each image has each class, uint8 `(N, K)`.
        multilabel: Whether an image may have any number of classes.
        features: float32 `(N, D)`.
        groups: Group of each image, int `(N,)`: given groups, joined by the copies.
        expected: Accuracy of images that the linear map was fitted without (for multi-label data
            the share of right decisions), and its 95% interval; see `expected_accuracy`.
        doubts: For each class of multi-label data, else once: see `wrong_labels`.
        copies: Pairs of copies.
        shortcuts: All that were looked for.
        unreadable: `(path, reason)` of files that cannot be read.
        notes: What the data are, and what was left out of them.
        written: The files that were written.
    """

    class_names: tuple[str, ...]
    names: list[str]
    parts: list[str]
    targets: np.ndarray
    multilabel: bool
    features: np.ndarray
    groups: np.ndarray
    expected: tuple[float, float, float]
    doubts: list[LabelDoubts]
    copies: list[Copy]
    shortcuts: list[Shortcut]
    unreadable: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    written: tuple[pathlib.Path, ...] = ()

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

    def noise(self) -> float:
        """Returns the largest estimated share of wrong labels.

        It counts only where a label is listed: the estimate for N right labels is 1 / (N + 1).
        """
        return max((doubts.noise for doubts in self.doubts if doubts.listed.any()), default=0.0)

    def ranked_doubts(self) -> list[tuple[int, int]]:
        """Returns the number of the doubts and of the image, the most doubtful first."""
        found = [
            (doubts.confidence[number], place, int(number))
            for place, doubts in enumerate(self.doubts)
            for number in doubts.ranked()
        ]
        return [(place, number) for _, place, number in sorted(found)]

    def exceeded(self) -> list[str]:
        """Returns a line for each finding above its level, as `--strict` counts them."""
        levels = {
            "files that cannot be read": (len(self.unreadable), 0),
            "copies in different parts of the data": (len(self.leaks()), 0),
            "copies with different labels": (len(self.conflicts()), 0),
            "shortcuts": (sum(shortcut.found for shortcut in self.shortcuts), 0),
            "estimated share of wrong labels": (round(self.noise(), 4), MAX_NOISE),
        }
        return [
            f"{name}: {value:g}, above {level:g}"
            for name, (value, level) in levels.items()
            if value > level
        ]

    def lines(self) -> list[tuple[str, str]]:
        """Returns the summary: a word and a line for each topic."""
        parts = Counter(part for part in self.parts if part)
        split = "".join(f", {name} {count:,}" for name, count in parts.items())
        accuracy, low, high = self.expected
        groups = len(np.unique(self.groups))
        left_out = "image" if groups == len(self.names) else f"of {groups:,} groups"
        answers = "right decisions on labels" if self.multilabel else "accuracy"
        first = self.ranked_doubts()[:FIRST]
        wrong = sum(self.doubts[place].probability[number] for place, number in first)
        labels = (
            f"of the first {len(first)} in doubt about {wrong:.0f} are expected to be wrong; "
            f"an estimated {self.noise():.1%} of all stand out"
        )
        found = [
            f"{shortcut.name} gives away {self.class_names[shortcut.class_number]} "
            f"(AUROC {shortcut.auroc:.3f}, p {shortcut.adjusted:.3g})"
            for shortcut in self.shortcuts
            if shortcut.found
        ]
        lines = [
            ("images", f"{len(self.names):,} of {len(self.class_names):,} classes{split}"),
            (
                "expect",
                f"what to expect from these photos: leave-one-out {answers} {accuracy:.1%} "
                f"({low:.1%} to {high:.1%}), each {left_out} left out",
            ),
            ("labels", labels if first else "none is in doubt"),
            (
                "copies",
                f"{len(self.copies):,} pairs, {len(self.leaks()):,} in different parts of the "
                f"data, {len(self.conflicts()):,} with different labels",
            ),
            *(("shortcut", line) for line in found or [f"none of {len(self.shortcuts)}"]),
            *(("unreadable", line) for line in describe_skipped(self.unreadable)),
            *(("data", note) for note in self.notes),
        ]
        return [(word, for_line(line)) for word, line in lines]

    def __str__(self) -> str:
        return "\n".join(f"{word:<10}  {line}" for word, line in self.lines())
