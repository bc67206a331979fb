"""The plan of a run before the model is built, human-readable."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_vit.description.class_labels import MULTILABEL
from keras_vit.description.recipe import Fact
from keras_vit.preprocessing import describe_range
from keras_vit.training.data.sources import describe_skipped
from keras_vit.utils.fields import field_info
from keras_vit.utils.files import REPORT
from keras_vit.utils.report import align_columns

from .machine import step_memory
from .settle import Settled

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
        table["samples"], count = plan.samples.line, plan.samples.pictures or "no"
        table[REPORT] = f"curves, numbers, {count} augmented images and up to {count} errors, small"
    if plan.source.notes:
        table["images"] = "; ".join(plan.source.notes)
    if skipped:
        table["skipped"] = "; ".join(line.removeprefix("skipped ") for line in skipped)
    table |= lines
    return align_columns([(name, str(value)) for name, value in table.items()])


def _recipe_line(settings):
    if settings.recipe is None:
        return "the defaults"
    scaled = f", scaled by {settings.scale:g}" if settings.scale != 1 else ""
    return f"{settings.recipe} ({settings.recipe_source}){scaled}"


def fact_lines(facts: Mapping[str, Fact]) -> dict[str, str]:
    """Returns the facts of a run, human-readable, by name."""
    lines = {}
    for name, fact in facts.items():
        value = fact.value
        if name in ("image_size", "photos"):
            value = "{}x{}".format(*value)
        elif name == "pixels":
            value = describe_range(value)
        elif name == "class_weights":
            shown = [f"{label} {weight:.3g}" for label, weight in value.items()]
            value = ", ".join(shown[:MAX_LISTED]) + (", ..." if len(shown) > MAX_LISTED else "")
        lines[name.replace("_", " ") if name in ("image_size", "head_start") else name] = (
            f"{value} ({fact.origin})"
        )
    return lines
