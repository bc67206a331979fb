"""The parts of a page on an evaluation: numbers, confusion, curves, the most confident errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from keras_vit.images.pages import (
    GridPicture,
    facts_table,
    heading,
    line_chart,
    paragraph,
    picture_grid,
    shaded_table,
)

MAX_SHOWN = 100  # Errors on a page.
MAX_MATRIX = 20  # Classes of a confusion matrix that one can read; more are listed as pairs.
_MAX_PAIRS = 20


def report_parts(report: Any, pictures: Iterable[GridPicture]) -> list[str]:
    """Returns the parts of a page about an `EvaluationReport`.

    Args:
        report: The report.
        pictures: The most confident errors.
    """
    parts = [heading("Test images"), *map(paragraph, report.lines())]
    if report.true.ndim == 1:  # One class an image.
        parts += [*_confusion(report), *_curves(report)]
    wrong = int((~report.right).sum())
    text = f"{wrong:,} of {report.count:,} images have a wrong answer."
    return [*parts, heading("Most confident errors"), paragraph(text), picture_grid(pictures)]


def error_images(report: Any, count: int) -> Iterator[tuple[str, bytes, Mapping[str, str]]]:
    """Yields the name, the encoded image and the caption of each of the most confident errors."""
    chosen = report.most_confident_errors(count)
    if report.examples is None or not len(chosen):
        return
    found = report.examples.take(chosen).encoded()  # In ascending order.
    images = {place: image for place, (image, _) in zip(sorted(chosen), found, strict=True)}
    for number in chosen:
        caption = {
            f"answer ({report.probability[number]:.1%})": report.text_of(report.given[number])
            or "no label",
            "true": report.text_of(report.true[number]) or "no label",
        }
        yield report.examples.names[number], images[number], caption


def file_pictures(report: Any) -> Iterator[GridPicture]:
    """Yields the pictures of the most confident errors, with links to their files."""
    return (GridPicture(*found) for found in error_images(report, MAX_SHOWN))


def _confusion(report):
    """The confusion matrix, or of many classes the pairs that are confused most often."""
    names = report.class_names
    if len(names) <= MAX_MATRIX:
        table = shaded_table(names, report.confusion.tolist(), "rows: true; columns: answer")
        return [heading("Confusion"), table]
    true, given, images = report.confusion_pairs()
    wrong = np.flatnonzero(true != given)
    chosen = wrong[np.argsort(-images[wrong], kind="stable")][:_MAX_PAIRS]
    found = {f"{names[true[k]]} taken for {names[given[k]]}": images[k] for k in chosen}
    return [heading("Most frequent confusions"), facts_table(found.items())]


def _curves(report):
    """The accuracy by confidence, and the share of errors by the share of images answered."""
    coverage = np.arange(1, report.count + 1) / report.count
    risk = {"risk": list(zip(coverage.tolist(), report.risks.tolist(), strict=True))}
    accuracy = [row[3:] for row in report.calibration.table.rows]
    calibration = {"accuracy": accuracy, "perfectly calibrated": [(0.0, 0.0), (1.0, 1.0)]}
    return [
        heading("Risk and coverage"),
        line_chart(risk, "share of images answered", "share of errors"),
        heading("Calibration"),
        line_chart(calibration, "confidence", "accuracy"),
    ]
