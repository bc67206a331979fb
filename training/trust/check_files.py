"""The files of `keras-vit check`: the page and the table of findings, and a split."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping

import numpy as np

from keras_vit.prediction import highest
from keras_vit.training.data import DataSpec, Examples
from keras_vit.training.data.groups import assign
from keras_vit.training.data.tables import table_lines
from keras_vit.utils.files import write_csv, write_text

from .check_report import CheckReport
from .findings_page import Finding, ShownImage, write_findings

CHECK_HTML, FINDINGS_CSV, SPLIT_CSV = "check.html", "findings.csv", "split.csv"

PARTS = {"train": 0.7, "validation": 0.1, "test": 0.2}  # Shares of the written split.

_COLUMNS = ("kind", "image", "label", "finding", "value", "proposed", "other")
_MAX_SHOWN = 5000  # Findings on the page; all are in the table.
_MAX_PICTURES = 1000  # Doubted labels with neighbours, which are six pictures each.
_NEIGHBOURS = 3  # Nearest images, in the given and in the proposed class.
_TYPICAL = 6  # Images of a shortcut.


def write_check(
    report: CheckReport,
    spec: DataSpec,
    splits: Mapping[str, Examples],
    folder: str | os.PathLike,
    seed: int = 0,
) -> tuple[pathlib.Path, ...]:
    """Writes `check.html`, `findings.csv` and `split.csv`, and returns their paths.

    Args:
        report: The findings.
        spec: The data.
        splits: The images by part, as they were checked.
        folder: The folder; made if it does not exist.
        seed: Seed of the split.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    page, table, split = (folder / name for name in (CHECK_HTML, FINDINGS_CSV, SPLIT_CSV))

    def relative(path):
        return spec.relative(path) if os.path.exists(path) else path

    paths = [relative(name) for name in report.names]
    labels = [
        [report.class_names[k] for k in np.flatnonzero(targets)] for targets in report.targets
    ]
    findings = [*_doubted_labels(report), *_copies(report, labels), *_shortcuts(report)]
    rows = [
        (
            finding.kind,
            paths[finding.image],
            ";".join(labels[finding.image]),
            f"{finding.title}, {finding.detail}",
            f"{finding.value:.4g}",
            finding.to,
            paths[finding.near[0][1][0]] if finding.kind == "copies" else "",
        )
        for finding in findings
    ]
    unreadable = [(relative(path), reason) for path, reason in report.unreadable]
    rows += [("unreadable", path, "", reason, "", "", "") for path, reason in unreadable]
    write_csv(table, [_COLUMNS, *rows])
    shown = findings[:_MAX_SHOWN]
    numbers = {number for finding in shown for _, some in finding.near for number in some}
    images = {
        number: ShownImage(paths[number], labels[number], encoded)
        for number, encoded in _encoded(splits, sorted(numbers.union(f.image for f in shown)))
    }
    title = f"Check of {spec.name}"
    names = report.class_names
    write_findings(page, title, report.lines(), images, shown, names, multilabel=report.multilabel)
    parts = assign(report.targets, report.groups, list(PARTS.values()), seed)
    # Unreadable files need a row too, and have no part.
    part_of = dict.fromkeys((path for path, _ in unreadable), "train")
    part_of |= {path: list(PARTS)[part] for path, part in zip(paths, parts, strict=True)}
    write_text(split, "".join(f"{line}\n" for line in table_lines(part_of, "split")))
    return page, table, split


def _copies(report, labels):
    """Returns the pairs of copies, those in different parts of the data first."""
    rows = []
    for pair in report.copies:
        texts = []
        for number in (pair.first, pair.second):
            part = f" in {report.parts[number]}" if report.parts[number] else ""
            texts.append(f"{';'.join(labels[number]) or 'no label'}{part}")
        detail = f"{' and '.join(texts)}, cosine {pair.cosine:.3f}"
        near = [("the other image", [pair.first])]
        rows.append(Finding("copies", pair.second, pair.kind, detail, pair.cosine, near))
    leaks = {(pair.first, pair.second) for pair in report.leaks()}
    return sorted(rows, key=lambda row: (row.near[0][1][0], row.image) not in leaks)


def _shortcuts(report):
    rows = []
    for shortcut in report.shortcuts:
        if shortcut.found:
            title = f"{shortcut.name} gives away {report.class_names[shortcut.class_number]}"
            detail = f"AUROC {shortcut.auroc:.3f}, p-value {shortcut.adjusted:.3g}"
            first, *typical = shortcut.images[:_TYPICAL].tolist()
            near = [("most typical", typical)]
            rows.append(
                Finding("shortcuts", first, title, detail, shortcut.auroc, near, decide=False)
            )
    return rows


def _doubted_labels(report):
    """Returns the doubted labels with the nearest images of the given and the proposed class."""
    centred = report.features - report.features.mean(axis=0)
    unit = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    rows = []
    for place, number in report.ranked_doubts():
        cosines = unit @ unit[number] if len(rows) < _MAX_PICTURES else None
        near = []
        for label, value in _sides(report, place, number):
            others = []
            if cosines is not None:
                members = np.flatnonzero(report.targets[:, label] == value)
                members = members[members != number]
                others = members[highest(cosines[members], _NEIGHBOURS)].tolist()
            near.append((f"{'' if value else 'not '}{report.class_names[label]}", others))
        (given, _), (proposed, _) = near
        probability = float(report.doubts[place].probability[number])
        rows.append(
            Finding(
                "wrong labels",
                number,
                f"{given}, or {proposed}?",
                f"wrong with probability {probability:.0%}",
                probability,
                near,
                to=proposed,
                toggle=report.class_names[place] if report.multilabel else "",
            )
        )
    return rows


def _sides(report, place, number):
    """Returns the given and the proposed side: a class, and 1 or 0 for with or without it."""
    if report.multilabel:
        has = int(report.targets[number, place])
        return (place, has), (place, 1 - has)
    proposed = int(report.doubts[0].proposed[number])
    return (int(report.targets[number].argmax()), 1), (proposed, 1)


def _encoded(splits, numbers):
    """Yields the numbers of images, ascending, with the content of their files."""
    start = 0
    for examples in splits.values():
        own = [number - start for number in numbers if start <= number < start + len(examples)]
        for number, (encoded, _) in zip(own, examples.take(own).encoded(), strict=True):
            yield start + number, encoded
        start += len(examples)
