"""Plants faults into the code, one at a time, and runs the tests that should notice them.

    python tests/programs/planted_faults.py FAULTS.txt

A line of FAULTS.txt is `PATH :: BEFORE :: AFTER :: TESTS`: in the file PATH the text BEFORE, which
it has once, becomes AFTER; TESTS are arguments of pytest. A fault that no test notices survives and
is printed: a test is missing, unless the change makes no difference.

The files of this checkout are changed and restored, so it must not have uncommitted changes, and
the package that is imported must be this one.
"""

import pathlib
import re
import subprocess
import sys
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT = 1200  # Seconds for the tests of a fault.


class Fault(NamedTuple):
    """A text that replaces another in a file, and the tests that should notice it."""

    path: str
    before: str
    after: str
    tests: str


def read_faults(text, root=ROOT):
    """Returns the faults of a list; raises ValueError for a text that is not once in its file."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    faults = [Fault(*map(str.strip, line.split(" :: "))) for line in lines]
    for fault in faults:
        if (count := (root / fault.path).read_text("utf-8").count(fault.before)) != 1:
            raise ValueError(f"{fault.path} must have {fault.before!r} once. Received: {count}")
    return faults


def check_imported(root=ROOT):
    """Raises ValueError if a new process imports the package from outside of the checkout."""
    code = "import keras_vit, keras_vit.training as t; print(keras_vit.__file__, t.__file__)"
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, cwd=root / "tests", capture_output=True, text=True, check=True)
    for file in run.stdout.split():
        if not pathlib.Path(file).resolve().is_relative_to(root):
            raise ValueError(f"The package must be imported from {root}. Received: {file}")


def noticed_by(fault):
    """Returns the tests that fail with a fault, "" for none, and the seconds that this took."""
    path, began = ROOT / fault.path, time.monotonic()
    source = path.read_text(encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    try:
        path.write_text(source.replace(fault.before, fault.after), encoding="utf-8")
        run = subprocess.run(
            [*command, *fault.tests.split()],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
        noticed = " ".join(failed) or run.stderr[-300:].strip() if run.returncode else ""
    except subprocess.TimeoutExpired:
        noticed = f"no answer in {TIMEOUT} s"
    finally:
        path.write_text(source, encoding="utf-8")
    return noticed, time.monotonic() - began


def main(file):
    """Prints each fault with what became of it, and the number of survivors at the end."""
    status = ["git", "status", "--porcelain", "--untracked-files=no"]
    if subprocess.run(status, cwd=ROOT, capture_output=True, check=True).stdout:
        raise ValueError("The checkout must have no changes: files are changed and restored.")
    check_imported()
    faults, survivors = read_faults(pathlib.Path(file).read_text("utf-8")), 0
    for fault in faults:
        noticed, seconds = noticed_by(fault)
        word = "noticed " if noticed else "SURVIVED"
        print(f"{word} {seconds:4.0f} s  {fault.path}: {fault.before} -> {fault.after}")
        print(f"          {noticed}" if noticed else "", flush=True)
        survivors += not noticed
    print(f"{survivors} of {len(faults)} survived")
    return bool(survivors)


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except ValueError as error:
        sys.exit(str(error))
