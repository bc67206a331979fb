"""A run that finds at its end when its classifier answers."""

import dataclasses
import json

import pytest

from keras_vit.classifier_folder import load_classifier
from keras_vit.training.data import DataSpec
from keras_vit.training.data.split_record import SplitRecord
from keras_vit.training.run.finetune import finetune
from keras_vit.training.settings import FineTuning
from keras_vit.utils.files import CARD, RECIPE
from makers import tiny_config, write_classes

SETTINGS = FineTuning(
    model=tiny_config(),
    weights=None,
    image_size=(12, 8),
    steps=12,
    batch_size=6,
    accumulate=1,
    learning_rate=0.1,
    validation=0,
    max_error=0.3,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Noisy pictures of three colours: 24 of each class to train and calibrate, 4 to test."""
    return write_classes(tmp_path_factory.mktemp("colors"), {"train": 24, "test": 4})


@pytest.fixture(scope="module")
def done(data, tmp_path_factory):
    output, lines = tmp_path_factory.mktemp("runs") / "colors", []
    finished = finetune(DataSpec(data, calibration=0.5), output, SETTINGS, log=lines.append)
    return finished, output, lines


def test_the_decision_is_found_on_the_calibration_part(done):
    finished, output, lines = done
    decision = load_classifier(output).recipe["decision"]
    assert len(SplitRecord.read(output).parts["calibration"]) == 36
    assert decision["images"] == 29  # A fifth of 36 chose the temperature.
    assert decision["max_error"] == 0.3
    assert any(line.startswith("with 95% confidence at most 30.0%") for line in lines)
    assert "## Unknown images" in (output / CARD).read_text()


def test_the_test_images_are_answered_by_it(done):
    finished, output, _ = done
    assert finished.report.count == 12
    recorded = json.loads((output / RECIPE).read_text())["test"]
    assert recorded["decision"]["answered"] == finished.report.decision["answered"]
    assert load_classifier(output).model.output_shape == (None, 4)


def test_a_bound_without_calibration_images_is_refused_before_the_first_step(data, tmp_path):
    with pytest.raises(ValueError, match=r"needs images for calibration.*--calibration 0.1"):
        finetune(data, tmp_path / "run", SETTINGS)
    assert not list(tmp_path.iterdir())


def test_too_few_calibration_images_are_refused_before_the_first_step(data, tmp_path):
    settings = dataclasses.replace(SETTINGS, max_error=0.02)
    with pytest.raises(ValueError, match="at least 200 answered photos.*Received: 36"):
        finetune(DataSpec(data, calibration=0.5), tmp_path / "run", settings)
    assert not list(tmp_path.iterdir())


def test_a_bound_that_cannot_hold_leaves_a_run_without_a_decision(tmp_path):
    data = write_classes(tmp_path / "data", {"train": 24, "test": 4}, noise=200)
    settings = dataclasses.replace(SETTINGS, steps=1, learning_rate=1e-6, max_error=0.2)
    lines = []
    finetune(DataSpec(data, calibration=0.5), tmp_path / "run", settings, log=lines.append)
    assert not load_classifier(tmp_path / "run").description.labels.abstains
    assert any(line.startswith("no decision: The threshold 0.") for line in lines)
