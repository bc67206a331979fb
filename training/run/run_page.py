"""`report.html`: the page of a run with curves, augmented images, confusion and errors."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from keras_vit.description.class_labels import SCORES, SEPARATOR
from keras_vit.images.pages import (
    GridPicture,
    facts_table,
    heading,
    line_chart,
    paragraph,
    picture_grid,
    write_page,
)
from keras_vit.images.samples import at_model_size, encoded_png
from keras_vit.images.transcoding import decode_file
from keras_vit.training.data import training_batches
from keras_vit.training.data.augmentations import mixes_batches
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.evaluation.reports import EvaluationReport, error_images, report_parts
from keras_vit.utils.fields import required
from keras_vit.utils.files import REPORT

from .plan import TrainingPlan


def write_run_page(
    folder: pathlib.Path,
    plan: TrainingPlan,
    data: DataSpec,
    history: Sequence[Mapping[str, str]] = (),
    report: EvaluationReport | None = None,
) -> None:
    """Writes `report.html`; it needs no network and links to no file.

    Pictures are of at most the model's size and without metadata; how many there are, and whether
    there are any, is `ChosenSamples.pictures`, which the plan prints.

    Args:
        folder: The folder of the run.
        plan: The plan.
        data: The data, for the names of images relative to them.
        history: The rows of `history.csv`; none before the first step.
        report: The evaluation on the test images, if there is one.
    """
    settings, source = plan.settings, plan.source
    pictures = required(plan.samples, "samples").pictures
    facts = {
        "model": plan.recipe["model"],
        "classes": len(source.class_names),
        "images": ", ".join(f"{count:,} {part}" for part, count in plan.recipe["images"].items()),
        "steps": f"{settings.steps} of {settings.batch_size} images",
        "learning rate": f"{settings.learning_rate:g}, {settings.decay}",
        "augmentation": settings.augmentation,
    }
    parts = [facts_table(facts.items()), *curves(history, source.task)]
    parts += [heading("First batch as the model sees it")]
    if pictures:
        parts += [picture_grid(augmented_pictures(plan, pictures))]
    else:
        parts += [paragraph("No photo is shown, by the setting samples or without a test part.")]
    if report is None:
        if history:
            parts += [paragraph("The data have no test images: confusion and errors are unknown.")]
    else:
        parts += report_parts(report, error_pictures(plan, report, data, pictures))
    write_page(folder / REPORT, f"Run of {plan.recipe['model']}", *parts)


def curves(history: Sequence[Mapping[str, str]], task: str) -> list[str]:
    """Returns the charts of loss, accuracy and learning rate of a run.

    Args:
        history: The rows of `history.csv`.
        task: The task, which names the columns.
    """
    if not history:
        return []
    score = SCORES[task]
    trained = "accuracy" if "accuracy" in history[0] else "label_accuracy"
    charts = {
        "loss": {name: f"{prefix}loss" for name, prefix in _KINDS.items()},
        score: {
            "training": trained,
            "validation": f"validation_{score}",
            "averaged weights": f"averaged_{score}",
        },
        "learning rate": {"learning rate": "learning_rate"},
    }
    drawn = [
        line_chart(
            {name: _points(history, column) for name, column in columns.items()}, "step", title
        )
        for title, columns in charts.items()
    ]
    return [heading("Curves"), *drawn]


_KINDS = {"training": "", "validation": "validation_", "averaged weights": "averaged_"}


def _points(history, column):
    return [(float(row["step"]), float(row[column])) for row in history if row.get(column)]


def augmented_pictures(plan: TrainingPlan, count: int) -> list[GridPicture]:
    """Returns the first images of the first batch, augmented, with their labels.

    Args:
        plan: The plan.
        count: Images, fewer if a batch has fewer.
    """
    settings, source, options = plan.settings, plan.source, {**plan.batches, "micro_batches": 1}
    if not mixes_batches(plan.batches):
        # Without mixup the first images are the same in any batch.
        options["batch_size"] = min(count, settings.batch_size)
    batches = training_batches(source.splits["train"], **options)
    images, labels = (np.asarray(part)[:count] for part in next(iter(batches)))
    low, high = (np.asarray(value, "float32") for value in plan.preprocessing.value_range)
    pixels = np.clip(np.rint((images - low) / (high - low) * 255), 0, 255).astype("uint8")
    shown = zip(pixels, labels, strict=True)
    return [
        GridPicture("", encoded_png(image), {_label(label, source.class_names): ""})
        for image, label in shown
    ]


def _label(label, names):
    """The text of a class number, of multi-hot labels or of the shares of mixup."""
    if not label.ndim:
        return names[int(label)]
    chosen = np.flatnonzero(label)
    if label.dtype.kind != "f":
        return SEPARATOR.join(names[k] for k in chosen) or "no label"
    return ", ".join(f"{names[k]} {label[k]:.0%}" for k in chosen)


def error_pictures(
    plan: TrainingPlan, report: EvaluationReport, data: DataSpec, count: int
) -> Iterator[GridPicture]:
    """Yields the most confident errors at the model's size, with their answers.

    Args:
        plan: The plan.
        report: The evaluation on the test images.
        data: The data, for the names of images relative to them.
        count: The most images.
    """
    preprocessing = plan.preprocessing
    for name, encoded, caption in error_images(report, count):
        image = at_model_size(decode_file(encoded), preprocessing)
        yield GridPicture("", encoded_png(image), {**caption, str(data.relative(name)): ""})
