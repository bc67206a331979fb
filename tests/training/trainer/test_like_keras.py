"""Every value that the calls of keras.Model return, through Trainer."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).parent / "programs" / "like_keras.py"
CASES = ("penalties and example weights", "class weights")


@pytest.fixture(scope="module", params=["tensorflow", "jax"])
def outcomes(request):
    """What the program printed, by case, place and call."""
    pytest.importorskip(request.param)
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": request.param},
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def is_same(value, expected):
    """Whether two nested lists have the same texts, numbers and lengths, in order."""
    if isinstance(expected, list):
        return len(value) == len(expected) and all(map(is_same, value, expected))
    if isinstance(expected, str):
        return value == expected
    return value == pytest.approx(expected, rel=1e-4, abs=1e-5)  # float32, 9 steps.


@pytest.mark.parametrize("case", CASES)
def test_trainer_returns_what_keras_returns(outcomes, case):
    expected = outcomes[case].pop("keras.Model")
    differing = [
        (place, call, value, expected[call])
        for place, returned in outcomes[case].items()
        for call, value in returned.items()
        if not is_same(value, expected[call])
    ]
    assert not differing, differing[:2]
