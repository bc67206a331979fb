"""What `check_photos` found: the summary, the levels of `--strict`, the page and the tables."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections import Counter
from collections.abc import Mapping

import numpy as np

from keras_vit.training.data import DataSpec, Examples
from keras_vit.training.data.groups import assign
from keras_vit.training.data.sources import describe_skipped
from keras_vit.training.data.tables import table_lines
from keras_vit.utils.files import write_csv, write_text
from keras_vit.utils.safe_text import for_line

from .findings_page import Finding, write_findings

# What --strict counts, by the kind of finding, and the level of the share of wrong labels.
STRICT = {
    "leaks": "copies in different parts of the data",
    "conflicts": "copies with different labels",
    "shortcuts": "shortcuts",
}
MAX_NOISE = 0.01  # Share of wrong labels.
FIRST = 50  # Labels, of which as many are expected to be wrong as the summary says.

CHECK_HTML, FINDINGS_CSV, SPLIT_CSV = "check.html", "findings.csv", "split.csv"

PARTS = {"train": 0.7, "validation": 0.1, "test": 0.2}  # Shares of the written split.

_COLUMNS = ("kind", "image", "label", "finding", "value", "proposed", "other")
_MAX_SHOWN = 5000  # Findings on the page; all are in the table.


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """The findings about labelled photos; `str` gives the summary.

    Args:
        class_names: The K names.
        multilabel: Whether an image may have any number of classes.
        names: The N images.
        labels: The names of each image's classes.
        parts: The part of the data that each image is in, "" for data without parts.
        groups: Group of each image, int `(N,)`: given groups, joined by the copies.
        expected: Accuracy of images that the linear map was fitted without (for multi-label data
            the share of right decisions), and its 95% interval; see `expected_accuracy`.
        noise: The largest estimated share of wrong labels.
        findings: The most doubtful labels first, then copies and shortcuts.
        unreadable: `(path, reason)` of files that cannot be read.
        notes: What the data are, and what was left out of them.
        written: The files that were written.
    """

    class_names: tuple[str, ...]
    multilabel: bool
    names: list[str]
    labels: list[list[str]]
    parts: list[str]
    groups: np.ndarray
    expected: tuple[float, float, float]
    noise: float
    findings: list[Finding]
    unreadable: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    written: tuple[pathlib.Path, ...] = ()

    def of_kind(self, *kinds: str) -> list[Finding]:
        """Returns the findings of some kinds; see `Finding`."""
        return [finding for finding in self.findings if finding.kind in kinds]

    def exceeded(self) -> list[str]:
        """Returns a line for each finding above its level, as `--strict` counts them."""
        counts = {"files that cannot be read": len(self.unreadable)}
        counts |= {text: len(self.of_kind(kind)) for kind, text in STRICT.items()}
        lines = [f"{text}: {count:,}, above 0" for text, count in counts.items() if count]
        if round(self.noise, 4) > MAX_NOISE:
            lines.append(f"estimated share of wrong labels: {self.noise:.4g}, above {MAX_NOISE:g}")
        return lines

    def lines(self) -> list[tuple[str, str]]:
        """Returns the summary: a word and a line for each topic."""
        parts = Counter(part for part in self.parts if part)
        split = "".join(f", {name} {count:,}" for name, count in parts.items())
        accuracy, low, high = self.expected
        groups = len(np.unique(self.groups))
        left_out = "image" if groups == len(self.names) else f"of {groups:,} groups"
        answers = "right decisions on labels" if self.multilabel else "accuracy"
        first = self.of_kind("wrong labels")[:FIRST]
        labels = (
            f"of the first {len(first)} in doubt about {sum(label.value for label in first):.0f} "
            f"are expected to be wrong; an estimated {self.noise:.1%} of all stand out"
        )
        leaks, conflicts = len(self.of_kind("leaks")), len(self.of_kind("conflicts"))
        copies = len(self.of_kind("leaks", "conflicts", "copies"))
        shortcuts = [f"{found.title} ({found.detail})" for found in self.of_kind("shortcuts")]
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
                f"{copies:,} pairs, {leaks:,} in different parts of the data, {conflicts:,} of the "
                "others with different labels",
            ),
            *(("shortcut", line) for line in shortcuts or ["none was found"]),
            *(("unreadable", line) for line in describe_skipped(self.unreadable)),
            *(("data", note) for note in self.notes),
        ]
        return [(word, for_line(line)) for word, line in lines]

    def __str__(self) -> str:
        return "\n".join(f"{word:<10}  {line}" for word, line in self.lines())


def write_check(
    report: CheckReport,
    spec: DataSpec,
    splits: Mapping[str, Examples],
    targets: np.ndarray,
    folder: str | os.PathLike,
    seed: int = 0,
) -> tuple[pathlib.Path, ...]:
    """Writes `check.html`, `findings.csv` and `split.csv`, and returns their paths.

    Args:
        report: The findings.
        spec: The data.
        splits: The images by part, as they were checked.
        targets: Whether each image has each class, `(N, K)`.
        folder: The folder; made if it does not exist.
        seed: Seed of the split.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    page, table, split = (folder / name for name in (CHECK_HTML, FINDINGS_CSV, SPLIT_CSV))

    def relative(path):
        return spec.relative(path) if os.path.exists(path) else path

    paths = [relative(name) for name in report.names]
    labels = report.labels
    rows = [
        (
            finding.kind,
            paths[finding.image],
            ";".join(labels[finding.image]),
            f"{finding.title}, {finding.detail}",
            f"{finding.value:.4g}",
            finding.to,
            "" if finding.other is None else paths[finding.other],
        )
        for finding in report.findings
    ]
    unreadable = [(relative(path), reason) for path, reason in report.unreadable]
    rows += [("unreadable", path, "", reason, "", "", "") for path, reason in unreadable]
    write_csv(table, [_COLUMNS, *rows])
    shown = report.findings[:_MAX_SHOWN]
    numbers = {number for finding in shown for _, some in finding.near for number in some}
    images = {
        number: (paths[number], labels[number], encoded)
        for number, encoded in _encoded(splits, sorted(numbers.union(f.image for f in shown)))
    }
    write_findings(
        page,
        f"Check of {spec.name}",
        report.lines(),
        images,
        shown,
        report.class_names,
        multilabel=report.multilabel,
    )
    parts = assign(targets, report.groups, list(PARTS.values()), seed)
    # Unreadable files need a row too, and have no part.
    part_of = dict.fromkeys((path for path, _ in unreadable), "train")
    part_of |= {path: list(PARTS)[part] for path, part in zip(paths, parts, strict=True)}
    write_text(split, "".join(f"{line}\n" for line in table_lines(part_of, "split")))
    return page, table, split


def _encoded(splits, numbers):
    """Yields the numbers of images, ascending, with the content of their files."""
    start = 0
    for examples in splits.values():
        own = [number - start for number in numbers if start <= number < start + len(examples)]
        for number, (encoded, _) in zip(own, examples.take(own).encoded(), strict=True):
            yield start + number, encoded
        start += len(examples)
