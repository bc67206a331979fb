"""Commands in processes of JAX, of which one is stopped or lost."""

import csv
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from makers import write_classes

pytestmark = pytest.mark.slow
KERAS_VIT = pathlib.Path(sys.executable).with_name("keras-vit")
ABORTED = -signal.SIGABRT


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    shades = {"bright": 200, "dark": 60}
    folder = tmp_path_factory.mktemp("shades")
    return write_classes(folder, {"train": 12, "test": 3}, shades, size=(32, 32), noise=30)


def start(*words, processes=(), **variables):
    """Starts a command, in one process or with the flags of another."""
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
        **variables,
    }
    command = [KERAS_VIT, *map(str, words), *map(str, processes)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def start_together(count, *words):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{one.getsockname()[1]}"
    flags = ("--coordinator", address, "--processes", count, "--process")
    return [start(*words, processes=(*flags, index)) for index in range(count)]


def start_as_slurm_does(count, *words):
    """Starts processes with the variables that `srun` gives them on one machine."""
    shared = {
        "SLURM_JOB_ID": str(os.getpid()),  # JAX takes the port from it.
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_NTASKS": str(count),
    }
    processes = []
    for index in range(count):
        own = {"SLURM_PROCID": str(index), "SLURM_LOCALID": str(index)}
        processes.append(start(*words, processes=("--coordinator", "auto"), **shared, **own))
    return processes


def finetune(data, output):
    weights = "r14_vit_micro16_cifar10"
    options = ("--steps", 30, "--batch-size", 8, "--evaluate-every", 5, "--image-size", 32)
    return ("finetune", data, "--weights", weights, "--output", output, *options)


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def wait_for_step(folder, step):
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        history = folder / "history.csv"
        if history.is_file() and any(int(row["step"]) >= step for row in rows(history)):
            return
        time.sleep(0.1)
    raise AssertionError(f"no step {step} in {folder}")


def losses(output):
    """The validation losses by step; a training loss is a mean since the row before."""
    column = "validation_loss"
    return {row["step"]: float(row[column]) for row in rows(output / "history.csv") if row[column]}


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    """The folder of a run in one process."""
    output = tmp_path_factory.mktemp("whole") / "run"
    process = start(*finetune(data, output))
    assert process.wait() == 0, process.stderr.read()[-3000:]
    return output


@pytest.fixture(scope="module")
def whole(finished):
    """Its losses by step."""
    return losses(finished)


def check_resumed(output, whole):
    process = start("finetune", "--output", output, "--resume")
    assert process.wait() == 0, process.stderr.read()[-3000:]
    resumed = losses(output)
    common = set(resumed) & set(whole)
    assert "30" in common
    assert all(resumed[step] == pytest.approx(whole[step], abs=1e-4) for step in common)


def test_a_signal_to_one_stops_all_at_one_step_and_one_process_goes_on(data, whole, tmp_path):
    first, second = start_together(2, *finetune(data, tmp_path / "run"))
    wait_for_step(tmp_path / "run.partial", 5)
    second.send_signal(signal.SIGTERM)
    ends = [process.communicate()[1] for process in (first, second)]
    assert [first.returncode, second.returncode] == [143, 143], ends
    stops = [text.partition("Stopped after step ")[2].split()[0] for text in ends]
    assert stops[0] == stops[1]
    check_resumed(tmp_path / "run", whole)


def test_all_end_when_the_first_is_lost_and_one_process_goes_on(data, whole, tmp_path):
    processes = start_together(2, *finetune(data, tmp_path / "run"))
    wait_for_step(tmp_path / "run.partial", 5)
    processes[0].kill()
    ends = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [-signal.SIGKILL, ABORTED]
    assert "Start the command again, in any number of processes" in ends[1]
    check_resumed(tmp_path / "run", whole)


def test_a_run_goes_on_in_four_processes_and_in_two_that_slurm_names(data, whole, tmp_path):
    output = tmp_path / "run"
    partial = tmp_path / "run.partial"
    alone = start(*finetune(data, output))
    wait_for_step(partial, 5)
    alone.send_signal(signal.SIGTERM)
    alone.communicate()
    four = start_together(4, "finetune", "--output", output, "--resume")
    wait_for_step(partial, 15)
    four[2].kill()
    for process in four:
        process.communicate(timeout=120)
    assert [process.returncode for process in four].count(ABORTED) == 3
    two = start_as_slurm_does(2, "finetune", "--output", output, "--resume")
    ends = [process.communicate()[1] for process in two]
    assert [process.returncode for process in two] == [0, 0], ends
    resumed = {step: loss for step, loss in losses(output).items() if step in whole}
    assert resumed.keys() >= {"20", "25", "30"}
    assert resumed == pytest.approx({step: whole[step] for step in resumed}, abs=1e-4)


@pytest.mark.parametrize(("command", "options"), [("evaluate", ()), ("few-shot", ("--shots", 1))])
def test_two_processes_have_the_numbers_of_one(command, options, finished, data, tmp_path):
    for count in (1, 2):
        output = tmp_path / str(count)
        run_together(count, command, finished, *options, "--data", data, "--output", output)
    results = [content_of(tmp_path / str(count)) for count in (1, 2)]
    assert numbers(results[1]) == pytest.approx(numbers(results[0]), abs=1e-5)


def test_a_calibration_in_two_processes_has_the_numbers_of_one(finished, tmp_path):
    shades = {"bright": 180, "dark": 80}
    new = write_classes(tmp_path / "new", {"test": 20}, shades, size=(32, 32), noise=60)
    for count in (1, 2):
        folder = shutil.copytree(finished, tmp_path / str(count))
        run_together(count, "calibrate", folder, "--data", new, "--max-error", 0.4)
    one, two = (json.loads((tmp_path / str(n) / "recipe.json").read_text()) for n in (1, 2))
    assert one["decision"]["images"] == 32  # A fifth fits the temperature.
    assert numbers(two["decision"]) == pytest.approx(numbers(one["decision"]), abs=1e-5)


def run_together(count, *words):
    processes = start_together(count, *words)
    ends = [process.communicate()[1] for process in processes]
    assert not any(process.returncode for process in processes), ends


def content_of(folder):
    """Returns the content of all JSON files."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def numbers(value):
    """Returns the numbers of JSON, except times, in order."""
    if isinstance(value, dict):
        value = [item for key, item in value.items() if "second" not in key]
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    return [value] if isinstance(value, int | float) else []
