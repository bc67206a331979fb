"""Layers, models and commands on JAX and PyTorch: each backend needs a separate process."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from xla_flags import FAST_COMPILATION

from keras_vit.checkpoints.catalogue import RELEASED
from keras_vit.opening import open_predictor
from keras_vit.training.evaluation.classification import evaluate_classifier

FLAGS = f"{FAST_COMPILATION} --xla_force_host_platform_device_count=2"
TESTS = pathlib.Path(__file__).resolve().parent
STEPS = "training/trainer/test_trainer.py"
RUN = "commands/test_run_on_jax.py"
ON_TORCH = "commands/test_on_torch.py"
QUICK = "any_backend and not any_backend_slow"


def run_on(backend, folder, tests, places):
    """Runs the tests of a mark; their temporary folders are in a folder."""
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"pip install {backend}")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", f"--basetemp={folder}", "-m", tests, *places],
        cwd=TESTS,
        env={
            **os.environ,
            "KERAS_BACKEND": backend,
            "PYTEST_ADDOPTS": "",
            # Runs of the same model are compiled once.
            "JAX_COMPILATION_CACHE_DIR": f"{folder}.compiled",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "XLA_FLAGS": FLAGS,
        },
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert " passed" in run.stdout


def compare_predictions(folder):
    """Compares what a run in a folder predicted with TensorFlow's answers."""
    (predicted,) = folder.rglob("predicted.txt")
    classifier, printed = predicted.read_text().split("\n", 1)
    found = json.loads(printed)
    expected = open_predictor(classifier).predict([there["path"] for there in found], top=3)
    for here, there in zip(expected, found, strict=True):
        assert [entry["class"] for entry in there["top"]] == [name for name, _ in here.top]
        np.testing.assert_allclose(
            [entry["probability"] for entry in there["top"]],
            [probability for _, probability in here.top],
            atol=1e-5,  # float32, at most 8 blocks.
        )


@pytest.mark.parametrize(
    ("tests", "places"),
    [
        (QUICK, ("layers/test_encoder_block.py", "layers/test_random_numbers.py", STEPS)),
        pytest.param(QUICK, ("models", "layers", STEPS, RUN), marks=pytest.mark.slow),
        pytest.param("any_backend_slow", ("models", "layers", STEPS, RUN), marks=pytest.mark.slow),
    ],
    ids=["blocks and steps", "all", "slow"],
)
def test_layers_models_and_steps_give_the_same_numbers_on_jax(tests, places, tmp_path):
    run_on("jax", tmp_path / "jax", tests, places)
    if tests == QUICK and RUN in places:
        compare_predictions(tmp_path / "jax")


def test_models_and_commands_give_the_same_numbers_on_torch(tmp_path):
    places = ("models/test_golden.py", "layers/test_eager_pytorch.py", ON_TORCH)
    run_on("torch", tmp_path / "torch", "any_backend", places)
    compare_predictions(tmp_path / "torch")
    (evaluated,) = (tmp_path / "torch").rglob("evaluated.txt")
    classifier, data, report = evaluated.read_text().split("\n", 2)
    assert str(evaluate_classifier(open_predictor(classifier), data)) in report


@pytest.mark.slow
def test_layers_models_and_files_pass_their_tests_on_torch(tmp_path):
    places = ("models", "layers", "checkpoints", "commands/test_predict.py", "test_saved_files.py")
    run_on("torch", tmp_path / "torch", "not of_tensorflow and not slow", places)


WITHOUT_TENSORFLOW = """
import sys
import keras_vit

assert keras_vit.list_models() and keras_vit.ViTConfig
assert not {"keras", "tensorflow", "jax", "PIL"} & set(sys.modules)
sys.modules["tensorflow"] = None
import keras, numpy as np

model = keras_vit.build("R+ViT-Ti/16", input_shape=(32, 32, 3), classes=5)
keras_vit.save_checkpoint(model, sys.argv[1] + "/model.npz")
keras_vit.load_checkpoint(model, sys.argv[1] + "/model.npz")
pixels = np.random.RandomState(0).randint(0, 256, (2, 32, 32, 3)).astype("uint8")
for each in (model, keras.saving.load_model(sys.argv[2] + "/model.keras")):
    answers = each.predict(keras_vit.preprocess_input(pixels), verbose=0)
    assert abs(answers.sum(axis=1) - 1).max() < 1e-5
"""


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_models_are_built_read_and_predict_without_tensorflow(backend, tmp_path):
    pytest.importorskip(backend)
    subprocess.run(
        [sys.executable, "-c", WITHOUT_TENSORFLOW, tmp_path, RELEASED[0].folder],
        env={**os.environ, "KERAS_BACKEND": backend, "XLA_FLAGS": FAST_COMPILATION},
        check=True,
    )


ON_A_GPU = """
import keras, keras_vit

config = keras_vit.ViTConfig(4, 16, 1, 32, 2, dropout_rate=0.1, attention_dropout_rate=0.1)
model = keras_vit.build(config, input_shape=(8, 8, 3), classes=5)
model(keras.ops.ones((2, 8, 8, 3)), training=True)
keras_vit.layers.PatchCorruption()(keras.ops.ones((2, 4, 16)), training=True)
"""


def test_layers_compute_without_numpy_on_torch():
    pytest.importorskip("torch")
    # The device "meta" refuses NumPy as a GPU does.
    environment = {"KERAS_BACKEND": "torch", "KERAS_TORCH_DEVICE": "meta"}
    subprocess.run([sys.executable, "-c", ON_A_GPU], env=os.environ | environment, check=True)
