"""Two runs into one output: the second is refused, unless the first has ended."""

import json
import os
import socket
import subprocess
import sys

import pytest

from keras_vit.training.run import lock
from keras_vit.training.run.folder import BEST, RunFolder

PROGRAM = """
import sys
from pathlib import Path
from keras_vit.training.run.lock import acquire
acquire(Path(sys.argv[1]))
print("taken", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path):
    """A process that has started a run, and its output."""
    RunFolder(tmp_path / "run").start({})
    lock.release(tmp_path / "run.partial")
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run.partial")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, text=True, **pipes)
    assert process.stdout.readline() == "taken\n"
    yield process, tmp_path / "run"
    process.kill()
    process.communicate()


def test_a_run_whose_process_lives_is_left_alone_and_one_that_was_killed_is_resumed(other):
    process, output = other
    for options in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(ValueError, match=f"taken by process {process.pid} on this host"):
            RunFolder(output, **options)
    process.kill()
    process.wait()
    run = RunFolder(output, resume=True)
    with run.locked():
        assert json.loads((run.path / lock.LOCK).read_text())["process"] == os.getpid()
    assert not (run.path / lock.LOCK).exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_that_name_with_other_files_is_left_alone(tmp_path, overwrite):
    mine = tmp_path / "run.partial" / "thesis.txt"
    mine.parent.mkdir()
    with RunFolder(tmp_path / "run").locked():  # An empty one is taken.
        mine.write_text("mine")
        with pytest.raises(ValueError, match="choose another output.*partial, with thesis.txt"):
            RunFolder(tmp_path / "run", overwrite=overwrite)
    assert mine.read_text() == "mine"
    (mine.parent / lock.LOCK).write_text("{}")  # A run that was killed as it started.
    RunFolder(tmp_path / "run").start({})
    assert not mine.exists()


def test_the_second_of_two_new_runs_is_refused_when_it_starts(tmp_path, monkeypatch):
    first, second = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    first.start({})
    (first.path / "history.csv").write_text("step\n")
    monkeypatch.setattr(lock, "_this_process", lambda: {"host": "x", "process": 1, "started": "1"})
    with pytest.raises(ValueError, match=f"taken by process {os.getpid()} on this host"):
        second.start({})
    assert (first.path / "history.csv").exists()


def test_a_lock_of_another_host_says_what_to_remove(tmp_path):
    run = RunFolder(tmp_path / "run")
    run.start({})
    path = run.path / lock.LOCK
    path.write_text(json.dumps({"host": "elsewhere", "process": 7, "started": "1"}))
    with pytest.raises(ValueError, match=f"remove {path}.* process 7 on elsewhere"):
        RunFolder(tmp_path / "run", resume=True)
    path.unlink()
    with RunFolder(tmp_path / "run", resume=True).locked():
        pass


@pytest.mark.parametrize(
    "held",
    [
        {"process": 2**22 + 1, "started": "1"},  # No such process.
        {"process": os.getpid(), "started": "an earlier one of this number"},
        {"process": -1, "started": None},
        {"process": [], "started": {}},
        {},
    ],
)
def test_a_lock_of_no_process_is_taken(held, tmp_path):
    run = RunFolder(tmp_path / "run")
    run.start({})
    (run.path / lock.LOCK).write_text(json.dumps({"host": socket.gethostname(), **held}))
    with RunFolder(tmp_path / "run", resume=True).locked():
        assert json.loads((run.path / lock.LOCK).read_text()) == lock._this_process()


def test_only_the_first_worker_takes_the_lock(tmp_path, monkeypatch):
    RunFolder(tmp_path / "run").start({})
    cluster = {"worker": ["a:1", "b:1"]}
    task = {"type": "worker", "index": 1}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    monkeypatch.setattr(lock, "_this_process", lambda: {"host": "b", "process": 1, "started": "1"})
    run = RunFolder(tmp_path / "run", resume=True)
    with run.locked():
        run.start({})


def test_temporary_files_of_a_killed_process_are_not_published(tmp_path):
    run = RunFolder(tmp_path / "run")
    run.start({})
    for name in (BEST, ".states/state-000000001.npz"):
        path = run.path / name
        path.with_name(f".{'0a' * 16}-{path.name}").write_bytes(b"half")
    (run.path / ".keep").write_text("a file of the user")
    lock.release(run.path)
    run = RunFolder(tmp_path / "run", resume=True)
    with run.locked():
        assert not list(run.path.rglob(".0a*"))
        run.publish()
    assert sorted(path.name for path in run.output.iterdir()) == [".keep", "recipe.json"]
