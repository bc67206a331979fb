"""Files of a check: the page, and the tables of findings, parts and groups."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping

import numpy as np

from keras_vit.images.listing import NO_FILE
from keras_vit.reports.report import Table
from keras_vit.training.data import DataSpec, Examples
from keras_vit.training.data.class_folders import NO_CLASS
from keras_vit.training.data.image_files import NOT_UTF_8
from keras_vit.training.data.parts import assign
from keras_vit.training.data.spec import CHECKED, table_lines
from keras_vit.utils.files import write_text
from keras_vit.utils.text_files import read_lines

from .check_report import CheckReport
from .findings_page import cards_of, shown_images, write_cards

PARTS = {"train": 0.7, "validation": 0.1, "test": 0.2}  # Shares of the written split.

_COLUMNS = ("kind", "image", "label", "finding", "score", "proposed", "other")


def write_check(
    report: CheckReport, spec: DataSpec, splits: Mapping[str, Examples], folder: str | os.PathLike
) -> tuple[pathlib.Path, ...]:
    """Writes check.html, findings.csv, split.csv and groups.csv, and returns their paths.

    Labels and exclusions of the data are written too, as the page saves them: with all of it
    `finetune --checked` trains on what was checked.

    Args:
        report: The findings.
        spec: The data.
        splits: The images by part, as they were checked.
        folder: The folder; made if it does not exist.

    Raises:
        ValueError: If the folder has other labels or exclusions than the data.
    """
    folder = pathlib.Path(folder)
    decided = {folder / CHECKED["labels"]: spec.labels, folder / CHECKED["exclude"]: spec.exclude}
    decided = {file: _text(lines) for file, lines in decided.items() if lines}
    for file, text in decided.items():
        if file.is_file() and read_lines(file) != text.splitlines():
            raise ValueError(
                "The output must have no other decisions than the data; give another --output. "
                f"Received: {file}, with other lines"
            )
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / name for name in ("check.html", "findings.csv", "split.csv", "groups.csv")]
    for older in files:  # Where the page is, all are of one check.
        older.unlink(missing_ok=True)

    names = [*report.names, *(path for path, _ in report.unreadable)]
    if os.path.exists(names[0]):  # All at once: their folders distinguish two of one name.
        names = spec.relative_names(names)
    paths, unread = names[: len(report.names)], names[len(report.names) :]
    unreadable = [(path, why) for path, (_, why) in zip(unread, report.unreadable, strict=True)]

    page, table, split, groups = files
    _table(report, paths, unreadable).write_csv(table)
    write_text(split, _text(_split_lines(report, paths, unreadable)))
    group_of = {path: str(group) for path, group in zip(paths, report.groups.tolist(), strict=True)}
    write_text(groups, _text(table_lines(group_of, "groups")))
    for file, text in decided.items():
        write_text(file, text)
    cards = cards_of(report)
    images = shown_images(cards, report, splits, paths)
    write_cards(page, f"Check of {spec.name}", report.report(), images, cards, report.class_names)
    return page, table, split, groups, *decided


def _text(lines):
    return "".join(f"{line}\n" for line in lines)


def _table(report, paths, unreadable):
    """Returns a row for each finding and each file that cannot be read."""
    rows = [
        (
            row.kind,
            paths[row.image],
            report.labels[row.image],
            f"{row.title}, {row.detail}",
            row.score,
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
