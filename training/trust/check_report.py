"""Findings about labelled photos: summary, and levels of `--strict`."""

from __future__ import annotations

import dataclasses
import pathlib
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_vit.description.run_record import Reference
from keras_vit.images.pixels import FULL_DEPTH
from keras_vit.reports.report import NamedFact, Report
from keras_vit.training.data.copies import CANDIDATES, Copy, joined_groups
from keras_vit.training.data.labelled_files import describe_skipped
from keras_vit.training.data.parts import held_out
from keras_vit.training.evaluation.references import beside_references

# What --strict counts, by the kind of finding.
STRICT = {
    "leaks": "copies in different parts of the data",
    "conflicts": "copies with different labels",
    "shortcuts": "shortcuts",
}
COPIES = ("leaks", "conflicts", "copies")  # Kinds of findings that are pairs, the worst first.
ONE_COLOR = "one color"  # The kind of finding of a photo whose pixels are all equal.


class Finding(NamedTuple):
    """A row of the page and of the table of findings.

    Args:
        kind: The list that it is in: "wrong labels", "one color" (photos that show nothing),
            "leaks" (copies in different parts of the data), "conflicts" (copies with different
            labels), "copies" or "shortcuts". All but the last can be kept, relabelled or dropped.
        image: The number of its image.
        title: A line in bold.
        detail: A line below.
        score: How far the proposed class is ahead of the label, or the AUROC of a shortcut.
        other: The number of the other image of a copy.
        near: Captions, each with the numbers of images that are shown small.
        to: The class to relabel it to; "" for none.
    """

    kind: str
    image: int
    title: str
    detail: str
    score: float | None = None
    other: int | None = None
    near: Sequence[tuple[str, Sequence[int]]] = ()
    to: str = ""


@dataclasses.dataclass(frozen=True, repr=False)
class CheckReport:
    """The findings about labelled photos; `str` gives the summary.

    Args:
        class_names: The K names.
        names: The N images.
        labels: The name of each image's class.
        parts: The part of the data that each image is in, "" for data without parts.
        groups: Group of each image, int `(N,)`: given groups, joined by the copies.
        expected: Accuracy of images that the linear map was fitted without, and its 95% interval;
            see `expected_accuracy`.
        findings: The most doubtful labels first, then copies and shortcuts.
        unreadable: `(path, reason)` of files that cannot be read.
        notes: What the data are, and what was left out of them.
        references: What is right without the features, to compare `expected` with.
        written: The files that were written.
        unjudged: Why labels are not ranked; "" where they are.
        confused: Pairs of classes between which wrong labels cannot be seen, the worst first.
        fixed: See `Copies`.
        bit_depth: Bits of the values of 16-bit images.
        separated: How many pairs of copies a random draw would put into different parts,
            as expected; None for data that have parts.
    """

    class_names: tuple[str, ...]
    names: list[str]
    labels: list[str]
    parts: list[str]
    groups: np.ndarray
    expected: tuple[float, float, float]
    findings: list[Finding]
    unreadable: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    references: tuple[Reference, ...]
    written: tuple[pathlib.Path, ...] = ()
    unjudged: str = ""
    confused: tuple[str, ...] = ()
    fixed: int = 0
    bit_depth: int = FULL_DEPTH
    separated: float | None = None

    def __repr__(self) -> str:
        kinds = Counter(finding.kind for finding in self.findings)
        findings = ", ".join(f"{kind}: {count:,}" for kind, count in kinds.items()) or "no findings"
        photos = f"{len(self.names):,} photos of {len(self.class_names):,} classes"
        return f"<CheckReport: {photos}; {findings}; print() shows all>"

    def of_kind(self, *kinds: str) -> list[Finding]:
        """Returns the findings of some kinds; see `Finding`."""
        return [finding for finding in self.findings if finding.kind in kinds]

    def exceeded(self) -> list[str]:
        """Returns a line for each finding above its level, as `--strict` counts them."""
        counts = {"files that cannot be read": len(self.unreadable)}
        counts |= {text: len(self.of_kind(kind)) for kind, text in STRICT.items()}
        lines = [f"{text}: {count:,}, above 0" for text, count in counts.items() if count]
        return lines

    def report(self) -> Report:
        """Returns the summary, a fact for each topic."""
        parts = Counter(part for part in self.parts if part)
        split = "".join(f", {name} {count:,}" for name, count in parts.items())
        accuracy, low, high = self.expected
        groups = len(np.unique(self.groups))
        left_out = "image" if groups == len(self.names) else f"of {groups:,} groups"
        images = f"{len(self.names):,} of {len(self.class_names):,} classes{split}"
        expected = (
            f"what to expect from these photos: leave-one-out accuracy {accuracy:.1%} ({low:.1%} "
            f"to {high:.1%}), each {left_out} left out"
        )
        facts = [
            NamedFact("images", images),
            NamedFact("expect", expected),
            NamedFact("reference", beside_references(accuracy, low, self.references)),
            self._about_labels(),
            *self._about_one_color(),
            self._about_copies(),
            *self._about_shortcuts(),
            *(NamedFact("unreadable", line) for line in describe_skipped(self.unreadable)),
            *(NamedFact("data", note) for note in self.notes),
        ]
        return Report(facts)

    def _about_labels(self):
        if self.unjudged:
            return NamedFact("labels", f"not ranked: {self.unjudged}; try other --weights")
        doubted = len(self.of_kind("wrong labels"))
        note = ""
        if self.confused:
            first = ", between ".join(self.confused[:3])
            more = f" and {len(self.confused) - 3} more" if len(self.confused) > 3 else ""
            note = f"wrong labels between {first}{more} cannot be seen: these features confuse them"
        if not doubted:
            return NamedFact("labels", "none stands out", note)
        text = f"that the features doubt, which name {self.expected[0]:.1%} of these photos right"
        return NamedFact("labels", f"{_counted(doubted, 'label')} {text}", note)

    def _about_one_color(self):
        names = [self.names[row.image] for row in self.of_kind(ONE_COLOR)]
        if not names:
            return []
        return [NamedFact(ONE_COLOR, f"{_counted(len(names), 'photo')} such as {names[0]}")]

    def _about_copies(self):
        note = f"each photo was compared with its {CANDIDATES} nearest"
        if self.fixed:
            note += (
                f"; {self.fixed:,} look like many others, as from a fixed camera: of them only "
                "near-identical ones are listed and no bursts: --group-by"
            )
        pairs = self.of_kind(*COPIES)
        if not pairs:
            return NamedFact("copies", "none was found", note)
        conflicts = len(self.of_kind("conflicts"))
        text = f"in {_counted(len(groups_of_pairs(pairs)), 'group')}"
        if self.separated is None:
            text += f", {len(self.of_kind('leaks')):,} in different parts of the data"
            text += f", {conflicts:,} of the others with different labels"
        else:
            text += f", {conflicts:,} with different labels"
            text += f"; a random draw would separate about {self.separated:.0f} of {len(pairs):,}"
        return NamedFact("copies", f"{_counted(len(pairs), 'pair')} {text}", note)

    def _about_shortcuts(self):
        by_class = shortcuts_by_class(self)
        if not by_class:
            return [NamedFact("shortcut", "none was found")]
        return [
            NamedFact("shortcut", f"{name} is given away by {by}, which may be the thing itself")
            for name, by in by_class.items()
        ]

    def __str__(self) -> str:
        return self.report().aligned(origin_below=True)


def _counted(count, noun):
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def groups_of_pairs(pairs: Sequence[Finding]) -> list[tuple[list[int], list[Finding]]]:
    """Returns the images of each group that pairs of copies join, ascending, and its pairs."""
    numbers = sorted({number for row in pairs for number in (row.image, row.other or 0)})
    place_of = {number: place for place, number in enumerate(numbers)}
    joined = joined_groups(
        len(numbers), [Copy(place_of[row.other or 0], place_of[row.image], "") for row in pairs]
    )
    images: dict[int, list[int]] = {}
    for number, group in zip(numbers, joined.tolist(), strict=True):
        images.setdefault(group, []).append(number)
    rows: dict[int, list[Finding]] = {}
    for row in pairs:
        rows.setdefault(int(joined[place_of[row.image]]), []).append(row)
    return [(images[group], rows[group]) for group in images]


def shortcuts_by_class(report: CheckReport) -> dict[str, str]:
    """Returns for each class that is given away by what, with the AUROC of each."""
    found: dict[str, list[str]] = {}
    for row in report.of_kind("shortcuts"):
        found.setdefault(report.labels[row.image], []).append(f"{row.title} ({row.detail})")
    return {name: ", ".join(by) for name, by in found.items()}


def expected_separated(
    labels: np.ndarray, pairs: Sequence[Copy], groups: np.ndarray | None, share: float
) -> float:
    """Returns how many pairs a random draw of a test part puts into different parts, as expected.

    Args:
        labels: Class numbers `(N,)`.
        pairs: Pairs of images.
        groups: The given group of each image `(N,)`, which is not separated; None without any.
        share: Share of the images of each class in the test part.
    """
    if groups is not None:
        different = sum(groups[pair.first] != groups[pair.second] for pair in pairs)
        return 2 * share * (1 - share) * int(different)
    images = np.bincount(labels)
    drawn = np.bincount(
        labels[held_out(labels, share, np.random.default_rng(0))], minlength=len(images)
    )
    numbers = np.array([(pair.first, pair.second) for pair in pairs], int).reshape(-1, 2)
    first, second = labels[numbers].T
    shares = drawn / np.maximum(images, 1)
    apart = shares[first] * (1 - shares[second]) + (1 - shares[first]) * shares[second]
    # Without replacement: two of one class are in different parts a little more often.
    apart[first == second] *= (images / np.maximum(images - 1, 1))[first[first == second]]
    return float(apart.sum())
