"""Reads damaged and hostile files of every kind, each with little memory and time.

    python tests/fuzz/fuzz.py --minutes 10 --seed 7 --findings findings
    python tests/fuzz/fuzz.py --readers npz safetensors --cases 200 --seed 0
    python tests/fuzz/fuzz.py --reproduce findings/npz-KeyError-3f2a

Each case is a good folder with one to three changes, drawn by a seed, and is read in another
process. It may be read or refused, by a ValueError or OSError of one message. A finding is a
crash, a hang, any other error, more memory than is allowed, or a file that appears elsewhere. The
first of a kind is made smaller and kept with the command that repeats
it. Exit code 1 with findings. Without a seed, each run draws other cases.
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
SMALLER = 120  # Attempts to make a finding smaller.


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
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]  # It stays, for `readers.without_limit`.
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    base = status("VmRSS")
    for line in sys.stdin:
        task = json.loads(line)
        if task["do"] == "list":
            answers.write(json.dumps({"names": readers.usable(), "restart": False}) + "\n")
            continue
        reader, folder = readers.READERS[task["reader"]], pathlib.Path(task["folder"])
        if task["do"] == "make":
            folder.parent.mkdir(exist_ok=True)
            reader.make(folder)
            reader.read(folder)  # The good one; first calls take memory that stays.
            answer = {}
        else:
            answer = attempt(reader, folder)
        answer["restart"] = status("VmRSS") - base > RESTART
        answers.write(json.dumps(answer) + "\n")


def attempt(reader, folder):
    """Reads a folder; returns what became of it."""
    before = mutations.files_below(folder)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # The peak starts again.
    base, start = status("VmRSS"), time.perf_counter()
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    outcome, kind, message, place = "read", "", "", ""
    try:
        reader.read(folder)
    except (ValueError, OSError, ImportError, *reader.also) as error:
        outcome, message = "refused", str(error)
        # A ValueError of another library is as good as ours if it is short and one message.
        if not message.strip():
            kind = f"empty {type(error).__name__}"
        if kind:
            place = _place(error)
    except BaseException as error:
        outcome, kind = "finding", type(error).__name__
        message, place = traceback.format_exc()[-4000:], _place(error)
    faulthandler.cancel_dump_traceback_later()
    grown, seconds = status("VmHWM") - base, time.perf_counter() - start
    if not kind and grown > MEMORY:
        kind, message = "memory", f"{grown:,} bytes"
    if not kind and set(mutations.files_below(folder)) - set(before) - _may_appear(folder):
        kind, message = "new file", str(set(mutations.files_below(folder)) - set(before))
    if kind:
        outcome = "finding"
    return {"outcome": outcome, "kind": kind, "message": message, "place": place,
            "bytes": grown, "seconds": seconds, "letters": len(message)}  # fmt: skip


def _may_appear(folder):
    """The lock of a run that is continued."""
    return {path.relative_to(folder) for path in folder.rglob("*.partial/*lock*")}


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
            with open(self.log, "w") as log:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _START.format(str(HERE))],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                    cwd=self.work, env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ},
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
        self.process.kill()
        code = self.process.wait()
        self.process.stdin = self.process = None
        log = self.log.read_text(errors="replace")
        hangs = "Timeout (" in log or code == -signal.SIGKILL
        kind = "hang" if hangs else signal.Signals(-code).name if code < 0 else f"exit {code}"
        ours = [line.strip() for line in log.splitlines() if line.lstrip().startswith("File ")]
        place = next((line for line in ours if "/keras_vit/" in line or "readers.py" in line), "")
        return {"outcome": "finding", "kind": kind, "message": log[-4000:], "place": place,
                "bytes": 0, "seconds": seconds, "letters": 0}  # fmt: skip

    def stop(self):
        if self.process is not None:
            self.process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
            self.process.kill()
            self.process.wait()
            self.process = None


_START = "import sys; sys.path.insert(0, {!r}); import fuzz; fuzz.serve()"


class Run:
    """A run over some readers: the cases, what became of them, and the findings."""

    def __init__(self, seed, folder):
        self.seed, self.folder = seed, folder
        self.outer = pathlib.Path(tempfile.mkdtemp(prefix="fuzz-"))
        self.work = self.outer / "work"
        self.work.mkdir()
        self.process = Process(self.work)
        self.counts = collections.defaultdict(collections.Counter)
        self.most = collections.defaultdict(collections.Counter)
        self.findings: dict[str, int] = {}

    def good(self, name):
        """The good folder of a reader, made at its first use."""
        folder = self.work / "good" / name
        if not folder.exists():
            found = self.process.ask(600, do="make", reader=name, folder=folder)
            if "kind" in found:
                raise RuntimeError(f"{name}: {found['message']}")
        return folder

    def read(self, name, folder):
        return self.process.ask(do="read", reader=name, folder=folder)

    def case(self, name, number):
        """Draws and reads one case."""
        good, case = self.good(name), self.work / "case"
        shutil.rmtree(case, ignore_errors=True)
        digest = hashlib.sha256(f"{self.seed} {name} {number}".encode()).digest()
        mutations.write_case(good, case, int.from_bytes(digest[:8], "little"))
        found = self.read(name, case)
        if left := {entry.name for entry in self.outer.iterdir()} - {"work"}:
            found |= {"outcome": "finding", "kind": "file elsewhere", "message": str(left)}
            for entry in left:
                shutil.rmtree(self.outer / entry, ignore_errors=True)
                (self.outer / entry).unlink(missing_ok=True)
        self.counts[name][found["outcome"]] += 1
        for part in ("bytes", "seconds", "letters"):
            self.most[name][part] = max(self.most[name][part], found[part])
        if found["outcome"] == "finding":
            self.keep(name, number, case, found)

    def keep(self, name, number, case, found):
        """Keeps the first finding of a kind, as small as it gets."""
        key = " ".join((name, found["kind"], found["place"]))
        self.findings[key] = self.findings.get(key, 0) + 1
        if self.findings[key] > 1:
            return
        print(f"finding: {key}\n{found['message'][-600:]}", flush=True)
        kept = self.work / "kept"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(case, kept, symlinks=True)
        if found["kind"] != "hang":
            self.make_smaller(name, kept, (found["kind"], found["place"]))
        kind = "".join(letter if letter.isalnum() else "_" for letter in found["kind"])
        digest = hashlib.sha256(key.encode()).hexdigest()[:6]
        place = self.folder / f"{name}-{kind}-{digest}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        gone = mutations.keep_difference(self.good(name), kept, place / "files")
        command = f"python {os.path.relpath(__file__)} --reproduce {place}"
        described = {"reader": name, "gone": gone, "seed": self.seed, "number": number,
                     "command": command}  # fmt: skip
        (place / "finding.json").write_text(json.dumps({**described, **found}, indent=2) + "\n")
        print(f"kept: {command}", flush=True)

    def make_smaller(self, name, kept, key):
        """Undoes changes of a case, and leaves out bytes and keys, while it still fails."""
        good, trial = self.good(name), self.work / "case"
        attempts = iter(range(SMALLER))

        def fails(change):
            shutil.rmtree(trial, ignore_errors=True)
            shutil.copytree(kept, trial, symlinks=True)
            change()
            found = self.read(name, trial)
            if found["outcome"] == "finding" and (found["kind"], found["place"]) == key:
                shutil.rmtree(kept)
                shutil.copytree(trial, kept, symlinks=True)
                return True
            return False

        whole = mutations.files_below(good)
        for part, path in mutations.files_below(kept).items():
            is_file = path.is_file() and not path.is_symlink()
            content = whole[part].read_bytes() if part in whole else b""
            if not is_file or path.read_bytes() == content:
                continue
            if fails(lambda part=part, content=content: (trial / part).write_bytes(content)):
                continue
            again = True
            while again:
                again = False
                bad = (kept / part).read_bytes()
                for smaller in mutations.smaller(content, bad, part.name):
                    if next(attempts, None) is None:
                        return
                    if fails(lambda part=part, new=smaller: (trial / part).write_bytes(new)):
                        again = True
                        break

    def close(self):
        self.process.stop()
        shutil.rmtree(self.outer, ignore_errors=True)

    def summary(self, seconds):
        """Returns the figures by reader."""
        lines = {}
        for name, counts in self.counts.items():
            lines[name] = {
                "cases": sum(counts.values()),
                **{what: counts[what] for what in ("read", "refused", "finding")},
                **{what: round(value, 2) for what, value in self.most[name].items()},
            }
        return {"seed": self.seed, "minutes": round(seconds / 60, 1), "readers": lines,
                "findings": self.findings}  # fmt: skip


def run(names, seed, *, minutes, cases, folder):
    """Gives each reader its turn until the time is over or it has had its cases."""
    started = time.monotonic()
    work = Run(seed, folder)
    try:
        if not names:
            answer = work.process.ask(do="list")
            if "names" not in answer:
                raise SystemExit(
                    f"The readers did not start ({answer['kind']}). {answer['message']}"
                )
            names = answer["names"]
        numbers = dict.fromkeys(names, 0)
        left = list(names)
        while left:
            for name in list(left):
                turn = time.monotonic() + SLICE
                work.good(name)
                while time.monotonic() < turn or cases is not None:
                    if cases is not None and numbers[name] >= cases:
                        left.remove(name)
                        break
                    work.case(name, numbers[name])
                    numbers[name] += 1
                if cases is None and time.monotonic() - started > minutes * 60:
                    left = []
                    break
            folder.mkdir(parents=True, exist_ok=True)
            figures = json.dumps(work.summary(time.monotonic() - started), indent=2)
            (folder / "figures.json").write_text(figures + "\n")
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    finally:
        work.close()
    return work.summary(time.monotonic() - started)


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
    found = run(
        options.readers,
        options.seed,
        minutes=options.minutes,
        cases=options.cases,
        folder=options.findings,
    )
    for name, line in found["readers"].items():
        print(f"{name:20}", *(f"{what} {value:,}" for what, value in line.items()), file=sys.stderr)
    print(json.dumps(found))
    return 1 if found["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
