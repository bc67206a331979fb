"""Files that an earlier version wrote: models, a classifier folder, a run that was stopped."""

import csv
import json
import pathlib
import zipfile

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.training.run.job import finetune

ARCHIVE = pathlib.Path(__file__).parent / "golden" / "saved_files.zip"
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
MODELS = [
    "axial_resnet",
    "axial_vit",
    "bit",
    "free_size",
    "hybrid_map_2d",
    "registers_and_distillation",
    "relative",
]

# Their layers run on JAX in tests/models/test_golden.py too.
PLAIN = ("bit", "free_size", "hybrid_map_2d", "registers_and_distillation")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def resumed(saved):
    """The stopped run, trained to its end; its paths are relative."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(saved)
        finetune(None, "runs/stopped", resume=True, log=lambda line: None)
    return saved / "runs" / "stopped"


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.any_backend_slow] * (name in PLAIN)) for name in MODELS],
)
def test_a_model_computes_what_it_computed_when_it_was_saved(saved, name):
    model = keras.saving.load_model(saved / "saved_models" / f"{name}.keras")
    expected = np.load(saved / "saved_models" / "expected.npz")[name]
    outputs = model(IMAGES, training=False)
    np.testing.assert_allclose(outputs, expected, atol=2e-5)  # Float32, other processors.


def test_every_saved_model_is_tried(saved):
    assert sorted(path.stem for path in (saved / "saved_models").glob("*.keras")) == MODELS


def test_a_classifier_folder_is_read(saved):
    classifier = keras_vit.load_classifier(saved / "runs" / "whole")
    assert classifier.class_names == ("blue", "red")
    images = sorted((saved / "photos" / "test").rglob("*.png"))
    answers = [prediction.top[0][0] for prediction in classifier.predict(images)]
    assert answers == ["blue"] * 4 + ["red"] * 4


@pytest.mark.slow
def test_a_stopped_run_goes_on_to_the_same_end(saved, resumed):
    """Both runs are without dropout, whose masks are those of a version."""
    old, new = history(saved / "runs" / "whole"), history(resumed)
    assert [row["step"] for row in new] == ["3", "6", "9", "12"]
    for whole, stopped in zip(old, new, strict=True):
        del whole["images_per_second"], stopped["images_per_second"]
        for name, value in whole.items():  # Float32, other processors.
            assert float(stopped[name]) == pytest.approx(float(value), rel=1e-3), name
    ends = [keras.saving.load_model(run / "model.keras") for run in (saved / "runs/whole", resumed)]
    for whole, stopped in zip(*(end.get_weights() for end in ends), strict=True):
        np.testing.assert_allclose(stopped, whole, atol=1e-4)


def test_the_recipe_of_a_resumed_run_keeps_its_keys(saved, resumed):
    old = json.loads((saved / "runs" / "whole" / "recipe.json").read_text())
    new = json.loads((resumed / "recipe.json").read_text())
    assert set(old) <= set(new)
    assert set(old["settings"]) <= set(new["settings"])
    assert set(old["data"]) <= set(new["data"])


def history(folder):
    with open(folder / "history.csv") as file:
        return list(csv.DictReader(file))
