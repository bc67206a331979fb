"""The report of drift: a summary, the page with the strangest photos, and JSON."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from keras_vit.images.pages import (
    GridPicture,
    facts_table,
    heading,
    paragraph,
    picture_grid,
    write_page,
)
from keras_vit.utils.files import write_text
from keras_vit.utils.safe_text import for_json, for_line
from keras_vit.utils.text_tables import align_columns

from .shift_tests import ShiftTest

DRIFT_HTML, DRIFT_JSON = "drift.html", "drift.json"

# In the summary: the classes whose share changed most, and the outputs with the lowest p-values.
_SHOWN_CLASSES = 10


@dataclasses.dataclass(frozen=True)
class DriftReport:
    """Photos against a reference; `str` gives the summary.

    Args:
        tests: A two-sample test of each signal.
        classes: For each class the share of the calibration images, or the estimated share among
            the photos to compare with, and the estimated share among the photos; {} without an
            estimate.
        lines: What was compared and what was left out.
        alarm_level: The level of all tests together.
        written: The files that were written.
    """

    tests: tuple[ShiftTest, ...]
    classes: dict[str, tuple[float, float]]
    lines: tuple[str, ...]
    alarm_level: float
    written: tuple[pathlib.Path, ...] = ()

    @property
    def drifted(self) -> tuple[str, ...]:
        """The signals whose corrected p-value is at most the alarm level."""
        return tuple(
            dict.fromkeys(test.signal for test in self.tests if test.corrected <= self.alarm_level)
        )

    @property
    def exit_code(self) -> int:
        """1 if a signal has drifted, else 0."""
        return int(bool(self.drifted))

    def __str__(self) -> str:
        outputs = sorted(
            (test for test in self.tests if test.class_name is not None),
            key=lambda test: test.p_value,
        )
        shown = [test for test in self.tests if test not in outputs[_SHOWN_CLASSES:]]
        table = align_columns(table_rows(shown), left=[0, 1])
        lines = [*self.lines, "", table]
        if len(outputs) > _SHOWN_CLASSES:
            lines.append(f"and the outputs of {len(outputs) - _SHOWN_CLASSES} further classes")
        changes = sorted(self.classes.items(), key=lambda item: -abs(item[1][1] - item[1][0]))
        for name, (before, now) in changes[:_SHOWN_CLASSES]:
            lines.append(f"class   {for_line(name)}: {before:.1%} -> {now:.1%} (estimated)")
        found = f"drift of {', '.join(self.drifted)}" if self.drifted else "no drift found"
        return "\n".join([*lines, f"result  {found}, at the level {self.alarm_level:g}"])


class Strange(NamedTuple):
    """One of the strangest photos.

    Args:
        path: Its file.
        given: The most probable class.
        share: The share of the reference that is at least as strange.
    """

    path: str
    given: str
    share: float


def table_rows(tests: Sequence[ShiftTest]) -> list[tuple[str, ...]]:
    """Returns the table of the tests."""
    rows: list[tuple[str, ...]] = [("signal", "test", "statistic", "p", "p by Holm")]
    for test in tests:
        numbers = (test.statistic, test.p_value, test.corrected)
        rows.append((_title(test), test.name, *(f"{number:.3g}" for number in numbers)))
    return rows


def _title(test):
    if test.class_name is None:
        return test.signal
    return f"{test.signal} of {for_line(test.class_name)}"


def write_files(
    folder: pathlib.Path, drift: DriftReport, strange: Sequence[Strange], by: str
) -> tuple[str, ...]:
    """Writes the files of a report, and returns their names.

    Args:
        folder: The folder, which exists.
        drift: The report.
        strange: The strangest photos.
        by: The signal by which they are the strangest.
    """
    tests = {
        f"{_title(test)} ({test.name})": f"{test.statistic:.3g}, p {test.corrected:.3g} by Holm"
        for test in drift.tests
    }
    classes = {
        name: f"{before:.1%}, now {now:.1%}" for name, (before, now) in drift.classes.items()
    }
    result = f"Drift of {', '.join(drift.drifted)}" if drift.drifted else "No drift found"
    pictures = picture_grid(
        GridPicture(
            photo.path,
            pathlib.Path(photo.path).read_bytes(),
            {photo.given: "", "of the reference at least as strange": f"{photo.share:.2%}"},
        )
        for photo in strange
    )
    parts = [paragraph(f"{result}, at the level {drift.alarm_level:g}.")]
    parts += [paragraph(line) for line in drift.lines]
    parts += [heading("Tests"), facts_table(tests)]
    if classes:
        parts += [heading("Estimated shares of the classes"), facts_table(classes)]
    parts += [heading(f"The strangest photos, by {by}"), pictures]
    write_page(folder / DRIFT_HTML, "Drift", *parts)
    content = {
        "alarm_level": drift.alarm_level,
        "drifted": list(drift.drifted),
        "lines": [for_json(line) for line in drift.lines],
        "tests": [dataclasses.asdict(test) for test in drift.tests],
        "classes": {
            name: {"reference": before, "estimated": now}
            for name, (before, now) in drift.classes.items()
        },
        "strangest": [
            {"image": for_json(photo.path), "class": photo.given, "share": photo.share}
            for photo in strange
        ],
    }
    write_text(folder / DRIFT_JSON, json.dumps(content, indent=2) + "\n")
    return DRIFT_HTML, DRIFT_JSON
