"""`recipe.json` keeps its keys and values: people keep these files for years."""

import dataclasses
import json
import pathlib
import re

import pytest

import keras_vit
from keras_vit.description.recipe import Fact, Recipe

PACKAGED = sorted(pathlib.Path(keras_vit.__file__).parent.glob("weights/*/recipe.json"))
FIELDS = {field.name for field in dataclasses.fields(Recipe)} - {"others"}
ROOT = pathlib.Path(__file__).parent.parent


@pytest.mark.parametrize("path", PACKAGED, ids=lambda path: path.parent.name)
def test_a_packaged_recipe_keeps_every_entry(path):
    fields = json.loads(path.read_text())
    written = json.loads(json.dumps(Recipe.from_json(fields).to_json()))
    assert {name: written[name] for name in fields} == fields


@pytest.mark.parametrize("path", PACKAGED, ids=lambda path: path.parent.name)
def test_a_packaged_recipe_is_read(path):
    recipe = Recipe.from_json(json.loads(path.read_text()))
    assert recipe.classes == 10
    assert recipe.images["train"] == 50_000


def test_a_finished_run_without_validation_and_test_images_says_null():
    fields = Recipe(job="finetune").to_json()
    assert (fields["best"], fields["test"]) == (None, None)
    assert "decision" not in fields


def test_entries_of_another_program_stay():
    fields = {"data": "photos", "seed": 7, "converted": True, "notes": ["x"], "images": [3]}
    recipe = Recipe.from_json(fields)
    assert recipe.others == {"data": "photos", "seed": 7, "images": [3]}
    assert recipe.to_json() == fields


def test_a_fact_keeps_its_hash_and_reference():
    for fact in (Fact("a", "b", sha256="c"), Fact([1, 2], "d", reference=("always cat", 0.5))):
        assert Fact.from_json(json.loads(json.dumps(fact.to_json()))) == fact


def test_the_page_has_every_field():
    page = (ROOT / "docs" / "training.md").read_text()
    section = page.partition("## What recipe.json holds")[2].partition("\n## ")[0]
    assert set(re.findall(r"^- `(\w+)`:", section, re.M)) == FIELDS
