"""Reads damaged and hostile files of every kind, each with little memory and time.

    python tests/fuzz/fuzz.py --minutes 10 --seed 7 --findings findings
    python tests/fuzz/fuzz.py --readers npz safetensors --cases 200 --seed 0
    python tests/fuzz/fuzz.py --reproduce findings/npz-KeyError-3f2a

Each case is a good folder with one to three changes, drawn by a seed, and is read in another
process. It may be read or refused, by a ValueError or OSError of one message. A finding is a
crash, a hang, any other error, more memory than is allowed, or a file that appears elsewhere. The
first of a kind is kept with the command that repeats it. Exit code 1 with findings. Without a seed,
each run draws other cases.
"""

import argparse
import collections
import contextlib
import faulthandler
import hashlib
import json
import os
import pathlib
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import mutations

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 240  # For one file, on a loaded machine; an export is run twice, each by a process.
MEMORY = 2**30  # Bytes that reading one file may add; the files are small, bombs 256 MiB.
SLICE = 5.0  # Seconds of one reader, before the next one has its turn.
RESTART = 1.5 * 2**30  # Bytes that a process may grow by; Keras and TensorFlow keep graphs.


# In the process that reads


def status(name):
    """Returns bytes: VmRSS, memory in use, or VmHWM, the most of it."""
    text = pathlib.Path("/proc/self/status").read_text()
    return int(text.partition(f"{name}:")[2].split()[0]) * 1024


def serve():
    """Reads the folders that come in on standard input; answers each with a line of JSON."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Libraries print.
    faulthandler.enable()
    import readers

    # A limit of data, not of addresses: libraries reserve many more than they use.
    limit = 2 * status("VmHWM") + 2 * MEMORY
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    base = status("VmRSS")
    for line in sys.stdin:
        task = json.loads(line)
        answer = {"names": readers.usable()}
        if task["do"] != "list":
            reader, folder = readers.READERS[task["reader"]], pathlib.Path(task["folder"])
            if task["do"] == "make":
                folder.parent.mkdir(exist_ok=True)
                reader.make(folder)
                reader.read(folder)  # The good one; first calls take memory that stays.
            else:
                answer = attempt(reader, folder)
        answer["restart"] = status("VmRSS") - base > RESTART
        answers.write(json.dumps(answer) + "\n")


def attempt(reader, folder):
    """Reads a folder; returns what became of it."""
    before = mutations.files_below(folder)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # The peak starts again.
    base = status("VmRSS")
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    outcome, kind, message, place = "read", "", "", ""
    try:
        reader.read(folder)
    except (ValueError, OSError, ImportError) as error:
        outcome, message = "refused", str(error)
        if not message.strip():
            kind, place = f"empty {type(error).__name__}", _place(error)
    except BaseException as error:
        kind, message = type(error).__name__, traceback.format_exc()[-4000:]
        place = _place(error)
    faulthandler.cancel_dump_traceback_later()
    # The lock of a run that is continued may appear.
    locks = {path.relative_to(folder) for path in folder.rglob("*.partial/*lock*")}
    if not kind and status("VmHWM") - base > MEMORY:
        kind, message = "memory", f"{status('VmHWM') - base:,} bytes"
    elif not kind and (new := set(mutations.files_below(folder)) - set(before) - locks):
        kind, message = "new file", str(new)
    outcome = "finding" if kind else outcome
    return {"outcome": outcome, "kind": kind, "message": message, "place": place}


def _place(error):
    """The last line of our code in a traceback, which identifies the kind of error."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "site-packages" not in frame.filename]
    frame = (ours or frames)[-1]
    return f"{pathlib.Path(frame.filename).name}:{frame.name}"


# In the process that draws


class Process:
    """The process that reads, started again whenever it has died."""

    def __init__(self, work):
        self.work, self.process = work, None
        self.log = work / "log.txt"

    def ask(self, seconds=SECONDS + 30, **task):
        """Returns the answer to a task; a crash or a hang is one too."""
        if self.process is None:
            seconds += 120  # TensorFlow is imported.
            start = f"import sys; sys.path.insert(0, {str(HERE)!r}); import fuzz; fuzz.serve()"
            with open(self.log, "w") as log:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-c", start], cwd=self.work, text=True, stderr=log,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ},
                )  # fmt: skip
        killer = threading.Timer(seconds, self.process.kill)
        killer.start()
        answer = ""
        with contextlib.suppress(OSError):
            self.process.stdin.write(json.dumps(task, default=str) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        killer.cancel()
        if answer:
            found = json.loads(answer)
            if found["restart"]:
                self.stop()
            return found
        code = self.stop()
        log = self.log.read_text(errors="replace")
        hangs = "Timeout (" in log or code == -signal.SIGKILL
        kind = "hang" if hangs else signal.Signals(-code).name if code < 0 else f"exit {code}"
        ours = [line.strip() for line in log.splitlines() if line.lstrip().startswith("File ")]
        place = next((line for line in ours if "/keras_vit/" in line or "readers.py" in line), "")
        return {"outcome": "finding", "kind": kind, "message": log[-4000:], "place": place}

    def stop(self):
        """Ends the process; returns its exit code, 0 if there is none."""
        if self.process is None:
            return 0
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.process.kill()
        process, self.process = self.process, None
        return process.wait()


class Run:
    """A run over some readers: the cases, what became of them, and the findings."""

    def __init__(self, seed, folder):
        self.seed, self.folder = seed, folder
        self.outer = pathlib.Path(tempfile.mkdtemp(prefix="fuzz-"))
        self.work = self.outer / "work"
        self.work.mkdir()
        self.process = Process(self.work)
        self.counts = collections.defaultdict(collections.Counter)
        self.findings: dict[str, int] = {}

    def good(self, name):
        """The good folder of a reader, made at its first use."""
        folder = self.work / "good" / name
        if not folder.exists():
            found = self.process.ask(600, do="make", reader=name, folder=folder)
            if "kind" in found:
                raise RuntimeError(f"{name}: {found['message']}")
        return folder

    def case(self, name):
        """Draws and reads one case."""
        good, case = self.good(name), self.work / "case"
        shutil.rmtree(case, ignore_errors=True)
        number = self.counts[name].total()
        digest = hashlib.sha256(f"{self.seed} {name} {number}".encode()).digest()
        mutations.write_case(good, case, int.from_bytes(digest[:8], "little"))
        found = self.process.ask(do="read", reader=name, folder=case)
        if left := {entry.name for entry in self.outer.iterdir()} - {"work"}:
            found |= {"outcome": "finding", "kind": "file elsewhere", "message": str(left)}
            for entry in left:
                shutil.rmtree(self.outer / entry, ignore_errors=True)
                (self.outer / entry).unlink(missing_ok=True)
        self.counts[name][found["outcome"]] += 1
        if found["outcome"] == "finding":
            self.keep(name, number, case, found)

    def keep(self, name, number, case, found):
        """Keeps the first finding of a kind."""
        key = " ".join((name, found["kind"], found["place"]))
        self.findings[key] = self.findings.get(key, 0) + 1
        if self.findings[key] > 1:
            return
        kind = "".join(letter if letter.isalnum() else "_" for letter in found["kind"])
        place = self.folder / f"{name}-{kind}-{hashlib.sha256(key.encode()).hexdigest()[:6]}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        gone = mutations.keep_difference(self.good(name), case, place / "files")
        command = f"python {os.path.relpath(__file__)} --reproduce {place}"
        described = {"reader": name, "gone": gone, "seed": self.seed, "number": number}
        (place / "finding.json").write_text(json.dumps({**described, **found}, indent=2) + "\n")
        print(f"finding: {key}\n{found['message'][-600:]}\nkept: {command}", flush=True)

    def close(self):
        self.process.stop()
        shutil.rmtree(self.outer, ignore_errors=True)

    def summary(self):
        """Returns the figures by reader."""
        whats = ("read", "refused", "finding")
        lines = {
            name: {"cases": counts.total(), **{what: counts[what] for what in whats}}
            for name, counts in self.counts.items()
        }
        return {"seed": self.seed, "readers": lines, "findings": self.findings}


def run(names, seed, *, minutes, cases, folder):
    """Gives each reader its turn until the time is over or it has had its cases."""
    end = time.monotonic() + minutes * 60
    work = Run(seed, folder)
    try:
        names = names or work.process.ask(do="list")["names"]
        left = list(names)
        while left and (cases is not None or time.monotonic() < end):
            for name in list(left):
                turn = time.monotonic() + SLICE
                while time.monotonic() < turn:
                    if cases is not None and work.counts[name].total() >= cases:
                        left.remove(name)
                        break
                    work.case(name)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    finally:
        work.close()
    return work.summary()


def reproduce(place):
    """Reads a finding in this process, with its traceback; returns what the reader returns."""
    import readers

    found = json.loads((place / "finding.json").read_text())
    reader = readers.READERS[found["reader"]]
    with tempfile.TemporaryDirectory() as folder:
        good, case = pathlib.Path(folder, "good"), pathlib.Path(folder, "case")
        reader.make(good)
        mutations.write_kept(good, place / "files", found["gone"], case)
        return reader.read(case)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10, help="how long, all readers together")
    parser.add_argument("--cases", type=int, help="cases of each reader, instead of minutes")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9))
    parser.add_argument("--readers", nargs="+", help="names; all by default")
    parser.add_argument("--findings", type=pathlib.Path, default=pathlib.Path("fuzz-findings"))
    parser.add_argument("--reproduce", type=pathlib.Path, metavar="FINDING")
    options = parser.parse_args()
    if options.reproduce:
        print(reproduce(options.reproduce))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"seed {options.seed}", file=sys.stderr, flush=True)
    limits = {"minutes": options.minutes, "cases": options.cases}
    found = run(options.readers, options.seed, folder=options.findings, **limits)
    for name, line in found["readers"].items():
        print(f"{name:20}", *(f"{what} {value:,}" for what, value in line.items()), file=sys.stderr)
    print(json.dumps(found))
    return 1 if found["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
