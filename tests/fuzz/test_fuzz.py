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
@pytest.mark.parametrize("name", sorted(path.name for path in CORPUS.iterdir()))
def test_past_findings_are_read_or_refused(name, fuzz):
    with contextlib.suppress(ValueError, OSError):
        fuzz.reproduce(CORPUS / name)


def run(folder, *arguments):
    command = [sys.executable, HERE / "fuzz.py", "--findings", folder / "findings", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    return done.returncode, done.stdout, done.stderr[-3000:]


@pytest.mark.slow
def test_no_reader_has_a_finding_in_forty_cases(tmp_path):
    code, out, error = run(tmp_path, "--cases", "40", "--seed", "0")
    assert code == 0, out + error
    readers = json.loads(out.splitlines()[-1])["readers"]
    assert len(readers) >= 24
    for name, counts in readers.items():
        assert counts["cases"] == 40, name
        assert counts["read"], name  # The good one is among them, nearly unchanged.
