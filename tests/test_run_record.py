"""`recipe.json` keeps its keys and values: people keep these files for years."""

import dataclasses
import json
import pathlib
import random
import runpy
import types
import typing

import pytest

import keras_vit
from keras_vit.description.run_record import Fact, Reference, RunRecord
from keras_vit.utils.json_files import of_json, with_present_names

PACKAGED = sorted(pathlib.Path(keras_vit.__file__).parent.glob("weights/*/recipe.json"))
FIELDS = {field.name for field in dataclasses.fields(RunRecord)} - {"others"}
ROOT = pathlib.Path(__file__).parent.parent


@pytest.mark.parametrize("path", PACKAGED, ids=lambda path: path.parent.name)
def test_a_packaged_recipe_keeps_every_entry(path):
    fields = json.loads(path.read_text())
    written = json.loads(json.dumps(RunRecord.from_json(fields).to_json()))
    for name in ("settings", "facts", "description"):
        fields[name] = with_present_names(fields.get(name, {}))
    assert {name: written[name] for name in fields} == fields


@pytest.mark.parametrize("path", PACKAGED, ids=lambda path: path.parent.name)
def test_a_packaged_recipe_is_read(path):
    recipe = RunRecord.from_json(json.loads(path.read_text()))
    assert recipe.classes == 10
    assert recipe.images["train"] == 50_000


def test_a_finished_run_without_validation_and_test_images_says_null():
    fields = RunRecord(job="finetune").to_json()
    assert (fields["best"], fields["test"]) == (None, None)
    assert "decision" not in fields


def test_entries_of_another_program_stay():
    fields = {"data": "photos", "seed": 7, "converted": True, "notes": ["x"], "images": [3]}
    recipe = RunRecord.from_json(fields)
    assert recipe.others == {"data": "photos", "seed": 7, "images": [3]}
    assert recipe.to_json() == fields


def values_of(kind, rng):
    """A random value of a type of a field, which is not the field's default."""
    outer, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if outer is types.UnionType:
        return values_of(rng.choice([one for one in inner if one is not type(None)]), rng)
    if outer is dict:
        return {f"name {i}": values_of(inner[1], rng) for i in range(rng.randint(1, 3))}
    if outer is list:
        return [values_of((*inner, str)[0], rng) for _ in range(rng.randint(1, 3))]
    return {
        bool: lambda: True,
        int: lambda: rng.randint(1, 9),
        float: lambda: rng.random(),
        str: lambda: rng.choice(["int", "list", "None", "photos"]),
        typing.Any: lambda: rng.choice([1.5, "a", None, False, [1, ["b"]], {"c": {}}]),
        Fact: lambda: Fact(rng.random(), "here", reference=Reference("always cat", 0.5, 9)),
    }[kind]()


@pytest.mark.parametrize("job", ["", "finetune"])
@pytest.mark.parametrize("name", sorted(FIELDS))
def test_every_field_survives_its_file(name, job):
    kind, rng = typing.get_type_hints(RunRecord)[name], random.Random(name)
    for _ in range(20):
        recipe = RunRecord(**{"job": job, name: values_of(kind, rng)}, others={"of another": [1]})
        assert RunRecord.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_a_field_that_is_set_wins_over_the_entry_of_another_program(name):
    value = values_of(typing.get_type_hints(RunRecord)[name], random.Random(name))
    recipe = RunRecord(**{name: value})
    others = dataclasses.replace(recipe, others={name: "of another"})
    assert others.to_json() == recipe.to_json()


def test_a_fact_keeps_its_hash_and_reference():
    for fact in (
        Fact("a", "b", sha256="c"),
        Fact([1, 2], "d", reference=Reference("always cat", 0.5, 9)),
    ):
        assert of_json(Fact, json.loads(json.dumps(fact.to_json()))) == fact


def test_a_reference_of_another_form_is_none():
    for reference in (["always cat"], "abc", [1, {}, 2], {"name": "always cat"}):
        assert of_json(Fact, {"value": "a", "reference": reference}).reference is None


@pytest.fixture(scope="module")
def field_page():
    """The program that writes the pages of fields."""
    return runpy.run_path(str(ROOT / "docs" / "field_page.py"))


@pytest.mark.parametrize("name", ["fields.md", "description_fields.md"])
def test_a_page_of_fields_is_made_from_the_code(field_page, name):
    """If it differs, run `python docs/field_page.py`."""
    assert (ROOT / "docs" / name).read_text() == field_page["page"](*field_page["PAGES"][name])


def test_the_page_of_fields_lists_every_entry_of_a_recipe(field_page):
    assert {name for name, _ in field_page["fields_of"]((RunRecord,))} == FIELDS


def test_a_field_without_a_text_is_an_error_of_the_page(field_page):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class More(RunRecord):
        __doc__ = RunRecord.__doc__
        unexplained: int = 0

    with pytest.raises(ValueError, match="More.unexplained"):
        list(field_page["fields_of"]((More,)))
