"""The road that everybody takes: build, compile, fit, save; then another process loads and uses it.

Each half is a user's script in a separate process, programs/the_road.py.
"""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from keras_vit.command_line import main
from keras_vit.export.formats.artefacts import load_artefact
from keras_vit.opening import open_predictor

PROGRAM = pathlib.Path(__file__).parent / "programs" / "the_road.py"

# Models of this package, whose files each reader takes.
OURS = (
    "numpy_arrays",
    "frozen_then_unfrozen_with_callbacks",
    "adamw_with_a_schedule_and_dropout",
    "lion_with_own_loss_and_metric",
    "mixed_bfloat16",
    "trainer_with_warmup",
    "lora",
)
# Models around one; `open_model` takes all, Keras and our trainers need their classes registered.
OTHERS = ("nested_in_a_compiled_model", "features_in_a_sequential", "trainer_itself")
LONGER = (
    "muon_in_mixed_bfloat16",
    "still_frozen",
    "own_optimizer_and_functions",
    "mixed_float16",
    "trainer_with_muon",
    "int8",
)
ON_JAX = ("numpy_arrays", "lion_with_own_loss_and_metric", "nested_in_a_compiled_model")
ON_TORCH = [name for name in (*OURS, *OTHERS, *LONGER) if "trainer" not in name]


def run(half, folder, models=(), backend="tensorflow"):
    done = subprocess.run(
        [sys.executable, PROGRAM, half, folder, *models],
        capture_output=True,
        text=True,
        env={**os.environ, "KERAS_BACKEND": backend, "PYTHONWARNINGS": "default"},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return done.stdout.splitlines(), done.stderr


@pytest.fixture(scope="module")
def road(tmp_path_factory):
    folder = tmp_path_factory.mktemp("road")
    run("write", folder, (*OURS, *OTHERS))
    return folder


@pytest.fixture(scope="module")
def used(road):
    lines, errors = run("use", road, (*OURS, *OTHERS))
    return json.loads(lines[-2]), json.loads(lines[-1]), errors


@pytest.mark.parametrize("model", OURS)
def test_a_model_that_was_fitted_is_read_in_every_way_with_equal_outputs(model, used):
    ways = ("load_model", "open_model", "build", "load_checkpoint")
    assert used[1][model] == dict.fromkeys(ways, 0.0)


@pytest.mark.parametrize("model", OTHERS)
def test_a_model_around_one_of_ours_opens_with_equal_outputs(model, used):
    assert used[1][model] == {"open_model": 0.0}


@pytest.mark.slow
def test_the_other_optimizers_and_policies_are_read_with_equal_outputs(tmp_path):
    run("write", tmp_path, LONGER)
    found = json.loads(run("read", tmp_path, LONGER)[0][-1])
    assert {name: set(ways.values()) for name, ways in found.items()} == {
        name: {0.0} for name in LONGER
    }


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "models"), [("jax", ON_JAX), ("torch", ON_TORCH)])
def test_a_model_that_was_fitted_on_another_backend_is_read_on_tensorflow(
    backend, models, tmp_path
):
    pytest.importorskip(backend)
    run("write", tmp_path, models, backend)
    cases = [*json.loads(run("read", tmp_path, models)[0][-1]).items()]
    assert cases
    for name, ways in cases:
        # Two backends, depth 1, in float32 or bfloat16.
        assert max(ways.values()) < (1e-3 if "mixed" in name else 1e-5), name


def test_a_fitted_model_is_loaded_converted_and_fine_tuned_with_equal_outputs(used):
    found = used[0]
    # A classifier predicts by a graph, whose rounding may differ from an eager call (Keras 3.16).
    assert found["load_classifier"] < 1e-6
    assert {found[way] for way in found if way != "load_classifier"} == {0.0}, found


def test_predicting_and_loading_warn_of_nothing(used):
    assert "retracing" not in used[2]


FORMATS = {
    "tflite": ("x.tflite", "ai_edge_litert"),
    "saved_model": ("1", "tensorflow"),
    "onnx": ("x.onnx", "tf2onnx"),
    "openvino": ("ir", "openvino"),
    "html": ("x.html", "playwright"),
}


@pytest.mark.parametrize(
    "name", ["tflite", *(pytest.param(n, marks=pytest.mark.slow) for n in list(FORMATS)[1:])]
)
def test_a_fitted_classifier_is_exported_and_verified(name, road, tmp_path):
    path, package = FORMATS[name]
    pytest.importorskip(package)
    assert not main(
        ["export", str(road / "classifier"), "--to", name, "--output", str(tmp_path / path)]
    )
    assert not main(["verify", str(tmp_path / path)])
    if name != "html":
        images = sorted((road / "classifier" / "samples").iterdir())
        keras, export = open_predictor(road / "classifier"), load_artefact(tmp_path / path)
        for here, there in zip(keras.predict(images), export.predict(images), strict=True):
            assert [n for n, _ in here.top] == [n for n, _ in there.top]
            np.testing.assert_allclose(
                [p for _, p in here.top], [p for _, p in there.top], atol=1e-5
            )
