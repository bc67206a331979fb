"""Past findings of the fuzzing, and a short run of it."""

import contextlib
import json
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
CORPUS = HERE / "corpus"


sys.path.insert(0, str(HERE))

import fuzz  # noqa: E402


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_past_findings_are_read_or_refused(path):
    with contextlib.suppress(ValueError, OSError):
        fuzz.reproduce(path)


# One reader for each way of opening weights, and two of data.
@pytest.mark.parametrize("name", ["npz", "keras", "classifier_weights", "images", "csv"])
def test_good_files_are_read(name, tmp_path):
    import readers

    readers.READERS[name].make(tmp_path / "good")
    readers.READERS[name].read(tmp_path / "good")


@pytest.mark.slow
def test_no_reader_has_a_finding(tmp_path):
    command = [sys.executable, HERE / "fuzz.py", "--cases", "40", "--seed", "0"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])["readers"]  # Each read its good files first.
    assert len(found) >= 9
    assert {sum(counts.values()) for counts in found.values()} == {40}


def test_a_run_that_reads_nothing_fails(tmp_path):
    command = [sys.executable, HERE / "fuzz.py", "--minutes", "0", "--readers", "csv"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1, done.stdout
    assert "no case was read by csv" in done.stderr
