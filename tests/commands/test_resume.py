"""A run in another process that is stopped by a signal, and resumed."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from keras_vit.opening import open_predictor

RECIPE = (
    "--image-size 12 --batch-size 8 --accumulate 2 --steps 4000 --warmup-steps 10 "
    "--dropout-rate 0.1 --evaluate-every 20 --validation 0.25 --ema-momentum 0.9 --decay constant"
)


@pytest.fixture(scope="module")
def start(tiny, colors, folder):
    """Returns a function that starts the run of an output: the same command each time."""

    def call(name, steps):
        recipe = RECIPE.replace("4000", str(steps)).split()
        given = ["finetune", "--data", str(colors), "--weights", str(tiny)]
        output = ["--output", str(folder / name)]
        code = "import sys; from keras_vit.command_line import main; sys.exit(main())"
        return subprocess.Popen(
            [sys.executable, "-c", code, *given, *recipe, *output],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "KERAS_BACKEND": "tensorflow"},
        )

    return call


def ended(process):
    message, _ = process.communicate(timeout=900)
    return process.returncode, message


def wait_for_a_state(folder):
    until = time.monotonic() + 600
    while len(list((folder / ".states").glob("state-*.npz"))) < 2:
        assert time.monotonic() < until
        time.sleep(0.01)


STEPS = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.mark.slow
def test_sigterm_ends_a_run_in_which_everything_is_saved(start, folder):
    process = start("killed", STEPS)  # tests/training/run/test_killed.py has SIGKILL.
    wait_for_a_state(folder / "killed.partial")
    time.sleep(np.random.default_rng().uniform(0, 1))  # Wherever it is then.
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    code, message = ended(process)
    assert code == 143, message
    assert "everything is saved" in message
    assert time.monotonic() - began < 30  # A few seconds, on an idle machine.
    assert not (folder / "killed").exists()


@pytest.mark.slow  # After the test above.
def test_the_same_command_after_sigterm_ends_bit_for_bit_the_same(start, folder):
    code, message = ended(start("whole", STEPS))
    assert code == 0, message
    code, message = ended(start("killed", STEPS))
    assert code == 0, message
    assert "resumed" in message
    whole, killed = (open_predictor(folder / name) for name in ("whole", "killed"))
    for first, second in zip(whole.model.weights, killed.model.weights, strict=True):
        np.testing.assert_array_equal(first.numpy(), second.numpy())
