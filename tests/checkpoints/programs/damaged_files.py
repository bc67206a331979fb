"""Feeds damaged files to the reader, with little memory and time; prints what became of them.

    python damaged_files.py FILE COUNT

The generators are from tests/fuzz; this program needs no TensorFlow for files of weights.

The copies lie in the folder of the file. Prints a JSON object: how many were `refused` with a
ValueError and how many `read`, the most `seconds` that one took, the `bytes` of memory that
were needed, and the letters of the longest `message`.
"""

import collections
import itertools
import json
import pathlib
import resource
import signal
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "fuzz"))
from mutations import bombs, damaged

MEMORY = 2 * 2**30  # Bytes, beyond what the interpreter and its libraries have.
SECONDS = 10  # For one file.


def reader(path):
    """Returns the function that reads files of this kind, imported before memory is limited."""
    if path.suffix == ".keras" and b"ViTBackbone" not in path.read_bytes():
        from keras_vit.checkpoints.keras_archive import read_model

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
    # A limit of data, not of addresses: libraries reserve many more than they use.
    resource.setrlimit(resource.RLIMIT_DATA, (2 * usage + MEMORY,) * 2)
    outcomes: collections.Counter = collections.Counter()
    slowest, longest = 0.0, 0
    copy = path.with_name(f"mutated{''.join(path.suffixes)}")
    content, rng = path.read_bytes(), np.random.default_rng(0)
    versions = itertools.chain(bombs(content), iter(lambda: damaged(content, rng), None))
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
    print(json.dumps({**outcomes, "seconds": slowest, "bytes": grown, "message": longest}))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
