"""The expected time of a run, which a dry run prints."""

import dataclasses

import pytest
from runs import job_of, tiny_settings

import keras_vit
from keras_vit.training.run import plan
from makers import tiny_config, write_classes

SETTINGS = tiny_settings(learning_rate=0.01)
FLOPS = keras_vit.describe(tiny_config(), input_shape=(12, 8, 3)).flops


@pytest.mark.parametrize(("train", "passes"), [("all", 3), ("head", 1)])
def test_a_dry_run_has_the_expected_time(train, passes, tmp_path, monkeypatch):
    data = write_classes(tmp_path / "data", {"train": 10, "test": 4})
    settings = dataclasses.replace(SETTINGS, steps=40, evaluate_every=10, train=train)
    monkeypatch.setattr(plan, "answer_rate", lambda *of_model: float(FLOPS))
    text = job_of(data, tmp_path / "run", settings).dry_run()
    # 30 images, of which 6 validate 4 times, and 12 test images: at an image a second.
    seconds = passes * 40 * 6 + 4 * 6 + 12
    assert f"about {seconds // 60} min {seconds % 60} s" in text
