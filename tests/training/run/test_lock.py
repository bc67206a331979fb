"""Two runs into one output: the second is refused, unless the first has ended."""

import fcntl
import subprocess
import sys

import pytest

from keras_vit.description.run_record import RunRecord
from keras_vit.training.run.folder import BEST, LOCK, open_folder
from keras_vit.utils.files import UNFINISHED

PROGRAM = """
import sys
from keras_vit.description.run_record import RunRecord
from keras_vit.training.run.folder import open_folder
run = open_folder(sys.argv[1])
run.start(RunRecord())
print("taken", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path):
    """A process that has started a run, and its output."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, text=True, **pipes)
    assert process.stdout.readline() == "taken\n"
    yield process, tmp_path / "run"
    process.kill()
    process.communicate()


def test_a_run_whose_process_lives_is_left_alone_and_one_that_was_killed_is_resumed(other):
    process, output = other
    with pytest.raises(ValueError, match="unfinished run"):
        open_folder(output)
    resumed, again = open_folder(output, resume=True), open_folder(output, overwrite=True)
    with pytest.raises(ValueError, match="another process"), resumed.locked():
        pass
    with pytest.raises(ValueError, match="another process"), again.locked():
        again.start(RunRecord())
    process.kill()
    process.wait()
    run = open_folder(output, resume=True)
    with run.locked():
        assert run.lock.is_locked
    assert not (run.path / LOCK).exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_that_name_with_other_files_is_left_alone(tmp_path, overwrite):
    mine = tmp_path / "run.partial" / "thesis.txt"
    mine.parent.mkdir()
    with open_folder(tmp_path / "run").locked():  # An empty one is taken.
        mine.write_text("mine")
        with pytest.raises(ValueError, match="partial, with thesis.txt"):
            open_folder(tmp_path / "run", overwrite=overwrite)
    assert mine.read_text() == "mine"
    (mine.parent / LOCK).touch()  # A run that was killed as it started.
    open_folder(tmp_path / "run").start(RunRecord())
    assert not mine.exists()


def test_the_second_of_two_new_runs_is_refused_when_it_starts(tmp_path):
    run = open_folder(tmp_path / "run")
    run.path.mkdir()
    with open(run.path / LOCK, "w") as file:  # Another one was faster.
        fcntl.flock(file, fcntl.LOCK_EX)
        (run.path / "history.csv").write_text("step\n")
        with pytest.raises(ValueError, match="another process"), run.locked():
            run.start(RunRecord())
    assert (run.path / "history.csv").exists()
    assert (run.path / LOCK).exists()


def test_temporary_files_of_a_killed_process_are_not_published(tmp_path):
    run = open_folder(tmp_path / "run")
    run.start(RunRecord())
    for name in (BEST, ".states/state-000000001.npz"):
        path = run.path / name
        path.with_name(f".{'0a' * 16}-{path.name}").write_bytes(b"half")
    (run.path / ".keep").write_text("a file of the user")
    run.lock.release(force=True)
    run = open_folder(tmp_path / "run", resume=True)
    with run.locked():
        assert not list(run.path.rglob(".0a*"))
        run.publish()
    assert [path.name for path in run.output.iterdir()] == [".keep"]


def test_a_run_that_ends_while_another_process_waits_to_resume_it_is_not_begun_again(tmp_path):
    open_folder(tmp_path / "run").start(RunRecord())
    late = open_folder(tmp_path / "run", resume=True)
    (late.path / UNFINISHED).unlink()
    with pytest.raises(ValueError, match="has ended meanwhile"), late.locked():
        pass
