"""`DataSpec`: from options to splits, and to `recipe.json` and back."""

import json
import pathlib

import pytest

from keras_vit.training.data.spec import DataSpec, data_spec

THREE_SPLITS = {f"{split}/{label}": 3 for split in ("train", "val", "test") for label in "ab"}


def counts(spec, *arguments, **options):
    splits = spec.open(*arguments, verify=False, **options).splits
    return {name: len(examples) for name, examples in splits.items()}


def test_validation_images_come_out_of_the_training_images(make_folder):
    spec = DataSpec(make_folder({"a": 20, "b": 20}), holdout=0.5)
    assert counts(spec) == {"train": 20, "test": 20}
    assert counts(spec, 0.2) == {"train": 16, "validation": 4, "test": 20}
    assert counts(spec, lambda num_images: 2 / num_images)["validation"] == 2
    assert counts(spec, 0.0) == {"train": 20, "test": 20}


def test_a_validation_part_of_the_data_is_kept_unless_the_share_is_0(make_folder):
    spec = DataSpec(make_folder(THREE_SPLITS))
    assert counts(spec, 0.5) == {"train": 6, "validation": 6, "test": 6}
    assert counts(spec, 0.0) == {"train": 6, "test": 6}


def test_the_test_part_can_be_left_out(make_folder):
    assert "test" not in counts(DataSpec(make_folder(THREE_SPLITS), test=False))


def test_without_labels_everything_is_for_training_and_validation(make_folder):
    spec = DataSpec(make_folder({"a": 6, "b": 4}))
    assert counts(spec, 0.2, labelled=False) == {"train": 8, "validation": 2}


def test_a_recipe_file_gives_it_back():
    spec = DataSpec(pathlib.Path("photos"), "root", 0.1, True, ["a.png"], 3, False)
    recipe = json.loads(json.dumps({"data": spec.to_json()}))
    assert list(recipe["data"]) == [
        "data",
        "data_dir",
        "holdout",
        "strict",
        "exclude",
        "split_seed",
        "test",
        "follow_symlinks",
        "task",
        "class_names",
    ]
    assert DataSpec.from_recipe_json(recipe) == spec
    del recipe["data"]["follow_symlinks"]  # As in files of earlier versions.
    assert DataSpec.from_recipe_json(recipe) == spec


def test_missing_data_and_a_wrong_share_are_refused():
    with pytest.raises(ValueError, match="Data must be given"):
        DataSpec().open()
    with pytest.raises(ValueError, match="holdout must be"):
        DataSpec("photos", holdout=1.0)


def test_a_spec_has_all_data_options_of_a_job():
    spec = DataSpec("photos", holdout=0.1)
    assert data_spec(spec) is spec
    assert data_spec("photos", holdout=0.1) == spec
    with pytest.raises(ValueError, match="must be in it"):
        data_spec(spec, holdout=0.3)
