"""Reads damaged and hostile weights, classifiers, images and data with little memory and time.

    python tests/fuzz/fuzz.py --minutes 10 --seed 7 --findings findings
    python tests/fuzz/fuzz.py --readers npz safetensors --cases 200 --seed 0
    python tests/fuzz/fuzz.py --reproduce findings/npz-KeyError-3f2a

Each case is a good folder with one to three changes, drawn by a seed, and is read in another
process. It may be read or refused, by a ValueError or OSError of one message. A finding is a
crash, a hang, any other error, more memory than is allowed, or a file that appears elsewhere. The
first of a kind is kept with the command that repeats it. Exit code 1 with findings, and where a
reader has read nothing. Without a seed, each run draws other cases.
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
import time
import traceback

import mutations

SECONDS = 100  # For one file, on a loaded machine.
MEMORY = 2**30  # Bytes that reading one file may add; the files are small, bombs 256 MiB.
TURN = 300  # Cases of one process; Keras and TensorFlow keep graphs.


def draw(work, reader, seed, number):
    """Writes a case in place of the last one and returns its folder."""
    digest = hashlib.sha256(f"{seed} {reader} {number}".encode()).digest()
    shutil.rmtree(work / "case", ignore_errors=True)
    mutations.write_case(work / "good", work / "case", int.from_bytes(digest[:8], "little"))
    return work / "case"


# In the process that reads


def status(name):
    """Returns bytes: VmRSS, memory in use, or VmHWM, the most of it."""
    text = pathlib.Path("/proc/self/status").read_text()
    return int(text.partition(f"{name}:")[2].split()[0]) * 1024


def read_cases(name, seed, first, last, end):
    """Reads cases until a time; prints a line of JSON for each."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Libraries print.
    faulthandler.enable()
    import readers

    reader, work = readers.READERS[name], pathlib.Path.cwd()
    if not (work / "good").exists():
        reader.make(work / "good")
    reader.read(work / "good")  # First calls take memory that stays.
    # A limit of data, not of addresses: libraries reserve many more than they use.
    limit = 2 * status("VmHWM") + 2 * MEMORY
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    for number in range(first, last):
        if time.time() > end:
            return
        found = attempt(reader, draw(work, name, seed, number))
        if left := {entry.name for entry in work.parent.iterdir()} - {work.name}:
            found = {"outcome": "finding", "kind": "file elsewhere", "place": "", "message": left}
            for entry in left:
                shutil.rmtree(work.parent / entry, ignore_errors=True)
                (work.parent / entry).unlink(missing_ok=True)
        answers.write(json.dumps(found, default=str) + "\n")


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
    if not kind and status("VmHWM") - base > MEMORY:
        kind, message = "memory", f"{status('VmHWM') - base:,} bytes"
    elif not kind and (new := set(mutations.files_below(folder)) - set(before)):
        kind, message = "new file", str(new)
    outcome = "finding" if kind else outcome
    return {"outcome": outcome, "kind": kind, "message": message, "place": place}


def _place(error):
    """The last line of our code in a traceback, which identifies the kind of error."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "site-packages" not in frame.filename]
    frame = (ours or frames)[-1]
    return f"{pathlib.Path(frame.filename).name}:{frame.name}"


# In the process that starts it


def run(names, seed, *, minutes, cases, folder):
    """Reads cases of each reader for its share of the time, or a number; returns the figures."""
    counts = {name: collections.Counter() for name in names}
    findings: dict[str, int] = {}
    with contextlib.suppress(KeyboardInterrupt):
        for name in names:
            end = time.time() + (1e9 if cases else minutes * 60 / len(names))
            with tempfile.TemporaryDirectory(prefix="fuzz-") as outer:
                work = pathlib.Path(outer, "work")
                work.mkdir()
                number = 0
                while number < (cases or 10**9) and time.time() < end:
                    last = min(cases or 10**9, number + TURN)
                    for found in _read_cases(work, name, seed, number, last, end):
                        counts[name][found["outcome"]] += 1
                        if found["outcome"] == "finding":
                            key = " ".join((name, found["kind"], found["place"]))
                            findings[key] = findings.get(key, 0) + 1
                            if findings[key] == 1:
                                keep(work, folder, name, seed, number, found)
                        number += 1
    return {"seed": seed, "readers": counts, "findings": findings}


def _read_cases(work, name, seed, first, last, end):
    """What became of the cases in another process; a crash or a hang is the last one."""
    given = json.dumps([name, seed, first, last, end])
    done = subprocess.run(
        [sys.executable, __file__, "--read", given], cwd=work, text=True, errors="replace",
        capture_output=True, env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ},
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode:
        if first == 0 and not (work / "case").exists():
            raise RuntimeError(f"{name}: {done.stderr[-4000:]}")
        code = done.returncode
        kind = signal.Signals(-code).name if code < 0 else f"exit {code}"
        kind = "hang" if "Timeout (" in done.stderr else kind
        lines = [line.strip() for line in done.stderr.splitlines() if "/keras_vit/" in line]
        place = next(iter(lines), "")
        found.append({"outcome": "finding", "kind": kind, "place": place,
                      "message": done.stderr[-4000:]})  # fmt: skip
    return found


def keep(work, folder, name, seed, number, found):
    """Keeps the files of a case that differ from the good ones."""
    kind = "".join(letter if letter.isalnum() else "_" for letter in found["kind"])
    digest = hashlib.sha256(found["place"].encode()).hexdigest()[:6]
    place = folder / f"{name}-{kind}-{digest}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    case = draw(work, name, seed, number)
    gone = mutations.keep_difference(work / "good", case, place / "files")
    described = {"reader": name, "gone": gone, "seed": seed, "number": number, **found}
    (place / "finding.json").write_text(json.dumps(described, indent=2) + "\n")
    command = f"python {os.path.relpath(__file__)} --reproduce {place}"
    print(f"finding: {name} {found['message'][-600:]}\nkept: {command}", flush=True)


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
    parser.add_argument("--read", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read_cases(*options.read)
        return 0
    if options.reproduce:
        print(reproduce(options.reproduce))
        return 0
    import readers

    print(f"seed {options.seed}", file=sys.stderr, flush=True)
    limits = {"minutes": options.minutes, "cases": options.cases}
    names = options.readers or list(readers.READERS)
    found = run(names, options.seed, folder=options.findings, **limits)
    print(json.dumps(found))
    unread = [name for name, counts in found["readers"].items() if not counts]
    if unread:
        print(f"no case was read by {', '.join(unread)}", file=sys.stderr)
    return 1 if found["findings"] or unread else 0


if __name__ == "__main__":
    sys.exit(main())
