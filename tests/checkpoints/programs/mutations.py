"""Feeds mutated files to the reader, with little memory and time; prints what became of them.

    python mutations.py FILE COUNT

The copies lie in the folder of the file. Prints a JSON object: how many were `refused` with a
ValueError and how many `read`, the most `seconds` that one took, the `bytes` of memory that
were needed, and the letters of the longest `message`.
"""

import collections
import json
import pathlib
import resource
import signal
import sys
import time
import zipfile

import numpy as np

MEMORY = 2 * 2**30  # Bytes, beyond what the interpreter and its libraries have.
SECONDS = 10  # For one file.


def mutated(content, rng):
    """Yields versions of a file: cut off, with bits or bytes changed, doubled, bombs."""
    yield from bombs(content)
    while True:
        copy = bytearray(content)
        kind = rng.integers(6)
        if kind == 0:
            copy = copy[: rng.integers(len(copy))]
        elif kind == 1:  # Anywhere, mostly among values.
            copy[rng.integers(len(copy))] ^= 1 << rng.integers(8)
        elif kind == 2:  # Headers lie in front and, of an archive, at the end.
            copy[rng.integers(min(len(copy), 4096))] = rng.integers(256)
        elif kind == 3:
            copy[-1 - rng.integers(min(len(copy), 2048))] = rng.integers(256)
        elif kind == 4:  # A length that lies.
            place = rng.integers(len(copy) - 8)
            copy[place : place + 8] = bytes([0xFF] * 7 + [rng.integers(256)])
        else:
            place = rng.integers(len(copy) - 64)
            copy[place : place + 64] = rng.bytes(64)
        yield bytes(copy)


def bombs(content):
    """Yields versions of an archive with entries that lead elsewhere, or hold too much."""
    path = pathlib.Path("bomb.zip")
    path.write_bytes(content)
    if not zipfile.is_zipfile(path):
        return
    for name in ("../outside", "/tmp/outside-of-the-archive", "assets/../../outside", "a\\..\\b"):
        path.write_bytes(content)
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(name, b"x")
        yield path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    for bomb in list(entries)[:3]:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, value in entries.items():
                archive.writestr(name, value + b"\0" * 2**28 if name == bomb else value)
        yield path.read_bytes()


def reader(path):
    """Returns the function that reads files of this kind, imported before memory is limited."""
    if path.suffix == ".keras" and b"ViTBackbone" not in path.read_bytes():
        from keras_vit.classifier import read_model

        return lambda file: read_model(file).weights
    from keras_vit.checkpoints.checkpoint import open_checkpoint
    from keras_vit.checkpoints.formats import read_values

    def read(file):
        return list(read_values(open_checkpoint(file).arrays.values()))

    return read


def peak_memory():
    """Returns bytes; `resource.getrusage` would start at the memory of the parent process."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def main(path, count):
    """Reads all versions and counts."""
    read = reader(path)
    whole = [np.shape(array) for array in read(path)]
    usage = peak_memory()
    # Of data, not of addresses: libraries reserve many more than they use.
    resource.setrlimit(resource.RLIMIT_DATA, (2 * usage + MEMORY,) * 2)
    outcomes: collections.Counter = collections.Counter()
    slowest, longest = 0.0, 0
    copy = path.with_name(f"mutated{''.join(path.suffixes)}")
    versions = mutated(path.read_bytes(), np.random.default_rng(0))
    for _ in range(count):
        copy.write_bytes(next(versions))
        signal.alarm(SECONDS)
        start = time.perf_counter()
        try:
            shapes = [np.shape(array) for array in read(copy)]
            outcomes["read"] += 1
            if shapes != whole:
                outcomes["other shapes"] += 1
        except ValueError as error:
            outcomes["refused"] += 1
            longest = max(longest, len(str(error)))
        signal.alarm(0)
        slowest = max(slowest, time.perf_counter() - start)
    grown = peak_memory() - usage
    copy.unlink()
    pathlib.Path("bomb.zip").unlink(missing_ok=True)
    print(json.dumps({**outcomes, "seconds": slowest, "bytes": grown, "message": longest}))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
