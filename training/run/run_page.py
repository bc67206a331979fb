"""`report.html` of a run: its result, its curves and the first batch."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence

import numpy as np

from keras_vit.description.class_labels import SCORES
from keras_vit.description.run_record import RunRecord
from keras_vit.images.samples import encoded_png
from keras_vit.reports.pages import (
    GridPicture,
    Line,
    Mark,
    chart,
    columns,
    heading,
    paragraph,
    picture_grid,
    report_section,
    write_page,
)
from keras_vit.reports.report import NamedFact
from keras_vit.training.data import training_batches
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.evaluation.reports import EvaluationReport
from keras_vit.utils.files import REPORT

from .card import UNTESTED, run_report
from .folder import RunFolder
from .plan import Plan


def write_run_page(
    folder: RunFolder,
    plan: Plan,
    data: DataSpec,
    record: RunRecord,
    history: Sequence[Mapping[str, str]] = (),
    report: EvaluationReport | None = None,
) -> None:
    """Writes `report.html`; it needs no network and links to no file.

    Pictures have no metadata, and at most `pages.MAX_LARGE` pixels per side. How many there are,
    and whether there are any, is `ChosenSamples.pictures`, which the plan prints.

    Args:
        folder: The folder of the run.
        plan: The plan.
        data: The data, for the names of images relative to them.
        record: The record of the run.
        history: The rows of `history.csv`; none before the first step.
        report: The evaluation on the test images, if there is one.
    """
    source = plan.source
    weights = record.weights or "random weights"
    about = f"{record.model}, {len(source.class_names)} classes, from {weights}"
    parts = [paragraph(f"{about}. Written on {datetime.date.today()}.")]
    if report is not None:
        errors = report.error_pictures(plan.samples.pictures, data.relative)
        parts += report.page_parts(errors)
    else:
        parts += [paragraph(UNTESTED if history else "The run has begun: its result comes here.")]
    if history:
        parts += [heading("Curves"), columns(curves(history, source.task, record))]
    parts += [heading("First batch as the model sees it")]
    if plan.samples.pictures:
        parts += [picture_grid(augmented_pictures(plan, plan.samples.pictures))]
    else:
        parts += [paragraph("No photo is shown, by the setting samples or without a test part.")]
    command = [NamedFact("command", record.command)] if record.command else []
    parts += [heading("The run"), report_section(run_report(record, command))]
    write_page(folder.path / REPORT, folder.output.name, *parts)


def curves(history: Sequence[Mapping[str, str]], task: str, record: RunRecord) -> list[str]:
    """Returns the charts of loss, score and learning rate of a run.

    Args:
        history: The rows of `history.csv`.
        task: The task, which names the columns.
        record: The record of the run, for the step of the kept weights and of each start.
    """
    score = SCORES[task]
    trained = "accuracy" if "accuracy" in history[0] else "label_accuracy"
    charts = {
        "loss": ("loss", "validation_loss", "averaged_loss"),
        score: (trained, f"validation_{score}", f"averaged_{score}"),
        "learning rate": ("learning_rate",),
    }
    marks: list[Mark] = [(f"resumed after step {step}", step) for step in record.resumed or ()]
    if record.best and record.settings["keep"] == "best":
        step = record.best["step"]
        marks.insert(0, (f"kept weights, after step {step}", step))
    parts = []
    for title, names in charts.items():
        lines = []
        for number, name in enumerate(names):
            points = [(float(row["step"]), float(row[name])) for row in history if row.get(name)]
            kind = _KINDS[number] if len(names) > 1 else ""
            if name == "label_accuracy":  # Not the score of the others.
                kind = "training, share of right labels"
            lines.append(Line(kind, points, f"series-{number + 1}"))
        shown = title.capitalize() if title.islower() else title
        parts.append(chart(shown, lines, "step", marks, "y" if title == score else ""))
    return parts


_KINDS = ("training", "validation", "averaged weights")


def augmented_pictures(plan: Plan, count: int) -> list[GridPicture]:
    """Returns the first images of the first batch, augmented, with their labels.

    Args:
        plan: The plan.
        count: Images, fewer if a batch has fewer.
    """
    source, shown = plan.source, dataclasses.replace(plan.batches(), micro_batches=1)
    if not shown.mixes:
        # Without mixup the first images are the same in any batch.
        shown = dataclasses.replace(shown, batch_size=min(count, shown.batch_size))
    batches = training_batches(source.splits["train"], shown)
    images, labels = (np.asarray(part)[:count] for part in next(iter(batches)))
    low, high = (np.asarray(value, "float32") for value in plan.preprocessing.value_range)
    pixels = np.clip(np.rint((images - low) / (high - low) * 255), 0, 255).astype("uint8")
    return [
        GridPicture("", encoded_png(image), {_label(label, source.class_names): ""})
        for image, label in zip(pixels, labels, strict=True)
    ]


def _label(label, names):
    """The text of a class number, of multi-hot labels or of the shares of mixup."""
    if not label.ndim:
        return names[int(label)]
    chosen = np.flatnonzero(label)
    if label.dtype.kind != "f":
        return ", ".join(names[k] for k in chosen) or "no label"
    return ", ".join(f"{names[k]} {label[k]:.0%}" for k in chosen)
