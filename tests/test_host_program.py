"""Import, build, save, load and predict leave the program that does it as it was."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).parent / "programs" / "host_program.py"


@pytest.fixture(scope="module")
def changes(tmp_path_factory):
    """What has changed by stage, in a program that may start no child process."""
    done = subprocess.run(
        [sys.executable, "-P", PROGRAM, tmp_path_factory.mktemp("host")],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("stage", ["import", "predict"])
def test_nothing_global_changes(changes, stage):
    assert changes[stage] == []


@pytest.mark.parametrize("stage", ["build", "save", "load"])
def test_nothing_changes_but_the_numbers_of_which_keras_makes_seeds(changes, stage):
    assert set(changes[stage]) <= {"random"}
