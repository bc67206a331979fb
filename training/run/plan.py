"""The plan of a run before the model is built, its memory and its expected time."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_vit.description import describe
from keras_vit.description.class_labels import MULTILABEL
from keras_vit.description.recipe import Fact
from keras_vit.models.build import build
from keras_vit.prediction import predict_batch
from keras_vit.preprocessing import describe_range
from keras_vit.training.data.sources import describe_skipped
from keras_vit.training.settings import Settings
from keras_vit.utils.fields import field_info
from keras_vit.utils.files import REPORT
from keras_vit.utils.report import align_columns

from .machine import dtype_policy, step_memory
from .settle import Settled

MAX_LISTED = 10  # Class weights in the printed plan.

_DEPTH = 2  # Blocks of a model that shows the rate of this machine,
_OPERATIONS = 3e10  # and the operations of its answers.
# Operations of a step in units of an answer's: the backward pass takes two, for the gradients of
# activations and of weights.
_PASSES = {"all": 3, "lora": 2, "head": 1}


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


def expected_time(plan: Settled) -> str:
    """Returns the expected time of a run on one device, as "about 12 min 5 s: ...".

    It is the time of the operations at the rate of the model's first blocks.

    Args:
        plan: The plan.
    """
    settings, images, config = plan.settings, plan.recipe.images, plan.config
    shape = (*plan.preprocessing.image_size, 3)
    validations = settings.steps // settings.evaluate_every * (2 if settings.averaging else 1)
    evaluated = images["validation"] * validations + images["test"]
    passes = _PASSES[getattr(settings, "train", "all")] + int(settings.remat)
    answers = passes * settings.steps * settings.batch_size + evaluated
    operations = answers * describe(config, input_shape=shape).flops
    rate = answer_rate(config, shape, settings)
    minutes, seconds = divmod(round(operations / rate), 60)
    hours = f"{minutes // 60} h {minutes % 60} min"
    return (
        f"about {hours if minutes >= 60 else f'{minutes} min {seconds} s'}: {operations:.2g} "
        f"operations at {rate / 1e9:.2g} GFLOP/s, measured on the model's first blocks; more for "
        "reading, compiling and augmentation"
    )


def answer_rate(config: Any, shape: tuple[int, int, int], settings: Settings) -> float:
    """Returns the operations per second of a model's answers on the first device.

    A model of at most two of its blocks, with random weights, answers a few images.

    Args:
        config: The model's config.
        shape: `(H, W, 3)`.
        settings: Resolved settings.
    """
    if getattr(config, "depth", 0) > _DEPTH:
        config = dataclasses.replace(config, depth=_DEPTH)
    flops = describe(config, input_shape=shape).flops
    with dtype_policy(settings.precision):
        model = build(config, weights=None, input_shape=shape)
    count = max(1, min(settings.micro_batch_size, round(_OPERATIONS / flops)))
    images = np.zeros((count, *shape), "float32")
    predict_batch(model, images)  # Compiles.
    times = [time.perf_counter()]
    for _ in range(3):
        predict_batch(model, images)
        times.append(time.perf_counter())
    return count * flops / np.diff(times).min()


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
