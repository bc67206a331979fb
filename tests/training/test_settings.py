"""Settings of the jobs and the recipes that they come from."""

import dataclasses
import itertools
import json
import re
import types

import pytest

from keras_vit.training import recipes
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.settings import (
    DecisionSettings,
    FineTuning,
    MaskedPatches,
    PreTraining,
)
from keras_vit.utils.fields import field_info

SETTINGS = {kind.command: kind for kind in (PreTraining, MaskedPatches, FineTuning)}


@pytest.mark.parametrize("recipe", recipes.RECIPES.values(), ids=lambda recipe: recipe.name)
def test_every_recipe_resolves_to_settings_with_its_values(recipe):
    kind = SETTINGS[recipe.command]
    settings = kind.from_recipe(recipe.name.lower()).resolve(50)
    assert (settings.recipe, settings.recipe_source) == (recipe.name, recipe.source)
    for name, value in recipe.settings.items():
        assert getattr(settings, name) == value, name
    assert 0 <= settings.warmup_steps < settings.steps
    text = json.dumps(settings.to_json())
    assert type(settings).from_json(json.loads(text)) == settings


def test_with_other_steps_the_warm_up_keeps_its_share():
    settings = FineTuning.from_recipe("Oxford Flowers-102", steps=50)
    assert (settings.steps, settings.warmup_steps) == (50, 10)
    given = FineTuning.from_recipe("Oxford Flowers-102", steps=50, warmup_steps=3)
    assert given.warmup_steps == 3


KINDS = (FineTuning, PreTraining, MaskedPatches, DecisionSettings, DataSpec)
NUMBERS = (float("nan"), float("inf"), -1, 0, 1, 2)


def rows(kinds, of_kind):
    """A parameter for each dataclass of settings and each of its fields or rules."""
    return [pytest.param(kind, row, id=name) for kind in kinds for name, row in of_kind(kind)]


def bounded_fields(kind):
    """The fields that have limits or choices."""
    for field in dataclasses.fields(kind):
        if field_info(field).limits or field_info(field).choices:
            yield f"{kind.__name__}.{field.name}", field


def values_outside(field):
    """Values that a field must refuse, by its declaration."""
    info, is_tuple = field_info(field), str(field.type).startswith("tuple")
    if info.choices or str(field.type).startswith("str"):
        values = ["none of them"]
    else:
        values = [value for value in NUMBERS if not info.limits[1](value)]
    return [(value, value) if is_tuple else value for value in values]


@pytest.mark.parametrize(("kind", "field"), rows(KINDS, bounded_fields))
def test_a_value_outside_of_its_field_is_named(kind, field):
    values = values_outside(field)
    assert values
    for value in values:
        with pytest.raises(ValueError, match=rf"^{field.name} must be ") as error:
            kind(**{field.name: value})
        assert str(error.value).rpartition(" Received: ")[2].startswith(f"{field.name}=")
        assert str(value) in str(error.value)


def rules(kind):
    for rule in kind.RULES:
        yield f"{kind.__name__}: {rule.text}", rule


def items(value):
    return value if isinstance(value, tuple) else (value,)


def values_inside(field):
    """The default of a field and some other values."""
    info, kind = field_info(field), str(field.type)
    others = {"int": (4, 5), "float": (0.5,), "tuple[int, int]": ((400, 9),), "str": ("a", "4")}
    others |= {"tuple[int, ...]": ((3,),)}
    values = info.choices or others[kind.split(" | ")[0]]
    if info.limits:
        values = [value for value in values if all(map(info.limits[1], items(value)))]
    return [field.default, *values]


def broken(kind, rule):
    """The values of a rule's fields that break this rule alone."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    defaults = {name: field.default for name, field in fields.items()}
    for values in itertools.product(*(values_inside(fields[name]) for name in rule.fields)):
        given = dict(zip(rule.fields, values, strict=True))
        settings = types.SimpleNamespace(**defaults | given)
        if [other for other in kind.RULES if not other.holds(settings)] == [rule]:
            yield given


@pytest.mark.parametrize(("kind", "rule"), rows(KINDS[:3], rules))
def test_a_broken_rule_is_stated_with_its_values(kind, rule):
    combinations = list(broken(kind, rule))
    assert combinations
    for given in combinations:
        with pytest.raises(ValueError, match=f"^{re.escape(rule.text)}. Received: ") as error:
            kind(**given)
        for name in given:
            assert f"{name}=" in str(error.value)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_rules_are_in_the_help(kind):
    assert not [rule.text for rule in kind.RULES if rule.text not in kind.__doc__]


def test_steps_per_execution_divide_the_steps():
    settings = FineTuning(steps=12, steps_per_execution=4).resolve(10)
    assert settings.evaluate_every == 4
    with pytest.raises(ValueError, match="steps_per_execution must divide"):
        FineTuning(steps=10, steps_per_execution=4).resolve(10)


@pytest.mark.parametrize("settings_type", [FineTuning, PreTraining, MaskedPatches])
def test_epochs_become_the_steps_in_which_each_image_is_seen_so_often(settings_type):
    settings = settings_type(epochs=3, batch_size=8).with_epochs(100)
    assert (settings.epochs, settings.steps) == (None, 38)  # 300 / 8 = 37.5.
    executed = settings_type(epochs=0.5, batch_size=8, steps_per_execution=4).with_epochs(100)
    assert executed.steps == 8  # 50 / 8 = 6.25, in whole executions.
    assert settings_type(steps=7).with_epochs(100).steps == 7


def test_epochs_win_over_the_steps_of_a_recipe():
    settings = FineTuning.from_recipe("Oxford Flowers-102", epochs=2, batch_size=10)
    assert settings.with_epochs(100).resolve(100).steps == 20
