"""`DataSpec`: from options to splits, and to `recipe.json` and back."""

import dataclasses

import numpy as np
import pytest

from keras_vit.training.data import open_source
from keras_vit.training.data.spec import DataSpec

THREE_SPLITS = {f"{split}/{label}": 3 for split in ("train", "val", "test") for label in "ab"}


def counts(spec, *arguments, **options):
    splits = open_source(spec, *arguments, verify=False, **options).splits
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
    assert "test" not in counts(dataclasses.replace(spec, test=False))


def test_images_for_calibration_come_out_of_the_training_images_of_every_class(make_folder):
    spec = DataSpec(make_folder({"a": 20, "b": 40}), calibration=0.25, split_seed=3)
    source = open_source(spec, 0.5, verify=False)
    shown = {name: np.bincount(part.labels).tolist() for name, part in source.splits.items()}
    of_training, held_out = [6, 12], [4, 8]
    assert [shown["train"], shown["validation"]] == [of_training, of_training]
    assert [shown["calibration"], shown["test"]] == [held_out, held_out]
    assert len({name for part in source.splits.values() for name in part.names}) == 60
    for other in (open_source(spec, 0.1, verify=False), open_source(spec, verify=False)):
        for part in ("calibration", "test"):  # They do not depend on the validation images.
            assert other.splits[part].names == source.splits[part].names


def test_a_calibration_part_of_the_data_is_kept(make_folder):
    folders = {f"{part}/{name}": 3 for part in ("train", "calibration") for name in "ab"}
    spec = DataSpec(make_folder(folders), holdout=0.34)
    assert counts(spec) == {"train": 4, "calibration": 6, "test": 2}
    share = dataclasses.replace(spec, calibration=0.5)
    assert counts(share, 0.5) == {"train": 2, "validation": 2, "calibration": 6, "test": 2}


def test_classes_of_one_image_and_images_without_labels_have_none_for_calibration(make_folder):
    spec = DataSpec(make_folder({"calibration": 1, "b": 1}), holdout=0.0, calibration=0.5)
    for labelled, match in ((True, "two training images"), (False, "without labels")):
        with pytest.raises(ValueError, match=match):
            open_source(spec, verify=False, labelled=labelled)
