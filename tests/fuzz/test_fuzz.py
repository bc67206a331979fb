"""Past findings of the fuzzing, and a short run of it."""

import contextlib
import json
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
CORPUS = HERE / "corpus"


@pytest.fixture(scope="module")
def fuzz():
    sys.path.insert(0, str(HERE))
    import fuzz

    yield fuzz
    sys.path.remove(str(HERE))


@pytest.mark.filterwarnings("ignore:Skipped")  # A damaged state.
@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_past_findings_are_read_or_refused(path, fuzz, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # Where exports are made.
    with contextlib.suppress(ValueError, OSError):
        fuzz.reproduce(path)


# Exports and runs take longer; one reader for each way of opening weights, and two of data.
@pytest.mark.parametrize("name", ["npz", "keras", "classifier_weights", "images", "csv"])
def test_good_files_are_read(name, fuzz, tmp_path):
    import readers

    readers.READERS[name].make(tmp_path / "good")
    readers.READERS[name].read(tmp_path / "good")


def run(folder, *arguments):
    command = [sys.executable, HERE / "fuzz.py", "--findings", folder / "findings", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    return done.returncode, done.stdout, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize(("verified", "cases", "least"), [(False, 40, 13), (True, 4, 4)])
def test_no_reader_has_a_finding(fuzz, tmp_path, monkeypatch, verified, cases, least):
    monkeypatch.chdir(tmp_path)
    import readers

    # An export is verified in a separate process, which takes seconds for each case.
    names = [name for name in readers.usable() if name.startswith("verify_") == verified]
    code, out, error = run(tmp_path, "--cases", str(cases), "--seed", "0", "--readers", *names)
    assert code == 0, out + error
    found = json.loads(out.splitlines()[-1])["readers"]
    assert len(found) >= least
    for name, counts in found.items():
        assert counts["cases"] == cases, name
        assert verified or counts["read"], name  # The good one is among them, nearly unchanged.
