"""`keras-vit recipes`: the paper's recipes by name, and ours for small classifiers."""

from __future__ import annotations

import dataclasses
import math

from keras_vit.commands import Command
from keras_vit.training.recipes import (
    FINETUNING,
    HYPER_RULE,
    HYPER_RULE_NAME,
    MASKED_PATCHES,
    PRETRAINING,
    SMALL,
    find_recipe,
)
from keras_vit.training.settings import FineTuning, MaskedPatches, PreTraining, Settings
from keras_vit.utils.fields import changed, field_info, setting
from keras_vit.utils.report import align_columns

# The settings by the command that takes them.
SETTINGS = {kind.command: kind for kind in (FineTuning, PreTraining, MaskedPatches)}

TABLES = {
    f'keras-vit pretrain --recipe "{next(iter(PRETRAINING))}"': PRETRAINING,
    "keras-vit pretrain --objective masked-patches, which needs no labels": MASKED_PATCHES,
    'keras-vit finetune --recipe "CIFAR-10"; keras-vit sweep tries the learning rates': FINETUNING,
    "Ours, for images of 32 pixels; finetune starts the last from the one before it": SMALL,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipes(Command):
    """List the paper's recipes, and ours for small classifiers."""

    names: tuple[str, ...] = setting(
        (),
        'such as "CIFAR-10"; a table of all by default',
        unit="NAME",
        positional=True,
    )
    scale: float = changed(
        Settings,
        "scale",
        help="of the recipe's images, in (0, 1], as keras-vit pretrain and finetune take it",
    )

    without_tensorflow = True

    def run(self) -> None:
        """Prints the tables, or all values of the named recipes."""
        if self.names:
            print("\n\n".join(recipe_details(name, self.scale) for name in self.names))
            return
        for title, recipes in TABLES.items():
            print(f"{title}\n\n{recipe_table(recipes.values(), self.scale)}\n")
        print(f"{HYPER_RULE_NAME}, for keras-vit finetune of a ResNet: {_rule()}")


def recipe_table(recipes, scale=1.0):
    """Returns a line for each recipe; the columns are settings with a `column`."""
    columns = {
        field.name: column
        for field in dataclasses.fields(Settings)
        if (column := field_info(field).column)
    }
    rows = [("recipe", *columns.values())]
    for recipe in recipes:
        values = {name: getattr(_settings(recipe, scale), name) for name in columns}
        if scale == 1 and recipe.learning_rates:
            values["learning_rate"] = recipe.learning_rates
        rows.append((recipe.name, *(_text(value) for value in values.values())))
    is_text = [isinstance(value, str | tuple) for value in values.values()]
    left = {0, *(column for column, text in enumerate(is_text, start=1) if text)}
    return align_columns(rows, left)


def recipe_details(name, scale=1.0):
    """Returns every value of a recipe."""
    if name.lower() == HYPER_RULE_NAME.lower():
        return f"{HYPER_RULE_NAME}\n  {_rule()}"
    recipe = find_recipe(name)
    facts = {name: getattr(recipe, name) for name in ("source", "data", "epochs", "learning_rates")}
    values = {name: value for name, value in facts.items() if value}
    values |= _settings(recipe, scale).in_use()
    for name in ("recipe", "recipe_source"):
        del values[name]
    lines = (f"  {name} = {value}" for name, value in values.items())
    return "\n".join([f"{recipe.name}, for keras-vit {recipe.command}", *lines])


def _settings(recipe, scale):
    return SETTINGS[recipe.command].from_recipe(recipe.name, scale)


def _text(value):
    """Returns a cell of the table."""
    if isinstance(value, tuple):
        return ", ".join(map(_text, dict.fromkeys(value)))  # One side of a square image.
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _rule():
    parts = []
    for most, steps, boundaries, warmup_steps, mixup in HYPER_RULE:
        images = "more" if most == math.inf else f"fewer than {most:,}"
        parts.append(
            f"{steps:,} steps with {images} (warm-up {warmup_steps}, a tenth after each of "
            f"{boundaries}, mixup {mixup})"
        )
    return "; ".join(parts)
