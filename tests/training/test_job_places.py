"""A job on one device, on replicas and on workers: the same numbers, written once."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest
from xla_flags import FAST_COMPILATION

from makers import write_exposures

PROGRAM = pathlib.Path(__file__).parent / "programs" / "job_places.py"
FILES = {"classes.txt", "history.csv", "model.keras", "recipe.json"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Ten surfaces, each at three exposures; no parts are given."""
    folder = tmp_path_factory.mktemp("exposures")
    write_exposures(folder, 10, 3)
    return folder


@pytest.fixture(scope="module")
def jax(tmp_path_factory):
    """The environment of a process of JAX."""
    return {
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": FAST_COMPILATION,
        # What processes have in common is compiled once.
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def start(data, output, *strategies, **environment):
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(data), str(output), *strategies],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
    )


def outcome(process):
    out, err = process.communicate()
    assert process.returncode == 0, err[-4000:]
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def outcomes(data, tmp_path_factory):
    """The outcomes of one process with two logical devices."""
    return outcome(start(data, tmp_path_factory.mktemp("runs"), "none", "mirrored"))


def assert_same_numbers(one, other):
    columns = ("loss", "accuracy", "learning_rate", "validation_loss", "averaged_loss")
    for row, expected in zip(other["history"], one["history"], strict=True):
        for column in columns:
            # Six digits in the table.
            assert float(row[column]) == pytest.approx(float(expected[column]), abs=2e-6), column
    np.testing.assert_allclose(other["weights"], one["weights"], atol=1e-6)
    assert other["test"] == pytest.approx(one["test"], abs=1e-6)


def assert_same_parts(one, found):
    """Checks that all processes have the parts of one, of which the first alone searched."""
    assert one["things"] == "30 photos show 10 things, kept together"
    assert [each["things"] for each in found] == [one["things"]] * len(found)
    assert [each["parts"] for each in found] == [one["parts"]] * len(found)
    assert [each["searches"] for each in found] == [1] + [0] * (len(found) - 1)


@pytest.mark.slow
def test_replicas_give_the_numbers_of_one_device(outcomes):
    assert_same_numbers(outcomes["none"], outcomes["mirrored"])
    assert set(outcomes["mirrored"]["files"]) >= FILES


@pytest.mark.slow
def test_devices_of_jax_give_the_numbers_of_one(data, tmp_path, jax):
    flags = f"--xla_force_host_platform_device_count=2 {FAST_COMPILATION}"
    environment = {**jax, "XLA_FLAGS": flags}
    found = outcome(start(data, tmp_path, "none", "mirrored", **environment))
    assert_same_numbers(found["none"], found["mirrored"])
    assert set(found["mirrored"]["files"]) >= FILES


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_of_jax_give_the_numbers_of_one_and_the_first_writes(data, tmp_path, jax, count):
    one = outcome(start(data, tmp_path / "one", "none", **jax))["none"]
    address = f"127.0.0.1:{free_port()}"
    processes = [
        start(data, tmp_path, "auto", PROCESS=f"{address} {count} {index}", **jax)
        for index in range(count)
    ]
    found = [outcome(process)["auto"] for process in processes]
    assert_same_parts(one, found)
    for each in found:
        assert_same_numbers(one, each)
    assert {path.name for path in tmp_path.iterdir()} == {"one", "auto"}
    assert {path.name for path in (tmp_path / "auto").iterdir()} >= FILES


def outcomes_of_two_workers(data, output, **environment):
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        workers = [f"127.0.0.1:{s.getsockname()[1]}" for s in (one, two)]
    processes = []
    for index in range(2):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": {"worker": workers}, "task": task})
        processes.append(start(data, output, "multiworker", TF_CONFIG=config, **environment))
    return [outcome(process)["multiworker"] for process in processes]


@pytest.mark.slow
def test_workers_give_the_numbers_of_one_device_and_the_first_writes(outcomes, data, tmp_path):
    found = outcomes_of_two_workers(data, tmp_path)
    assert_same_parts(outcomes["none"], found)
    for each in found:
        assert_same_numbers(outcomes["none"], each)
    assert [path.name for path in tmp_path.iterdir()] == ["multiworker"]
    assert {path.name for path in (tmp_path / "multiworker").iterdir()} >= FILES
