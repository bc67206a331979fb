"""`keras-vit recipes`: the paper's recipes by name."""

from __future__ import annotations

import dataclasses

from keras_vit.commands import Command
from keras_vit.reports.report import align_columns
from keras_vit.training.recipes import FINETUNING, MASKED_PATCHES, PRETRAINING, find_recipe
from keras_vit.training.settings import FineTuning, MaskedPatches, PreTraining, Settings
from keras_vit.utils.fields import field_info, setting

# The settings by the command that takes them.
SETTINGS = {kind.command: kind for kind in (FineTuning, PreTraining, MaskedPatches)}

TABLES = {
    f'keras-vit pretrain --recipe "{next(iter(PRETRAINING))}"': PRETRAINING,
    "keras-vit pretrain --objective masked-patches, which needs no labels": MASKED_PATCHES,
    'keras-vit finetune --recipe "CIFAR-10"; keras-vit sweep tries the learning rates': FINETUNING,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipes(Command):
    """List the paper's recipes."""

    names: tuple[str, ...] = setting(
        (),
        'such as "CIFAR-10"; a table of all by default',
        unit="NAME",
        positional=True,
    )

    without_tensorflow = True

    def run(self) -> None:
        """Prints the tables, or all values of the named recipes."""
        if self.names:
            print("\n\n".join(map(recipe_details, self.names)))
            return
        for title, recipes in TABLES.items():
            print(f"{title}\n\n{recipe_table(recipes.values())}\n")


def recipe_table(recipes):
    """Returns a line for each recipe; the columns are settings with a `column`."""
    columns = {
        field.name: column
        for field in dataclasses.fields(Settings)
        if (column := field_info(field).column)
    }
    rows = [("recipe", *columns.values())]
    for recipe in recipes:
        values = {name: getattr(_settings(recipe), name) for name in columns}
        if recipe.learning_rates:
            values["learning_rate"] = recipe.learning_rates
        rows.append((recipe.name, *(_text(value) for value in values.values())))
    is_text = [isinstance(value, str | tuple) for value in values.values()]
    left = {0, *(column for column, text in enumerate(is_text, start=1) if text)}
    return align_columns(rows, left)


def recipe_details(name):
    """Returns every value of a recipe."""
    recipe = find_recipe(name)
    facts = {name: getattr(recipe, name) for name in ("source", "data", "epochs", "learning_rates")}
    values = {name: value for name, value in facts.items() if value}
    values |= _settings(recipe).in_use()
    for name in ("recipe", "recipe_source"):
        del values[name]
    lines = (f"  {name} = {value}" for name, value in values.items())
    return "\n".join([f"{recipe.name}, for keras-vit {recipe.command}", *lines])


def _settings(recipe):
    return SETTINGS[recipe.command].from_recipe(recipe.name)


def _text(value):
    """Returns a cell of the table."""
    if isinstance(value, tuple):
        return ", ".join(map(_text, dict.fromkeys(value)))  # One side of a square image.
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
