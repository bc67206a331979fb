"""A run in another process that is stopped by a signal, and resumed."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from keras_vit.classifier_folder import load_classifier

RECIPE = (
    "--image-size 12 --batch-size 8 --accumulate 2 --steps 4000 --warmup-steps 10 --dropout 0.1 "
    "--evaluate-every 20 --validation 0.25 --averaging 0.9 --decay constant"
)


@pytest.fixture
def start(tiny, colors, tmp_path):
    """Returns a function that starts the run of an output: the same command each time."""

    def call(name, steps):
        recipe = RECIPE.replace("4000", str(steps)).split()
        given = ["finetune", "--data", str(colors), "--weights", str(tiny)]
        output = ["--output", str(tmp_path / name)]
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


@pytest.mark.slow
def test_the_same_command_after_sigterm_ends_bit_for_bit_the_same(start, tmp_path):
    steps = 300  # tests/training/run/test_killed.py has SIGKILL.
    code, message = ended(start("whole", steps))
    assert code == 0, message
    process = start("killed", steps)
    wait_for_a_state(tmp_path / "killed.partial")
    time.sleep(np.random.default_rng().uniform(0, 1))  # Wherever it is then.
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    code, message = ended(process)
    assert code == 143, message
    assert "everything is saved" in message
    assert time.monotonic() - began < 30  # A few seconds, on an idle machine.
    assert not (tmp_path / "killed").exists()
    code, message = ended(start("killed", steps))
    assert code == 0, message
    assert "resumed" in message
    whole, killed = (load_classifier(tmp_path / name) for name in ("whole", "killed"))
    for first, second in zip(whole.model.weights, killed.model.weights, strict=True):
        np.testing.assert_array_equal(first.numpy(), second.numpy())
