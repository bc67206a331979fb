"""Runs that are killed at fifty random moments, saving included, and continued."""

import csv
import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import pytest

PROGRAM = pathlib.Path(__file__).parent / "programs" / "killed.py"
KILLED = -9
KILLS = 50


@pytest.fixture
def run(tmp_path):
    """Returns a function that runs a name until its end or its death; gives its figures."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "log.txt").open("w"),
        text=True,
        env={**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"},
    )

    def ask(name, **kill):
        process.stdin.write(json.dumps({"name": name, **kill}) + "\n")
        process.stdin.flush()
        found = json.loads(process.stdout.readline())
        assert found["code"] in (0, KILLED), (tmp_path / "log.txt").read_text()[-3000:]
        return found

    yield ask
    process.stdin.close()
    process.wait()


def content(folder):
    """Everything that a run has written, without times."""
    found = {"files": sorted(path.name for path in folder.iterdir())}
    with open(folder / "history.csv", newline="") as file:
        found["history"] = [
            {name: value for name, value in row.items() if name != "images_per_second"}
            for row in csv.DictReader(file)
        ]
    for name in ("model.keras", "last.keras"):
        with (
            zipfile.ZipFile(folder / name) as archive,
            archive.open("model.weights.h5") as weights,
            h5py.File(weights) as file,
        ):
            arrays = {}
            file.visititems(
                lambda path, item, arrays=arrays: (
                    arrays.update({path: np.array(item).tobytes()})
                    if isinstance(item, h5py.Dataset)
                    else None
                )
            )
            found[name] = arrays
    return found


@pytest.mark.slow
def test_runs_killed_at_fifty_random_moments_end_bit_for_bit_the_same(run, tmp_path):
    rng = random.Random(0)
    whole = run("whole")
    expected = content(tmp_path / "whole")
    assert len(expected["model.keras"]) == 2
    assert len(expected["history"]) == 6
    kills = {"operation": 0, "seconds": 0}
    places = set()
    for number in itertools.count():
        if sum(kills.values()) >= KILLS:
            break
        name = f"run_{number}"
        while not (tmp_path / name).exists():  # It may be killed after it was published.
            # Half of the killed runs are killed again.
            kind = rng.choice(["operation", "operation", "seconds", None])
            moment = {
                "operation": {"operation": rng.randint(1, whole["operations"])},
                "seconds": {"seconds": rng.uniform(0, whole["seconds"])},
                None: {},
            }[kind]
            if run(name, **moment)["code"] == KILLED:
                kills[kind] += 1
                partial = tmp_path / f"{name}.partial"
                left = sorted(path.name.rpartition("-")[2] for path in partial.rglob(".*"))
                places.add((len(list(partial.rglob("state-*.npz"))), *left))
        assert content(tmp_path / name) == expected
    assert min(kills.values()) > 0
    assert len(places) > 5  # Without a state, with one and two, and within several writings.
