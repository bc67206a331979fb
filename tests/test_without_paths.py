"""Texts without paths and names of users."""

import dataclasses

import pytest

from keras_vit.description.run_record import RunRecord
from keras_vit.description.without_paths import (
    PATHS,
    command_without_paths,
    is_place,
    shown_path,
    without_paths,
)
from keras_vit.training.data import DataSpec
from keras_vit.training.settings import FineTuning, PreTraining
from keras_vit.utils.fields import field_info


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/home/jane/clients/acme/photos/", ".../photos"),
        ("runs/photos", "runs/photos"),
        ("../my photos (1)/train", "../my photos (1)/train"),
        (r"runs\photos", r"runs\photos"),
        (r"C:\Users\Jane\photos", ".../photos"),
        (r"\\server\jane\photos", ".../photos"),
        ("~/acme/photos", ".../photos"),
        ("~", "~"),
        ("/", "/"),
        ("a=/home/jane/photos", ".../photos"),
        ("gs://jane/photos", ".../photos"),
        ("tfrecords:/home/jane/records", "tfrecords:.../records"),
        ("tfrecords:acme/records", "tfrecords:acme/records"),
        ("tfds:cifar10:3.0.2", "tfds:cifar10:3.0.2"),
        ("hf:owner/name", "hf:owner/name"),
        ("ViT-B/16", "ViT-B/16"),
        ("ViT-B/16 ImageNet-21k", "ViT-B/16 ImageNet-21k"),
        ("imagenet21k", "imagenet21k"),
        ("..", ".."),
        ("", ""),
    ],
)
def test_a_relative_path_stays_and_another_is_its_last_part(path, expected):
    assert shown_path(path) == expected


def test_a_command_keeps_its_flags_and_names():
    command = "keras-vit finetune --data '/home/jane/my photos' --model ViT-B/16 --output=a/b"
    note = "  # .../ stands for folders that are left out"
    expected = f"keras-vit finetune --data '.../my photos' --model ViT-B/16 --output=a/b{note}"
    assert command_without_paths(command) == expected
    assert command_without_paths(expected) == expected
    assert "home" not in command_without_paths("don't /home/jane/x")


def test_a_command_with_relative_paths_can_be_copied():
    command = "keras-vit finetune --data 'my photos/2024' --weights runs/a --output=runs/photos"
    assert command_without_paths(command) == command


def test_a_pattern_of_groups_stays():
    pattern = r"(\w+/g\d+)_"
    assert without_paths({"data": {"group_by": pattern}}) == {"data": {"group_by": pattern}}
    for command in (f"x --group-by '{pattern}' b", f"x '--group-by={pattern}' b"):
        assert command_without_paths(command) == command


def test_sentences_of_a_recipe_lose_paths_and_keep_fractions():
    recipe = {
        "data": {"data": "/acme/photos"},
        "facts": {"pixels": {"from": "/acme/photos, 1/255 and/or not"}},
        "description": {"labels": {"names": ["T-shirt/top", "a/b"]}},
    }
    found = without_paths(recipe)
    assert found["facts"]["pixels"]["from"] == ".../photos, 1/255 and/or not"
    assert found["description"] == recipe["description"]


def test_a_reduced_recipe_is_not_reduced_again_and_knows_its_data(tmp_path):
    recipe = without_paths({"data": {"data": str(tmp_path / "photos")}})
    assert without_paths(recipe) == recipe
    record = RunRecord.from_json(recipe)
    assert is_place(record, str(tmp_path / "x" / ".." / "photos"))
    assert not is_place(record, "photos")
    assert is_place(RunRecord(data={"data": "tfds:cifar10"}), "tfds:cifar10")


def test_relative_data_are_known_from_another_folder(tmp_path, monkeypatch):
    (tmp_path / "acme" / "photos").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    record = RunRecord.from_json(without_paths({"data": {"data": "acme/photos"}}))
    assert record.data_name == "acme/photos"
    monkeypatch.chdir(tmp_path / "acme")
    assert is_place(record, "photos")


def test_the_hash_of_the_place_decides_whatever_lies_under_the_name_today(tmp_path, monkeypatch):
    for folder in ("a", "b"):
        (tmp_path / folder / "photos").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a")
    record = RunRecord.from_json(without_paths({"data": {"data": "photos"}}))
    monkeypatch.chdir(tmp_path / "b")
    assert not is_place(record, "photos")
    assert not is_place(record, str(tmp_path / "b" / "photos"))
    assert is_place(record, "../a/photos")


@pytest.mark.parametrize("name", ["photos", "list.csv"])
def test_a_record_without_a_hash_knows_its_data_by_name_alone(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record = RunRecord.from_json({"data": {"data": name}})
    assert is_place(record, name)
    assert not is_place(record, str(tmp_path / name))
    assert not is_place(RunRecord(), "")


def test_records_are_known_with_their_scheme_and_without_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record = RunRecord.from_json(without_paths({"data": {"data": f"tfrecords:{tmp_path}/records"}}))
    monkeypatch.chdir("/")
    for path in (f"tfrecords:{tmp_path}/records", f"{tmp_path}/records"):
        assert is_place(record, path)


def test_data_without_a_place_have_no_hash(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("tfds:cifar10", "memory:0123"):
        (tmp_path / name).mkdir()
        assert without_paths({"data": {"data": name}}) == {"data": {"data": name}}


@pytest.mark.parametrize("settings", [DataSpec, FineTuning, PreTraining])
def test_every_setting_that_takes_a_path_is_reduced(settings):
    units = {"DATA", "DIR", "FOLDER", "FILE", "WEIGHTS", "balanced|FILE", "N|FOLDER|none", "PATH"}
    fields = dataclasses.fields(settings)
    assert {field.name for field in fields if field_info(field).unit in units} <= set(PATHS)
