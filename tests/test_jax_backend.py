"""Layers, models, steps and a run on JAX, models on PyTorch: each needs a separate process."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from keras_vit.classifier_folder import load_classifier

# Most of the time is compilation; these programs run once.
FLAGS = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_force_host_platform_device_count=2"
)
TESTS = pathlib.Path(__file__).resolve().parent
NUMBERS = "layers/test_random_numbers.py"
STEPS = "training/trainer/test_trainer.py"
RUN = "commands/test_run_on_jax.py"
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


@pytest.mark.slow
def test_a_run_on_jax_gives_a_classifier_with_the_same_answers_on_tensorflow(tmp_path):
    run_on("jax", tmp_path / "jax", QUICK, [RUN])
    (predicted,) = (tmp_path / "jax").rglob("predicted.json")
    classifier = load_classifier(predicted.parent)
    for there in json.loads(predicted.read_text()):
        (here,) = classifier.predict(there["path"], top=3)
        assert [entry["class"] for entry in there["top"]] == [name for name, _ in here.top]
        np.testing.assert_allclose(
            [entry["probability"] for entry in there["top"]],
            [probability for _, probability in here.top],
            atol=1e-5,  # float32, depth 1.
        )


@pytest.mark.parametrize(
    ("tests", "places"),
    [
        (QUICK, ("layers/test_encoder_block.py", NUMBERS, STEPS)),
        pytest.param(QUICK, ("models", "layers", STEPS, RUN), marks=pytest.mark.slow),
        pytest.param("any_backend_slow", ("models", "layers", STEPS, RUN), marks=pytest.mark.slow),
    ],
    ids=["blocks and steps", "all", "slow"],
)
def test_layers_models_and_steps_give_the_same_numbers_on_jax(tests, places, tmp_path):
    run_on("jax", tmp_path / "jax", tests, places)


@pytest.mark.parametrize(
    "places",
    [
        ("models/test_keras_fit.py", "models/test_golden.py"),
        pytest.param(("models", "layers", "test_saved_files.py"), marks=pytest.mark.slow),
    ],
    ids=["a model", "all"],
)
def test_models_give_the_same_numbers_on_torch(places, tmp_path):
    run_on("torch", tmp_path / "torch", QUICK, places)
