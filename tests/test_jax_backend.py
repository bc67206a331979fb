"""Layers, models and steps on the JAX backend, which needs a process of its own."""

import os
import pathlib
import subprocess
import sys

import pytest

# Most of the time is compilation; these programs run once.
FAST_COMPILATION = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
TESTS = pathlib.Path(__file__).resolve().parent
STEPS = "training/trainer/test_trainer.py"
QUICK = "any_backend and not any_backend_slow"


@pytest.mark.parametrize(
    ("tests", "places"),
    [
        (QUICK, ("layers/test_encoder_block.py",)),
        pytest.param(QUICK, ("models", "layers", STEPS), marks=pytest.mark.slow),
        pytest.param("any_backend_slow", ("models", "layers", STEPS), marks=pytest.mark.slow),
    ],
    ids=["encoder blocks", "all", "slow"],
)
def test_layers_models_and_steps_give_the_same_numbers_on_jax(tests, places):
    pytest.importorskip("jax")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", tests, *places],
        cwd=TESTS,
        env={
            **os.environ,
            "KERAS_BACKEND": "jax",
            "PYTEST_ADDOPTS": "",
            "XLA_FLAGS": FAST_COMPILATION,
        },
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert " passed" in run.stdout
