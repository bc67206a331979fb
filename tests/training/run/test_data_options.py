"""The fields of `DataSpec` as arguments of everything that trains."""

import dataclasses

import pytest

from keras_vit.training import finetune, pretrain, pretrain_masked_patches
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.run.run_options import RunOptions, run_arguments
from keras_vit.training.run.sweep import sweep
from keras_vit.training.settings import FineTuning


def test_every_field_of_the_data_and_of_the_run_is_an_argument():
    of_data = {field.name: field.default for field in dataclasses.fields(DataSpec)[1:]}
    of_run = {field.name: field.default for field in dataclasses.fields(RunOptions)[1:]}
    of_data |= {"holdout": 0.3, "split_seed": 5}
    of_run |= {"resume": True, "command": "keras-vit"}
    given = run_arguments("photos", "out", of_data | of_run, FineTuning)
    assert given == (DataSpec("photos", **of_data), RunOptions("out", **of_run))
    whole = DataSpec("photos", **of_data)
    assert run_arguments(whole, "out", of_run, FineTuning) == (whole, RunOptions("out", **of_run))
    with pytest.raises(ValueError, match="With a DataSpec, the data options must be in it"):
        run_arguments(whole, "out", of_data, FineTuning)


@pytest.mark.parametrize("start", [finetune, pretrain, pretrain_masked_patches, sweep])
def test_an_unknown_option_is_named(start, tmp_path):
    with pytest.raises(TypeError, match="holdut"):
        start("photos", tmp_path / "run", holdut=0.3)
