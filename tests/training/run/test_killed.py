"""Runs that are killed at any moment, at their end too, and continued."""

import csv
import itertools
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import pytest

from keras_vit.opening import open_predictor
from keras_vit.training.run.folder import clear_finished
from keras_vit.utils.files import UNFINISHED, check_folder

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

    def ask(name, ends=(0, KILLED), **kill):
        process.stdin.write(json.dumps({"name": name, **kill}) + "\n")
        process.stdin.flush()
        found = json.loads(process.stdout.readline())
        ends = (*ends, 1) if "full" in kill else ends
        assert found["code"] in ends, (tmp_path / "log.txt").read_text()[-3000:]
        return found

    yield ask
    process.stdin.close()
    process.wait()


TRAINING = (
    *("--image-size", "8", "--batch-size", "6", "--accumulate", "1", "--steps", "2"),
    *("--evaluate-every", "1", "--augmentation", "none"),
    "--no-jit-compile",
)
FINETUNE = ("--samples", "none", "--validation", "0.25")


class Command:
    """A command that trains, killed and gone on with.

    Args:
        run: The fixture.
        folder: The folder of all runs.
        words: The command.
        older: A classifier to overwrite, or None.
        exchange: Whether the system exchanges folders.
    """

    def __init__(self, run, folder, words, older=None, exchange=True):
        self.run, self.folder, self.older, self.exchange = run, folder, older, exchange
        self.words = [*map(str, words), *TRAINING]
        whole = self.start("whole")
        assert whole["code"] == 0, whole
        self.expected, self.done = content(folder / "whole"), whole["done"]

    def start(self, name, **how):
        if self.older is not None:
            shutil.copytree(self.older, self.folder / name)
        return self.call(name, [*self.words, *["--overwrite"] * (self.older is not None)], **how)

    def resume(self, name, **how):
        command = self.words[: self.words.index("--data")]  # With its objective.
        return self.call(name, [*command, "--resume"], **how)

    def call(self, name, words, **how):
        words = [*words, "--output", str(self.folder / name)]
        return self.run(name, words=words, exchange=self.exchange, **how)

    def check_what_is_left(self, name):
        """What a killed run has left goes on to the same end."""
        assert self.older is None or load_folder(self.folder / name)
        if (self.folder / f"{name}.partial" / UNFINISHED).exists():
            assert self.resume(name)["code"] == 0
        else:  # The next start removes what is left.
            assert "exit code 2" in self.call(name, self.words, ends=(1,))["error"]
        assert content(self.folder / name) == self.expected
        assert sorted(path.name for path in self.folder.glob(f"*{name}*")) == [name]


def load_folder(output):
    """The classifier in an output, at any moment of a run that overwrites it."""
    check_folder(output, marker="model.keras", overwrite=True)  # As each command that writes to it.
    return open_predictor(output)


@pytest.mark.parametrize(
    ("job", "exchange"), [("finetune", True), ("finetune", False), ("pretrain", True)]
)
@pytest.mark.slow
def test_a_command_killed_at_any_operation_after_its_last_step_ends_the_same(
    job, exchange, run, tmp_path, tiny, colors
):
    words = (job, "--data", colors, "--weights", tiny, *FINETUNE)
    if job == "pretrain":
        masked = (job, "--objective", "masked-patches")
        words = (*masked, "--data", colors, "--model", "ViT-Mini/4")
    older = tiny if job == "finetune" else None
    command = Command(run, tmp_path, words, older, exchange)
    trained = max(place for place, what in enumerate(command.done) if "000000002.npz" in what) + 2
    assert command.start("trained", operation=trained)["code"] == KILLED

    def copy(name):
        for end in ("", ".partial"):
            if (tmp_path / f"trained{end}").exists():
                shutil.copytree(tmp_path / f"trained{end}", tmp_path / f"{name}{end}")
        return name

    count = command.resume(copy("count"))["operations"]
    assert count > 30
    for operation in range(1, count + 1):
        name = copy(f"killed_{operation}")
        assert command.resume(name, operation=operation)["code"] == KILLED
        command.check_what_is_left(name)


def test_a_command_killed_as_it_writes_its_finished_folder_goes_on(run, tmp_path, tiny, colors):
    words = ("finetune", "--data", colors, "--weights", tiny, *FINETUNE)
    command = Command(run, tmp_path, words, tiny)
    for name, moment in (("written", "os.rename README.md"), ("renamed", "whole.partial ")):
        operation = max(place for place, what in enumerate(command.done) if moment in what) + 2
        assert command.start(name, operation=operation)["code"] == KILLED
        command.check_what_is_left(name)


def content(folder):
    """Everything that a run has written, without times."""
    found = {"files": sorted(path.name for path in folder.iterdir())}
    with open(folder / "history.csv", newline="") as file:
        found["history"] = [
            {name: value for name, value in row.items() if name != "images_per_second"}
            for row in csv.DictReader(file)
        ]
    for name in ("model.keras",):
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
    assert len(expected["history"]) == 7  # The weights before the first step are validated too.
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
        clear_finished(tmp_path / name)  # As the next start does.
        assert content(tmp_path / name) == expected
    assert min(kills.values()) > 0
    assert len(places) > 5  # Without a state, with one and two, and within several writings.


def damage(path, rng):
    """Cuts a file off, or changes one of its bytes."""
    content = bytearray(path.read_bytes())
    if rng.random() < 0.5:
        content = content[: rng.randrange(len(content))]
    else:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


@pytest.mark.slow
def test_runs_whose_states_are_damaged_after_a_kill_end_bit_for_bit_the_same(run, tmp_path):
    rng = random.Random(1)
    whole = run("whole")
    expected = content(tmp_path / "whole")
    damaged = 0
    for number in range(12):
        name = f"run_{number}"
        run(name, operation=rng.randint(whole["operations"] // 3, whole["operations"] - 3))
        states = sorted((tmp_path / f"{name}.partial" / ".states").glob("state-*.npz"))
        for path in rng.choice([states[-1:], states]):  # The newest, or each of them.
            damage(path, rng)
            damaged += 1
        run(name)
        assert content(tmp_path / name) == expected
    assert damaged >= 12


@pytest.mark.slow
def test_runs_whose_disk_is_full_at_any_moment_say_so_and_go_on_to_the_same_end(run, tmp_path):
    whole = run("whole")
    expected = content(tmp_path / "whole")
    failed = 0
    for number, operation in enumerate(range(1, whole["operations"] + 1, 5)):
        name = f"run_{number}"
        found = run(name, full=operation)
        if found["code"]:
            failed += 1
            assert "No space left on device" in found["error"], found
            assert run(name)["code"] == 0
        assert content(tmp_path / name) == expected
    assert failed > 10
