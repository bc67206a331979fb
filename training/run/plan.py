"""The plan of a run: everything that is known before the model is built."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_vit.training.data import Examples, Source
from keras_vit.training.fields import field_info, required

from .memory import step_memory
from .transfer import Body


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
    """A run of which everything is known but the model's weights.

    Args:
        body: The architecture and where its weights are.
        source: The images in splits: "train", and if there are any, "validation", by which
            the best weights are chosen, and "test".
        settings: Resolved settings.
        recipe: The content of `recipe.json`.
    """

    body: Body
    source: Source
    settings: Any
    recipe: dict[str, Any]

    @property
    def validation(self) -> Examples | None:
        """The images to choose the best weights by."""
        return self.source.splits.get("validation")


def describe_plan(plan: TrainingPlan, lines: Mapping[str, Any] | None = None) -> str:
    """Returns the resolved recipe for people.

    Args:
        plan: The plan.
        lines: More lines, by name; a name of a setting replaces its line.
    """
    recipe, settings, images = plan.recipe, plan.settings, plan.recipe["images"]
    seen = settings.steps * settings.batch_size
    height, width = required(settings.image_size, "image_size")
    micro_batches = f" ({settings.accumulate} micro-batches)" if settings.accumulate > 1 else ""
    memory = step_memory(settings, plan.body.config, settings.micro_batch_size)
    table = {
        "model": f"{recipe['model']} at {height}x{width}, {recipe['classes'] or 'no'} classes",
        "recipe": _recipe_line(settings),
        "weights": getattr(settings, "weights", None) or "random",
        "data": f"{recipe['data']['data']}: {images['train']} images to train, "
        f"{images['validation']} to validate, {images['test']} to test"
        + (f", {images['skipped']} skipped" if images["skipped"] else ""),
        "steps": f"{settings.steps} of {settings.batch_size} images{micro_batches}: "
        f"{seen:,} images seen, {seen / max(images['train'], 1):.1f} epochs",
        "memory": f"about {memory / 2**30:.2g} GiB for {settings.micro_batch_size} images at once",
    }
    shown = {field.name: field_info(field).line for field in dataclasses.fields(settings)}
    for name, value in settings.in_use().items():
        if name not in table and shown[name] is None:
            table[name] = value
    table |= lines or {}
    widest = max(map(len, table))
    return "\n".join(f"{name:<{widest}}  {value}" for name, value in table.items())


def _recipe_line(settings):
    if settings.recipe is None:
        return "the defaults"
    scaled = f", scaled by {settings.scale:g}" if settings.scale != 1 else ""
    return f"{settings.recipe} ({settings.recipe_source}){scaled}"
