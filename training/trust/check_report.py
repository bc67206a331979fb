"""Findings about labelled photos: summary, levels of `--strict`, page and tables."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from keras_vit.description.recipe import Reference
from keras_vit.inspection.pages import data_address, facts_table, thumbnail, write_page
from keras_vit.preprocessing import FULL_DEPTH
from keras_vit.training.data import DataSpec, Examples
from keras_vit.training.data.copies import CANDIDATES
from keras_vit.training.data.examples import first_names
from keras_vit.training.data.image_files import NO_CLASS, NO_FILE, NOT_UTF_8
from keras_vit.training.data.parts import assign
from keras_vit.training.data.sources import describe_skipped
from keras_vit.training.data.spec import table_lines
from keras_vit.training.evaluation.references import beside_references
from keras_vit.utils.files import write_text
from keras_vit.utils.report import Table
from keras_vit.utils.safe_text import for_line

# What --strict counts, by the kind of finding, and the level of the share of wrong labels.
STRICT = {
    "leaks": "copies in different parts of the data",
    "conflicts": "copies with different labels",
    "shortcuts": "shortcuts",
}
ONE_COLOR = "one color"  # The kind of finding of a photo whose pixels are all equal.
MAX_NOISE = 0.01  # Share of wrong labels.
FIRST = 50  # Labels, of which as many are expected to be wrong as the summary says.

PARTS = {"train": 0.7, "validation": 0.1, "test": 0.2}  # Shares of the written split.

_COLUMNS = ("kind", "image", "label", "finding", "value", "proposed", "other")
_MAX_SHOWN = 2000  # Findings on the page, with up to seven pictures each; all are in the table.
_SIDES = (96, 480)  # Pixels of the longer side of a picture: the fewer pictures, the larger.
_PIXELS = 16e6  # In all pictures together, where the smallest side allows it: some 5 MB.
_QUALITY = 80


class Finding(NamedTuple):
    """A row of the page and of the table of findings.

    Args:
        kind: The list that it is in: "wrong labels", "one color" (photos that show nothing),
            "leaks" (copies in different parts of the data), "conflicts" (copies with different
            labels), "copies" or "shortcuts". All but the last can be kept, relabelled or dropped.
        image: The number of its image.
        title: A line in bold.
        detail: A line below.
        value: The probability that a label is wrong, or the AUROC of a shortcut.
        other: The number of the other image of a copy.
        near: Captions, each with the numbers of images that are shown small.
        to: The class to relabel it to; "" for none.
    """

    kind: str
    image: int
    title: str
    detail: str
    value: float | None = None
    other: int | None = None
    near: Sequence[tuple[str, Sequence[int]]] = ()
    to: str = ""


@dataclasses.dataclass(frozen=True)
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
        noise: The estimated share of wrong labels, a lower bound; None for too few images a class
            and where labels are not judged.
        findings: The most doubtful labels first, then copies and shortcuts.
        unreadable: `(path, reason)` of files that cannot be read.
        notes: What the data are, and what was left out of them.
        references: What is right without the features, to compare `expected` with.
        written: The files that were written.
        unjudged: Why labels are not judged; "" where they are.
        confused: Pairs of classes between which wrong labels cannot be seen, the worst first.
        fixed: See `Copies`.
        bit_depth: Bits of the values of 16-bit images.
    """

    class_names: tuple[str, ...]
    names: list[str]
    labels: list[str]
    parts: list[str]
    groups: np.ndarray
    expected: tuple[float, float, float]
    noise: float | None
    findings: list[Finding]
    unreadable: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    references: tuple[Reference, ...]
    written: tuple[pathlib.Path, ...] = ()
    unjudged: str = ""
    confused: tuple[str, ...] = ()
    fixed: int = 0
    bit_depth: int = FULL_DEPTH

    def of_kind(self, *kinds: str) -> list[Finding]:
        """Returns the findings of some kinds; see `Finding`."""
        return [finding for finding in self.findings if finding.kind in kinds]

    def exceeded(self) -> list[str]:
        """Returns a line for each finding above its level, as `--strict` counts them."""
        counts = {"files that cannot be read": len(self.unreadable)}
        counts |= {text: len(self.of_kind(kind)) for kind, text in STRICT.items()}
        lines = [f"{text}: {count:,}, above 0" for text, count in counts.items() if count]
        if self.unjudged:
            lines.append(f"wrong labels: not judged, {self.unjudged}")
        if self.noise is not None and round(self.noise, 4) > MAX_NOISE:
            lines.append(f"estimated share of wrong labels: {self.noise:.4g}, above {MAX_NOISE:g}")
        return lines

    def lines(self) -> list[tuple[str, str]]:
        """Returns the summary: a word and a line for each topic."""
        parts = Counter(part for part in self.parts if part)
        split = "".join(f", {name} {count:,}" for name, count in parts.items())
        accuracy, low, high = self.expected
        groups = len(np.unique(self.groups))
        left_out = "image" if groups == len(self.names) else f"of {groups:,} groups"
        shortcuts = [f"{row.title} ({row.detail})" for row in self.of_kind("shortcuts")]
        lines = [
            ("images", f"{len(self.names):,} of {len(self.class_names):,} classes{split}"),
            (
                "expect",
                f"what to expect from these photos: leave-one-out accuracy {accuracy:.1%} "
                f"({low:.1%} to {high:.1%}), each {left_out} left out",
            ),
            ("beside", beside_references(accuracy, low, self.references)),
            ("labels", self._about_labels() + self._about_confused()),
            *(("one color", line) for line in self._of_one_color()),
            ("copies", self._about_copies()),
            *(("shortcut", line) for line in shortcuts or ["none was found"]),
            *(("unreadable", line) for line in describe_skipped(self.unreadable)),
            *(("data", note) for note in self.notes),
        ]
        return [(word, for_line(line)) for word, line in lines]

    def _about_labels(self) -> str:
        doubted = self.of_kind("wrong labels")
        if self.unjudged:
            return f"not judged: {self.unjudged}; try other --weights"
        if not doubted:
            return "none stands out"
        if self.noise is None:
            return (
                f"{len(doubted):,} in doubt; too few images a class to estimate how many are wrong"
            )
        first = doubted[:FIRST]
        wrong = sum(label.value or 0.0 for label in first)
        return (
            f"of the first {len(first)} in doubt about {wrong:.0f} are expected to be wrong; "
            f"at least an estimated {self.noise:.1%} of all are (a lower bound)"
        )

    def _of_one_color(self) -> list[str]:
        names = [self.names[row.image] for row in self.of_kind(ONE_COLOR)]
        word = "photo" if len(names) == 1 else "photos"
        return [f"{len(names):,} {word}: {first_names(names, 3)}"] if names else []

    def _about_confused(self) -> str:
        if not self.confused:
            return ""
        first = ", between ".join(self.confused[:3])
        more = f" and {len(self.confused) - 3} more pairs" if len(self.confused) > 3 else ""
        return f"; wrong labels between {first}{more} cannot be seen: these features confuse them"

    def _about_copies(self) -> str:
        leaks, conflicts = len(self.of_kind("leaks")), len(self.of_kind("conflicts"))
        pairs = leaks + conflicts + len(self.of_kind("copies"))
        compared = f"each photo compared with its {CANDIDATES} nearest"
        if self.fixed:
            compared += (
                f"; {self.fixed:,} look like many others, as from a fixed camera: of them only "
                "near-identical ones are listed and no bursts: --group-by"
            )
        return (
            f"{pairs:,} pairs, {leaks:,} in different parts of the data, {conflicts:,} of the "
            f"others with different labels ({compared})"
        )

    def __str__(self) -> str:
        return "\n".join(f"{word:<10}  {line}" for word, line in self.lines())


def write_check(
    report: CheckReport, spec: DataSpec, splits: Mapping[str, Examples], folder: str | os.PathLike
) -> tuple[pathlib.Path, ...]:
    """Writes `check.html`, `findings.csv` and `split.csv`, and returns their paths.

    Args:
        report: The findings.
        spec: The data.
        splits: The images by part, as they were checked.
        folder: The folder; made if it does not exist.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    page, table, split = (folder / name for name in ("check.html", "findings.csv", "split.csv"))
    for older in (page, table, split):  # Where the page is, all are of one check.
        older.unlink(missing_ok=True)

    names = [*report.names, *(path for path, _ in report.unreadable)]
    if os.path.exists(names[0]):  # All at once: their folders distinguish two of one name.
        names = spec.relative_names(names)
    paths, unread = names[: len(report.names)], names[len(report.names) :]
    unreadable = [(path, why) for path, (_, why) in zip(unread, report.unreadable, strict=True)]

    _table(report, paths, unreadable).write_csv(table)
    write_text(split, "".join(f"{line}\n" for line in _split_lines(report, paths, unreadable)))
    shown = report.findings[:_MAX_SHOWN]
    images = _shown_images(shown, splits, paths, report.labels)
    write_findings(
        page,
        f"Check of {spec.name}",
        report.lines(),
        images,
        shown,
        report.class_names,
        report.bit_depth,
    )
    return page, table, split


def _table(report, paths, unreadable):
    """Returns a row for each finding and each file that cannot be read."""
    rows = [
        (
            row.kind,
            paths[row.image],
            report.labels[row.image],
            f"{row.title}, {row.detail}",
            row.value,
            row.to,
            None if row.other is None else paths[row.other],
        )
        for row in report.findings
    ]
    rows += [("unreadable", path, "", why, None, "", None) for path, why in unreadable]
    return Table(_COLUMNS, rows)


def _split_lines(report, paths, unreadable):
    """Returns the lines of a table of parts, in which copies are together."""
    number_of = {name: number for number, name in enumerate(report.class_names)}
    labels = np.array([number_of[label] for label in report.labels])
    parts = assign(labels, report.groups, list(PARTS.values()), 0)
    # Unreadable files need a row too, and are in no part; others are not in the data.
    left_out = (NO_CLASS, NO_FILE, NOT_UTF_8)
    part_of = {path: "" for path, reason in unreadable if reason not in left_out}
    part_of |= {path: list(PARTS)[part] for path, part in zip(paths, parts, strict=True)}
    return table_lines(part_of, "split")


def _shown_images(findings, splits, paths, labels):
    """Returns the path, the label and the content of each image that findings show."""
    numbers = {row.image for row in findings}
    for row in findings:
        for _, near in row.near:
            numbers.update(near)
    images, start = {}, 0
    for examples in splits.values():
        own = sorted(numbers.intersection(range(start, start + len(examples))))
        contents = examples.take([number - start for number in own]).encoded()
        for number, (content, _) in zip(own, contents, strict=True):
            images[number] = (paths[number], labels[number], content)
        start += len(examples)
    return images


def write_findings(
    path: str | os.PathLike,
    title: str,
    lines: Sequence[tuple[str, str]],
    images: Mapping[int, tuple[str, str, bytes]],
    findings: Sequence[Finding],
    class_names: Sequence[str],
    bit_depth: int = FULL_DEPTH,
) -> None:
    """Writes the page, one file that needs no network: pictures with a decision on each by key.

    Args:
        path: The HTML file.
        title: Its heading.
        lines: Rows of a table above the list.
        images: All images that findings name, by number: the path relative to the data, as the
            saved files name it, the name of the class, and the content of the file.
        findings: The rows, in the order of the page.
        class_names: The classes that an image may be relabelled to.
        bit_depth: Bits of the values of 16-bit images.
    """
    identity = json.dumps([[name, label] for name, label, _ in images.values()])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    side = int(np.clip(np.sqrt(_PIXELS / max(len(images), 1)), *_SIDES))
    content = {
        # Decisions are stored for these images and labels: not for others at the same place.
        "key": f"keras-vit check {digest}",
        "classes": list(class_names),
        "images": {
            number: {
                "path": name,
                "label": label,
                "src": data_address(thumbnail(encoded, side, _QUALITY, bit_depth), "jpeg"),
            }
            for number, (name, label, encoded) in images.items()
        },
        "findings": [
            {
                **finding._asdict(),
                "id": f"{finding.kind} {images[finding.image][0]}",
                "decide": finding.kind != "shortcuts",
            }
            for finding in findings
        ],
    }
    body, script = (
        pathlib.Path(__file__).with_name(name).read_text(encoding="utf-8")
        for name in ("findings.html", "findings.js")
    )
    script = f'"use strict";\n(() => {{\n{script}}})();\n'
    script_hash = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # "<" could begin the end of the element.
    embedded = json.dumps(content).replace("<", "\\u003c")
    write_page(
        path,
        title,
        body.replace("SUMMARY", facts_table(lines)),
        f'<script type="application/json" id="data">{embedded}</script>\n',
        f"<script>{script}</script>\n",
        policy=(
            f"default-src 'none'; script-src 'sha256-{script_hash}'; "
            "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
        ),
    )
