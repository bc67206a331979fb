"""The plan of a run, `README.md` of its classifier, also for the Hub, and its `report.html`."""

from __future__ import annotations

import dataclasses
import datetime
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.classifier_folder import LOADING, THIS_FOLDER
from keras_vit.description import UNKNOWN, Description
from keras_vit.description.class_labels import MULTILABEL, SCORES
from keras_vit.description.description_texts import hub_license, without_header
from keras_vit.description.run_record import Fact, RunRecord
from keras_vit.hub.repositories import RepositoryName, import_hugging_face
from keras_vit.images.samples import encoded_png
from keras_vit.preprocessing import describe_range
from keras_vit.reports.pages import (
    MAX_LARGE,
    GridPicture,
    Line,
    chart,
    columns,
    facts_table,
    heading,
    paragraph,
    picture_grid,
    write_page,
)
from keras_vit.reports.report import align_columns, markdown_table
from keras_vit.training.data import training_batches
from keras_vit.training.data.augmentations import mixes_batches
from keras_vit.training.data.sources import describe_skipped
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.evaluation.measures import accuracy_text
from keras_vit.training.evaluation.reports import EvaluationReport, error_pictures, report_parts
from keras_vit.utils.fields import field_info
from keras_vit.utils.files import MODEL, REPORT, SAMPLES
from keras_vit.utils.safe_text import for_line, for_markdown

from .folder import RunFolder
from .machine import step_memory
from .settle import Settled

MAX_CLASSES = 100  # Rows of the table of classes.
UNTESTED = "The data have no test images: the accuracy is unknown."
MAX_LISTED = 10  # Class weights in the printed plan.


def describe_plan(
    plan: Settled, lines: Mapping[str, str], facts: Mapping[str, Fact] | None = None
) -> str:
    """Returns the resolved recipe, human-readable.

    Args:
        plan: What was settled.
        lines: More lines, by name; a name of a setting replaces its line.
        facts: The facts of the run, by default those at its start.
    """
    recipe, settings, images = plan.recipe, plan.settings, plan.recipe.images
    seen = settings.steps * settings.batch_size
    height, width = plan.preprocessing.image_size
    micro_batches = f" ({settings.accumulate} micro-batches)" if settings.accumulate > 1 else ""
    memory = step_memory(settings, plan.config, settings.micro_batch_size)
    skipped = describe_skipped(plan.source.skipped, names=3)
    notes = plan.description.notes
    table: dict[str, Any] = {
        "model": f"{recipe.model} at {height}x{width}, {recipe.classes or 'no'} classes",
        **({"classes": plan.source.class_line} if recipe.classes else {}),
        **({"task": "multi-label"} if plan.source.task == MULTILABEL else {}),
        "recipe": _recipe_line(settings),
        "weights": getattr(settings, "weights", None) or "random",
        **fact_lines(recipe.facts if facts is None else facts),
        **({"notes": "; ".join(notes)} if notes else {}),
        "data": f"{recipe.data_name}: {images['train']} images to train, "
        f"{images['validation']} to validate, "
        + (f"{images['calibration']} to calibrate, " if images["calibration"] else "")
        + f"{images['test']} to test"
        + (f", {images['skipped']} skipped" if images["skipped"] else ""),
        "steps": f"{settings.steps} of {settings.batch_size} images{micro_batches}: "
        f"{seen:,} images seen, {seen / max(images['train'], 1):.1f} epochs",
        "memory": f"about {memory / 2**30:.2g} GiB for {settings.micro_batch_size} images at once",
    }
    shown = {field.name: field_info(field).line for field in dataclasses.fields(settings)}
    for name, value in settings.in_use().items():
        if name not in table and shown[name] is None:
            table[name] = value
    if plan.has_classes:
        table["samples"] = plan.samples.line
        table[REPORT] = "curves and numbers, no images"
        if count := plan.samples.pictures:
            table[REPORT] = (
                f"curves, numbers, {count} augmented images and up to {count} errors, each at most "
                f"{MAX_LARGE} pixels wide and high"
            )
    if plan.source.notes:
        table["images"] = "; ".join(plan.source.notes)
    if skipped:
        table["skipped"] = "; ".join(line.removeprefix("skipped ") for line in skipped)
    table |= lines
    return align_columns([(name, str(value)) for name, value in table.items()])


def _recipe_line(settings):
    if settings.recipe is None:
        return "the defaults"
    return f"{settings.recipe} ({settings.recipe_source})"


def fact_lines(facts: Mapping[str, Fact]) -> dict[str, str]:
    """Returns the facts of a run, human-readable, by name."""
    lines = {}
    for name, fact in facts.items():
        value = fact.value
        if name in ("image_size", "photos"):
            value = "{}x{}".format(*value)
        elif name == "pixels":
            value = describe_range(value)
        elif name == "class_weight":
            shown = [f"{label} {weight:.3g}" for label, weight in value.items()]
            value = ", ".join(shown[:MAX_LISTED]) + (", ..." if len(shown) > MAX_LISTED else "")
        lines[name.replace("_", " ") if name in ("image_size", "head_start") else name] = (
            f"{value} ({fact.origin})"
        )
    return lines


def describe_end(report: EvaluationReport | None, folder: pathlib.Path) -> str:
    """Returns the last lines of a run: its result, where it lies, and what one does next.

    Args:
        report: The evaluation on the test images, if there is one.
        folder: The finished folder.
    """
    lines = [UNTESTED]
    if report is not None:
        lines = [f"test    {report.count} images", *report.main_lines]
    photos = SAMPLES if (folder / SAMPLES).exists() else "PHOTOS"
    classifier, export = shlex.quote(str(folder)), shlex.quote(f"{folder.name}.tflite")
    lines += [
        f"written {folder}",
        f"report  {folder / REPORT}",
        f"next    keras-vit predict {classifier} {photos}",
        f"next    keras-vit export {classifier} --to litert --output {export}",
    ]
    return "\n".join(lines)


def model_card(
    recipe: RunRecord, class_names: Sequence[str], report: EvaluationReport | None
) -> str:
    """Returns `README.md` of a finished run.

    Args:
        recipe: The run's recipe, with "best" and "test".
        class_names: The names, in the order of the model's outputs.
        report: The evaluation on the test images, if there is one.
    """
    images, best = recipe.images, recipe.best
    several = recipe.task == MULTILABEL
    height, width = recipe.settings["image_size"]
    accuracy = [UNTESTED]
    if report is not None:
        summary = for_markdown(report.summary)
        accuracy = [f"On {report.count} test images, {_use(recipe.test or {})}: {summary}."]
        if not several:
            accuracy.append("The shares have their 95% intervals.")
    if best:
        score = f"mAP {best['mAP']:.4f}" if several else "top-1 "
        score += "" if several else accuracy_text(best["accuracy"], images["validation"])
        accuracy += [
            "",
            f"On {images['validation']} validation images: {score} after step {best['step']}, the "
            "best, whose weights are in `model.keras`.",
        ]
    calibrated = f"{images['calibration']} to calibrate, " if images.get("calibration") else ""
    lines = [
        f"# {for_markdown(recipe.model)}, {len(class_names)} classes",
        "",
        f"{'A multi-label image' if several else 'An image'} classifier made by `keras-vit "
        f"{recipe.job}`, for images of {height}x{width} pixels "
        f"({recipe.facts['evaluation'].value}) with values from "
        f"{describe_range(recipe.facts['pixels'].value)}.",
        "",
        "```python",
        "import keras_vit",
        "",
        f'classifier = keras_vit.load_classifier("{THIS_FOLDER}")',
        f'print(classifier.predict("image.jpg")[0].{"labels" if several else "top"})',
        "```",
        "",
        LOADING,
        "",
        "## Accuracy",
        "",
        *accuracy,
        "",
        "## Data",
        "",
        f"{_code(recipe.data_name)}: {images['train']} images to train, {images['validation']} to "
        f"validate, {calibrated}{images['test']} to test, {images['skipped']} skipped as "
        "unreadable.",
        "",
        _class_table(class_names, report),
        "",
        "## Recipe",
        "",
        *recipe_lines(recipe),
    ]
    return "\n".join(lines)


def _code(text):
    """A text as code in a line of Markdown, which no back quote of it can end."""
    shown = for_line(text).replace("`", "'")
    return f"`{shown}`"


def _use(test):
    """What is known of the use of the test images in training."""
    if seen := test.get("seen"):
        return (
            f"{seen} of which show things that were trained on, or chosen by, in this run or the "
            "run of its weights, so that new images may have a lower accuracy"
        )
    if not test.get("start_is_known", True):
        return (
            "used in this run neither for training nor for any choice; whether the run of its "
            "starting weights saw them is not recorded"
        )
    return "used neither for training nor for any choice"


def masked_patch_card(recipe: RunRecord, history: Sequence[Mapping[str, str]]) -> str:
    """Returns `README.md` of a model that was pre-trained without labels."""
    images = recipe.images
    last = f", colour accuracy {float(history[-1]['accuracy']):.4f}" if history else ""
    lines = [
        f"# {for_markdown(recipe.model)}, pre-trained without labels",
        f"The body of a Vision Transformer, trained by masked patch prediction{last}. It has no "
        "classes: fine-tune it.",
        "    keras-vit finetune --weights THIS_FOLDER --data IMAGES --output CLASSIFIER",
        f"Data: {_code(recipe.data_name)}, {images['train']} images to train, {images['skipped']} "
        "skipped as unreadable.",
    ]
    return "\n\n".join([*lines, "\n".join(recipe_lines(recipe))])


def recipe_lines(recipe: RunRecord) -> list[str]:
    """Returns the end of a model card: the command, the settings and the versions of a run."""
    settings = [[name, str(value)] for name, value in recipe.settings.items()]
    facts = [list(line) for line in fact_lines(recipe.facts).items()]
    started = recipe.weights is not None
    versions = (f"{name} {version}" for name, version in recipe.versions.items())
    license = recipe.description.get("license") or UNKNOWN
    return [
        *([f"    {for_line(recipe.command)}", ""] if recipe.command else []),
        *([f"License of the starting weights: {for_markdown(license)}.", ""] if started else []),
        markdown_table([["at the start", "value and origin"], *facts]),
        "",
        markdown_table([["setting", "value"], *settings]),
        "",
        f"Made with {', '.join(versions)}.",
        "",
    ]


def _class_table(class_names, report):
    """The numbers of each class on the test images."""
    rows = [["class"], *([name] for name in class_names)]
    if report is not None:
        rows = report.tables()["per_class"].texts()
    shown, left = rows[: MAX_CLASSES + 1], len(rows) - 1 - MAX_CLASSES
    more = [f"\n{left} more in `classes.txt`."] if left > 0 else []
    return "\n".join([markdown_table(shown), *more])


def hub_card(description: Description, text: str, *, repository: str) -> str:
    """Returns `README.md` of a pushed classifier.

    Args:
        description: What the classifier is.
        text: Its `README.md`, or "".
        repository: "owner/name".
    """
    hub, start = import_hugging_face(), RepositoryName.parse(description.origins.get("weights"))
    data = hub.ModelCardData(
        **hub_license(description.license),
        library_name="keras",
        pipeline_tag="image-classification",
        base_model=start.name if start else None,
        tags=["keras-vit", *(["vision-transformer"] if description.position_resize else [])],
    )
    text = without_header(text).replace(THIS_FOLDER, f"hf:{repository}")
    text = text.replace(f'load_model("{MODEL}")', f'load_model("hf://{repository}")')
    return f"---\n{data.to_yaml()}\n---\n\n" + (text or f"# {repository}\n")


def write_run_page(
    folder: RunFolder,
    plan: Settled,
    data: DataSpec,
    recipe: RunRecord,
    history: Sequence[Mapping[str, str]] = (),
    report: EvaluationReport | None = None,
) -> None:
    """Writes `report.html`; it needs no network and links to no file.

    Pictures have no metadata, and at most `MAX_LARGE` pixels per side. How many there are, and
    whether there are any, is `ChosenSamples.pictures`, which the plan prints.

    Args:
        folder: The folder of the run.
        plan: The plan.
        data: The data, for the names of images relative to them.
        recipe: The record of the run.
        history: The rows of `history.csv`; none before the first step.
        report: The evaluation on the test images, if there is one.
    """
    settings, source = plan.settings, plan.source
    weights = recipe.weights or "random weights"
    about = f"{recipe.model}, {len(source.class_names)} classes, from {weights}"
    parts = [paragraph(f"{about}. Written on {datetime.date.today()}.")]
    if report is not None:
        errors = error_pictures(report, plan.samples.pictures, data.relative)
        parts += report_parts(report, errors)
    else:
        parts += [paragraph(UNTESTED if history else "The run has begun: its result comes here.")]
    if history:
        parts += [heading("Curves"), columns(curves(history, source.task, recipe))]
    parts += [heading("First batch as the model sees it")]
    if plan.samples.pictures:
        parts += [picture_grid(augmented_pictures(plan, plan.samples.pictures))]
    else:
        parts += [paragraph("No photo is shown, by the setting samples or without a test part.")]
    images = (f"{count:,} {part}" for part, count in recipe.images.items() if count)
    facts = {
        "command": recipe.command,
        "data": recipe.data_name,
        "images": ", ".join(images),
        "things": recipe.facts["things"].value if "things" in recipe.facts else "",
        "image size": "{} x {}".format(*plan.preprocessing.image_size),
        "steps": f"{settings.steps} of {settings.batch_size} images",
        "learning rate": f"{settings.learning_rate:g}, {settings.decay}",
        "augmentation": settings.augmentation,
    }
    parts += [heading("The run"), facts_table(fact for fact in facts.items() if fact[1])]
    write_page(folder.path / REPORT, folder.output.name, *parts)


def curves(history: Sequence[Mapping[str, str]], task: str, recipe: RunRecord) -> list[str]:
    """Returns the charts of loss, score and learning rate of a run.

    Args:
        history: The rows of `history.csv`.
        task: The task, which names the columns.
        recipe: The record of the run, for the step of the kept weights and of each start.
    """
    score = SCORES[task]
    trained = "accuracy" if "accuracy" in history[0] else "label_accuracy"
    charts = {
        "loss": ("loss", "validation_loss", "averaged_loss"),
        score: (trained, f"validation_{score}", f"averaged_{score}"),
        "learning rate": ("learning_rate",),
    }
    marks = [(f"resumed after step {step}", step) for step in recipe.resumed or ()]
    if recipe.best and recipe.settings["keep"] == "best":
        step = recipe.best["step"]
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


def augmented_pictures(plan: Settled, count: int) -> list[GridPicture]:
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
        return ", ".join(names[k] for k in chosen) or "no label"
    return ", ".join(f"{names[k]} {label[k]:.0%}" for k in chosen)
