"""The sections of an evaluation's page: numbers, confusion, calibration and errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from keras_vit.reports.pages import (
    GridPicture,
    Line,
    Photos,
    calibration_chart,
    chart,
    columns,
    confusion_table,
    facts_table,
    heading,
    paragraph,
    picture_grid,
    report_section,
    with_photos,
)
from keras_vit.reports.report import Report, Table
from keras_vit.utils.intervals import wilson_interval

from .measures import Calibration, coverage_table

MAX_MATRIX = 20  # Classes of a confusion matrix; more are listed as pairs.
_MAX_PAIRS = 20
_MAX_ROWS = 100  # Classes in the table of a page.
_MIN_IMAGES = 20  # The curve of risk and coverage of fewer is chance.


def numbers_section(whole: Report, by_recall: Table) -> list[str]:
    """Returns the facts of an evaluation next to its table by class.

    Args:
        whole: The facts.
        by_recall: The table by class, the lowest recall first.
    """
    header, *rows = by_recall.texts()
    facts = report_section(dataclasses.replace(whole, shown=""))
    parts = [heading("Numbers"), columns([facts, facts_table(rows[:_MAX_ROWS], header)])]
    if len(rows) > _MAX_ROWS:
        parts.append(paragraph(f"The {_MAX_ROWS} of {len(rows):,} classes with the lowest recall."))
    return parts


def matrix_section(class_names: Sequence[str], matrix: np.ndarray, photos: Photos) -> list[str]:
    """Returns the confusion matrix.

    Args:
        class_names: The K names.
        matrix: Images by true class and answer, int `(K, K)`.
        photos: Photos of errors, by the true class and the answer.
    """
    text = f"Rows are true classes, columns are answers, percent are of the row.{_hint(photos)}"
    table = confusion_table(class_names, matrix, photos)
    return [heading("Confusion"), paragraph(text), table]


def pairs_section(pairs: Sequence[tuple[str, str, int]], photos: Photos) -> list[str]:
    """Returns the pairs of classes that are confused most often.

    Args:
        pairs: The true class, the answer, and the images of each pair that occurs.
        photos: Photos of errors, by the true class and the answer.
    """
    wrong = [pair for pair in pairs if pair[0] != pair[1]]
    wrong = sorted(wrong, key=lambda pair: -pair[2])[:_MAX_PAIRS]
    rows = [
        (f"{true} taken for {answer}", with_photos(count, (true, answer), count, photos))
        for true, answer, count in wrong
    ]
    text = f"The {len(rows)} most frequent ones.{_hint(photos)}"
    return [heading("Confusion"), paragraph(text), facts_table(rows, ("confusion", "images"))]


def _hint(photos):
    return " A click on an underlined number shows photos." if photos else ""


def calibration_section(
    calibration: Calibration, probability: np.ndarray, risks: np.ndarray
) -> list[str]:
    """Returns the accuracy by confidence, and the share of errors by the share of answers.

    Args:
        calibration: The accuracy by confidence.
        probability: The probability of each answer, `(N,)`.
        risks: The share of errors by the number of images answered, `(N,)`; see `coverage_curve`.
    """
    rows = calibration.table.rows
    bins = [(count, sure, right) for _, _, count, sure, right in rows if count]
    intervals = [wilson_interval(count * accuracy, count) for count, _, accuracy in bins]
    title, parts = "Calibration", [calibration_chart(bins, intervals, _MIN_IMAGES)]
    text = (
        "Each dot is of photos whose answers have about the same probability, with the 95% "
        "interval of their accuracy; a larger dot has more photos. Below the dotted line answers "
        "are right less often than their probability says."
    )
    if len(probability) >= _MIN_IMAGES:
        curve = coverage_table(probability, risks).rows
        risk = Line("", [(share, errors) for share, errors, _ in curve], "series-1")
        parts.append(chart("Share of errors", [risk], "share of images answered", shares="xy"))
        title += ", risk and coverage"
        text += " The other chart has the errors among the most probable answers."
    return [heading(title), paragraph(text), columns(parts)]


def errors_section(count: int, wrong: int, pictures: Sequence[GridPicture]) -> list[str]:
    """Returns the most confident errors.

    Args:
        count: Images evaluated.
        wrong: Those with a wrong answer.
        pictures: Pictures of some of these, the most confident first.
    """
    text = f"{wrong:,} of {count:,} images have a wrong answer."
    if pictures:
        text += f" This page shows {len(pictures)} of them, the most confident first."
    if any(picture.seen for picture in pictures):
        text += " Next to each photo is what the model saw of it."
    errors = picture_grid(pictures, is_large=True)
    return [heading("Most confident errors"), paragraph(text), errors]
