"""Texts without paths and names of users."""

import dataclasses

import pytest

from keras_vit.description.recipe import Recipe
from keras_vit.description.without_paths import (
    PATHS,
    command_without_paths,
    is_place,
    last_part,
    without_paths,
)
from keras_vit.training.data import DataSpec
from keras_vit.training.settings import FineTuning, PreTraining
from keras_vit.utils.fields import field_info


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/home/jane/clients/acme/photos/", "photos"),
        ("clients/acme/photos", "photos"),
        (r"C:\Users\Jane\photos", "photos"),
        ("~", "~"),
        ("/data/home/photos", "photos"),
        ("tfrecords:/home/jane/records", "tfrecords:records"),
        ("tfds:cifar10:3.0.2", "tfds:cifar10:3.0.2"),
        ("hf:owner/name", "hf:owner/name"),
        ("ViT-B/16", "ViT-B/16"),
        ("ViT-B/16 ImageNet-21k", "ViT-B/16 ImageNet-21k"),
        ("imagenet21k", "imagenet21k"),
        ("..", ".."),
        ("", ""),
    ],
)
def test_a_path_becomes_its_last_part_and_a_name_stays(path, expected):
    assert last_part(path) == expected


def test_a_command_keeps_its_flags_and_names():
    command = "keras-vit finetune --data '/home/jane/my photos' --model ViT-B/16 --output=a/b"
    expected = "keras-vit finetune --data 'my photos' --model ViT-B/16 --output=b"
    assert command_without_paths(command) == expected
    assert "home" not in command_without_paths("don't /home/jane/x")


def test_a_pattern_of_groups_stays():
    pattern = r"(\w+/g\d+)_"
    assert without_paths({"data": {"group_by": pattern}}) == {"data": {"group_by": pattern}}
    for command in (f"x --group-by '{pattern}' b", f"x '--group-by={pattern}' b"):
        assert command_without_paths(command) == command


def test_sentences_of_a_recipe_lose_paths_and_keep_fractions():
    recipe = {
        "data": {"data": "acme/photos"},
        "facts": {"pixels": {"from": "acme/photos, 1/255 and/or not"}},
        "description": {"labels": {"names": ["T-shirt/top", "a/b"]}},
    }
    found = without_paths(recipe)
    assert found["facts"]["pixels"]["from"] == "photos, 1/255 and/or not"
    assert found["description"] == recipe["description"]


def test_a_reduced_recipe_is_not_reduced_again_and_knows_its_data(tmp_path):
    recipe = without_paths({"data": {"data": str(tmp_path / "photos")}})
    assert without_paths(recipe) == recipe
    record = Recipe.from_json(recipe)
    assert is_place(record, str(tmp_path / "x" / ".." / "photos"))
    assert not is_place(record, "photos")
    assert is_place(Recipe(data={"data": "tfds:cifar10"}), "tfds:cifar10")


@pytest.mark.parametrize("settings", [DataSpec, FineTuning, PreTraining])
def test_every_setting_that_takes_a_path_is_reduced(settings):
    units = {"DATA", "DIR", "FOLDER", "FILE", "WEIGHTS", "balanced|FILE", "N|FOLDER|none", "PATH"}
    fields = dataclasses.fields(settings)
    assert {field.name for field in fields if field_info(field).unit in units} <= set(PATHS)
