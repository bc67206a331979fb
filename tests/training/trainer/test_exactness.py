import importlib
import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest
from xla_flags import FAST_COMPILATION

PROGRAM = pathlib.Path(__file__).parent / "programs" / "exactness.py"
LOSSES, WEIGHTS = 1e-5, 1e-4  # float32, 20 steps

# What a process trains on, and its number among the workers.
ONE_PROCESS = [("tensorflow", None)]
ALL = [*ONE_PROCESS, ("worker", 0), ("worker", 1), ("jax", None)]
PACKAGES = ("tensorflow", "keras", "jax", "numpy")


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def train_everywhere(folder, model, cases, started):
    """Returns results by case, place and name, of a process for each item of `started`."""
    *workers, coordinator = [f"127.0.0.1:{port}" for port in free_ports(3)]
    cluster = {"worker": workers}
    processes = []
    for place, index in started:
        environment = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "KERAS_BACKEND": "jax" if place in ("jax", "processes") else "tensorflow",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count=4 {FAST_COMPILATION}",
        }
        if place == "processes":
            count = sum(other == place for other, _ in started)
            environment["PROCESS"] = f"{coordinator} {count} {index}"
            environment["XLA_FLAGS"] = FAST_COMPILATION
        elif index is not None:
            task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
            environment["TF_CONFIG"] = json.dumps(task)
        output = folder / f"{place}-{index}.npz"
        command = [sys.executable, str(PROGRAM), place, str(output), model, *cases]
        log = open(folder / f"{place}-{index}.log", "w")  # noqa: SIM115
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
        processes.append((process, output, log))
    results = {}
    try:
        for process, output, log in processes:
            process.wait(timeout=3000)
            log.close()
            assert process.returncode == 0, pathlib.Path(log.name).read_text()[-4000:]
            with np.load(output) as arrays:
                for key, value in arrays.items():
                    place, case, name = key.split("/")
                    results.setdefault(case, {}).setdefault(place, {})[name] = value
    finally:
        for process, _, _ in processes:
            process.kill()
    return results


def differences(result, reference):
    """Returns the largest of the losses and of the weights, averages included."""
    steps, totals = result["recorded"].T
    steps_there, totals_there = reference["recorded"].T
    assert steps[-1] == 20
    # Where several steps are one execution, the sum of their losses.
    of_steps = np.diff(totals) - np.diff(totals_there[np.isin(steps_there, steps)])
    losses = max(np.abs(of_steps).max(), np.abs(result["losses"] - reference["losses"]).max())
    weights = np.abs(result["weights"] - reference["weights"]).max()
    if result["averages"].size:
        weights = max(weights, np.abs(result["averages"] - reference["averages"]).max())
    return losses, weights


def check(results, capsys):
    places = list(next(iter(results.values())))  # The first case is trained everywhere.
    versions = [f"{name} {importlib.import_module(name).__version__}" for name in PACKAGES]
    lines = ["", f"Largest difference from one device, losses / weights; {', '.join(versions)}"]
    lines += ["", f"| {' | '.join(['', *places])} |", "| --- " * (len(places) + 1) + "|"]
    wrong = []
    for case, by_place in results.items():
        reference = results[str(by_place["one device"]["of"])]["one device"]
        cells = [case]
        for place, result in by_place.items():
            losses, weights = differences(result, reference)
            cells.append(f"{losses:.0e} / {weights:.0e}")
            exact = (
                losses < LOSSES
                and weights < WEIGHTS
                and list(result["steps"]) == [20, 20]
                and np.ptp([*result["accuracies"], *reference["accuracies"]]) < 1e-6
            )
            if not exact:
                wrong.append(f"{case} on {place}: {losses:.1e}, {weights:.1e}, {result['steps']}")
        lines.append(f"| {' | '.join(cells)} |")
    with capsys.disabled():
        print("\n".join(lines))
    assert not wrong
    return places


def test_training_is_the_same_on_one_device_and_two_replicas(tmp_path, capsys):
    cases = ["everything in micro-batches"]  # Dropout too.
    places = check(train_everywhere(tmp_path, "dense", cases, ONE_PROCESS), capsys)
    assert places == ["one device", "two replicas"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_training_is_the_same_in_processes_of_jax(tmp_path, capsys, count):
    cases = [
        "Adam",
        "everything",
        "everything in micro-batches",
        "dropout and stochastic depth",
        "dropout and stochastic depth, in micro-batches",
    ]
    started = [*ONE_PROCESS, *(("processes", index) for index in range(count))]
    places = check(train_everywhere(tmp_path, "ViT", cases, started), capsys)
    assert places == ["one device", "two replicas", f"JAX, {count} processes"]


@pytest.mark.slow
def test_each_option_alone_is_the_same_everywhere(tmp_path, capsys):
    results = train_everywhere(tmp_path, "ViT", ["all"], ALL)
    places = ["one device", "two replicas", "two workers", "JAX, one device", "JAX, four devices"]
    assert check(results, capsys) == places
    # The cases do differ from each other, and from doing nothing.
    trained = {case: by_place["one device"]["weights"] for case, by_place in results.items()}
    alone = [case for case in results if results[case]["one device"]["of"] == case]
    for case in alone:
        for other in alone:
            same = case == other or {case, other} == {"plain", "ema_momentum"}
            assert same == (np.abs(trained[case] - trained[other]).max() < 10 * WEIGHTS)
