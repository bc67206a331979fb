"""The fields of `DataSpec` as arguments of everything that trains."""

import dataclasses

import pytest

from keras_vit.training import finetune, pretrain, pretrain_masked_patches
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.run import finetune as page, sweep as sweeping

# Another value than the default for each field.
VALUES = {
    "data": "photos",
    "data_dir": "elsewhere",
    "holdout": 0.3,
    "calibration": 0.1,
    "group_by": "exif",
    "fold": (1, 5),
    "path_column": "file",
    "label_column": "breed",
    "label_separator": "|",
    "folders": "classes",
    "split": ("path,split", "a.png,train"),
    "labels": ("path,label", "a.png,cat"),
    "strict": True,
    "exclude": ("a.png",),
    "split_seed": 5,
    "test": False,
    "follow_symlinks": True,
    "task": "multilabel",
    "class_names": ("a", "b"),
}


class Started(Exception):
    """The data that a run begins with."""


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """Returns a function from a call that trains to the data that it would train with."""

    def run(job):
        raise Started(job.data)

    def start_or_continue(folder, data, settings, **options):
        raise Started(data)

    monkeypatch.setattr(page, "run", run)
    monkeypatch.setattr(sweeping, "start_or_continue", start_or_continue)

    def call(start, *arguments, **options):
        with pytest.raises(Started) as started:
            start(*arguments, output=tmp_path / "run", **options)
        return started.value.args[0]

    return call


STARTS = [finetune, pretrain, pretrain_masked_patches, sweeping.sweep]


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(DataSpec)])
@pytest.mark.parametrize("start", STARTS)
def test_every_field_of_the_data_is_an_argument(start, field, begun):
    options = {"data": "photos", "split_seed": 0, field: VALUES[field]}
    assert begun(start, **options) == DataSpec(**options)


@pytest.mark.parametrize("start", STARTS)
def test_the_data_may_have_all_options_themselves(start, begun):
    assert begun(start, DataSpec(**VALUES)) == DataSpec(**VALUES)


@pytest.mark.parametrize("start", STARTS)
def test_an_unknown_option_names_the_known_ones(start, tmp_path):
    with pytest.raises(TypeError, match=r"data_dir, holdout, .*class_names, .* Received: holdut"):
        start("photos", tmp_path / "run", holdut=0.3)
