"""The fields of `DataSpec` as arguments of everything that trains."""

import dataclasses

import pytest

from keras_vit.training import finetune, pretrain, pretrain_masked_patches
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.run import start as module
from keras_vit.training.run.sweep import sweep
from keras_vit.training.settings import FineTuning, RunOptions


def test_every_field_of_the_data_and_of_the_run_is_an_argument(monkeypatch):
    monkeypatch.setattr(module, "start", lambda *arguments: arguments)
    settings = FineTuning()
    of_data = {field.name: field.default for field in dataclasses.fields(DataSpec)[1:]}
    of_run = {field.name: field.default for field in dataclasses.fields(RunOptions)[1:]}
    of_data |= {"holdout": 0.3, "split_seed": 5}
    of_run |= {"resume": True, "command": "keras-vit"}
    whole, options = DataSpec("photos", **of_data), RunOptions("out", **of_run)
    given = module.start_of("photos", "out", settings, of_data | of_run)
    assert given == (whole, options, settings)
    assert module.start_of(whole, "out", settings, of_run) == given
    with pytest.raises(ValueError, match="With a DataSpec"):
        module.start_of(whole, "out", settings, of_data)


@pytest.mark.parametrize("start", [finetune, pretrain, pretrain_masked_patches, sweep])
def test_an_unknown_option_is_named(start, tmp_path):
    with pytest.raises(TypeError, match="holdut"):
        start("photos", tmp_path / "run", holdut=0.3)
