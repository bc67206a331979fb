"""The plan of a run, and `README.md` of its classifier, also for the Hub."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import shlex
from collections.abc import Mapping, Sequence

from keras_vit.classifier_folder import LOADING, THIS_FOLDER
from keras_vit.description import UNKNOWN, Description
from keras_vit.description.class_labels import MULTILABEL
from keras_vit.description.description_texts import hub_license, without_header
from keras_vit.description.run_record import Fact, RunRecord
from keras_vit.hub.repositories import RepositoryName, import_hugging_face
from keras_vit.preprocessing import describe_range
from keras_vit.reports.pages import (
    MAX_LARGE,
)
from keras_vit.reports.report import NamedFact, Report, markdown_table
from keras_vit.training.data.labelled_files import describe_skipped
from keras_vit.training.evaluation.measures import accuracy_text
from keras_vit.training.evaluation.reports import EvaluationReport
from keras_vit.utils.fields import field_info
from keras_vit.utils.files import MODEL, REPORT, SAMPLES
from keras_vit.utils.safe_text import for_line, for_markdown

from .machine import step_memory
from .plan import Plan

MAX_OLD = 0.05  # The share of the weights before training in the averages that are kept.
MAX_CLASSES = 100  # Rows of the table of classes.
UNTESTED = "The data have no test images: the accuracy is unknown."
MAX_LISTED = 10  # Class weights in the printed plan.


def run_report(record: RunRecord, more: Sequence[NamedFact] = ()) -> Report:
    """Returns what is known of a run: what its plan, its card and its page show.

    Args:
        record: The record of the run so far.
        more: More facts; one of a name that is there replaces it.
    """
    settings = record.settings
    height, width = settings["image_size"]
    model = f"{record.model} at {height}x{width}, {record.classes or 'no'} classes"
    facts = [
        NamedFact("model", model),
        NamedFact("recipe", settings.get("recipe") or "the defaults", _recipe_source(settings)),
        NamedFact("weights", settings.get("weights") or "random"),
        *facts_of_record(record.facts),
        NamedFact("data", f"{record.data_name}: {images_text(record.images)}"),
    ]
    if record.task == MULTILABEL:
        facts.insert(1, NamedFact("task", "multi-label"))
    if "steps" in settings:
        facts.append(NamedFact("steps", _steps_text(record)))
    for name in ("optimizer", "learning_rate", "decay", "augmentation"):
        if name in settings:
            facts.append(NamedFact(name, str(settings[name])))
    by_name = {fact.name: fact for fact in (*facts, *more)}
    return Report(list(by_name.values()))


def _recipe_source(settings):
    return settings.get("recipe_source") or ""


def _steps_text(record):
    steps, batch_size = record.settings["steps"], record.settings["batch_size"]
    accumulate, seen = record.settings["accumulate"], steps * batch_size
    micro_batches = f" in {accumulate} micro-batches" if accumulate > 1 else ""
    epochs = seen / max(record.images["train"], 1)
    text = f"{steps:,} steps of {batch_size} images{micro_batches}: {seen:,} images seen"
    return f"{text}, {epochs:.1f} epochs"


def images_text(images: Mapping[str, int]) -> str:
    """Returns how many images of a run are in which part.

    Args:
        images: By part the images, and those that were skipped.
    """
    texts = [f"{images['train']} images to train"]
    for part, use in (("validation", "validate"), ("calibration", "calibrate"), ("test", "test")):
        if images.get(part) or part != "calibration":
            texts.append(f"{images.get(part, 0)} to {use}")
    if skipped := images.get("skipped"):
        texts.append(f"{skipped} skipped as unreadable")
    return ", ".join(texts)


def facts_of_record(facts: Mapping[str, Fact]) -> list[NamedFact]:
    """Returns the facts that a run found by itself, human-readable."""
    shown = []
    for name, fact in facts.items():
        value = fact.value
        if name in ("image_size", "photos"):
            value = "{}x{}".format(*value)
        elif name == "pixels":
            value = describe_range(value)
        elif name == "class_weight":
            weights = [f"{label} {weight:.3g}" for label, weight in value.items()]
            value = ", ".join(weights[:MAX_LISTED])
            value += ", ..." if len(weights) > MAX_LISTED else ""
        # The value in the record is the JSON.
        numbers = {name: fact.to_json()}
        shown.append(NamedFact(name.replace("_", " "), str(value), fact.origin, numbers))
    return shown


def plan_facts(plan: Plan, lines: Mapping[str, str]) -> list[NamedFact]:
    """Returns what a plan lists in addition to its record.

    Args:
        plan: The plan.
        lines: More lines, by name.
    """
    settings, table = plan.settings, dict(lines)
    memory = step_memory(settings, plan.config, settings.micro_batch_size)
    table["memory"] = (
        f"about {memory / 2**30:.2g} GiB for {settings.micro_batch_size} images at once"
    )
    if plan.description.notes:
        table["notes"] = "; ".join(plan.description.notes)
    if plan.source.notes:
        table["images"] = "; ".join(plan.source.notes)
    if skipped := describe_skipped(plan.source.skipped, names=3):
        table["skipped"] = "; ".join(line.removeprefix("skipped ") for line in skipped)
    momentum, steps = settings.ema_momentum, settings.steps
    if momentum and (old := _before_training(momentum, steps)):
        fitting = math.floor(1000 * MAX_OLD ** (1 / steps)) / 1000
        table["ema_momentum"] = f"{momentum}: the averages are kept, {old}; {fitting} leaves 5%"
    return [NamedFact(name, value) for name, value in table.items()]


def _before_training(momentum, steps):
    """What a Polyak average still has of the weights before the first step; "" for little."""
    share = momentum**steps
    if share <= MAX_OLD:
        return ""
    return f"after {steps} steps still {share:.0%} the weights before training"


def describe_plan(plan: Plan, record: RunRecord, lines: Mapping[str, str]) -> str:
    """Returns the resolved recipe, human-readable.

    Args:
        plan: The plan.
        record: The record of the run so far.
        lines: More lines, by name; a name of a setting replaces its line.
    """
    more = plan_facts(plan, lines)
    taken = {fact.name for fact in (*run_report(record).facts, *more)}
    fields = {field.name: field for field in dataclasses.fields(plan.all_settings)}
    defaults = []
    for name, value in plan.all_settings.in_use().items():
        if name in taken or field_info(fields[name]).line is not None or value is None:
            continue
        if value == fields[name].default:
            defaults.append(f"{name} {value}")
        else:
            more.append(NamedFact(name, str(value)))
    if defaults:
        more.append(NamedFact("defaults", ", ".join(defaults)))
    return run_report(record, more).aligned()


def class_facts(plan: Plan) -> dict[str, str]:
    """Returns what a plan lists of a classifier, by name."""
    facts = {"classes": plan.source.class_line, "samples": plan.samples.line}
    facts[REPORT] = "curves and numbers, no images"
    if count := plan.samples.pictures:
        facts[REPORT] = (
            f"curves, numbers, {count} augmented images and up to {count} errors, each at most "
            f"{MAX_LARGE} pixels wide and high"
        )
    return facts


def describe_end(report: EvaluationReport | None, folder: pathlib.Path, record: RunRecord) -> str:
    """Returns the last lines of a run: its result, where it lies, and what one does next.

    Args:
        report: The evaluation on the test images, if there is one.
        folder: The finished folder.
        record: The record of the finished run.
    """
    photos = SAMPLES if (folder / SAMPLES).exists() else "PHOTOS"
    classifier, export = shlex.quote(str(folder)), shlex.quote(f"{folder.name}.tflite")
    facts = [
        NamedFact("written", str(folder)),
        NamedFact("report", str(folder / REPORT)),
        NamedFact("next", f"keras-vit predict {classifier} {photos}"),
        NamedFact("next", f"keras-vit export {classifier} --to litert --output {export}"),
    ]
    if record.best and record.settings["keep"] == "best":
        step, steps = record.best["step"], record.settings["steps"]
        kept, old = "weights", ""
        if momentum := record.settings["ema_momentum"]:
            kept, old = "averages", _before_training(momentum, step)
        chosen = f"chosen by {record.images['validation']} validation images"
        text = f"the {kept} after step {step} of {steps}, {chosen}"
        facts.insert(0, NamedFact("kept", text, old))
    if report is None:
        return f"{UNTESTED}\n{Report(facts)}"
    tested = NamedFact("test", f"{report.count} images")
    return str(Report([tested, *report.main_facts, *facts]))


def model_card(
    record: RunRecord, class_names: Sequence[str], report: EvaluationReport | None
) -> str:
    """Returns `README.md` of a finished run.

    Args:
        record: The run's record, with "best" and "test".
        class_names: The names, in the order of the model's outputs.
        report: The evaluation on the test images, if there is one.
    """
    images, best = record.images, record.best
    several = record.task == MULTILABEL
    height, width = record.settings["image_size"]
    accuracy = [UNTESTED]
    if report is not None:
        summary = for_markdown(report.summary)
        accuracy = [f"On {report.count} test images, {_use(record.test or {})}: {summary}."]
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
    lines = [
        f"# {for_markdown(record.model)}, {len(class_names)} classes",
        "",
        f"{'A multi-label image' if several else 'An image'} classifier made by `keras-vit "
        f"{record.job}`, for images of {height}x{width} pixels "
        f"({record.facts['evaluation'].value}) with values from "
        f"{describe_range(record.facts['pixels'].value)}.",
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
        f"{_code(record.data_name)}: {images_text(images)}.",
        "",
        _class_table(class_names, report),
        "",
        "## Recipe",
        "",
        *recipe_lines(record),
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


def masked_patch_card(record: RunRecord, history: Sequence[Mapping[str, str]]) -> str:
    """Returns `README.md` of a model that was pre-trained without labels."""
    last = f", colour accuracy {float(history[-1]['accuracy']):.4f}" if history else ""
    lines = [
        f"# {for_markdown(record.model)}, pre-trained without labels",
        f"The body of a Vision Transformer, trained by masked patch prediction{last}. It has no "
        "classes: fine-tune it.",
        "    keras-vit finetune --weights THIS_FOLDER --data IMAGES --output CLASSIFIER",
        f"Data: {_code(record.data_name)}, {images_text(record.images)}.",
    ]
    return "\n\n".join([*lines, "\n".join(recipe_lines(record))])


def recipe_lines(record: RunRecord) -> list[str]:
    """Returns the end of a model card: the command, the settings and the versions of a run."""
    settings = [[name, str(value)] for name, value in record.settings.items()]
    started = record.weights is not None
    versions = (f"{name} {version}" for name, version in record.versions.items())
    license = record.description.get("license") or UNKNOWN
    return [
        *([f"    {for_line(record.command)}", ""] if record.command else []),
        *([f"License of the starting weights: {for_markdown(license)}.", ""] if started else []),
        run_report(record).to_markdown(),
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
