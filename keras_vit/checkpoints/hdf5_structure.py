"""The groups and arrays of an HDF5 file of unknown origin, in bounded time.

The C library of HDF5 may crash or never return on a damaged file. So a separate process
reads the structure of each file first; the file is opened here if that process has survived.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from typing import Any

import h5py

from keras_vit.checkpoints.formats import damaged_file

# Entry of a `.keras` archive.
WEIGHTS = "model.weights.h5"

# Groups within groups; a layer of a layer of a model is far from it.
_MAX_DEPTH = 32

# Of an attribute: what the header of an object can hold, as in the files of Keras.
_MAX_ATTRIBUTE = 2**16

# For the process that tries files: the start of Python on a loaded machine is within it.
_SECONDS = 30.0
_BYTES_PER_SECOND = 5 * 2**20  # A slow network drive.
_CPU_SECONDS = 600  # For one file.
_MEMORY = 2**29  # Bytes, for names and attributes; a text may declare gigabytes.


def datasets_of(path: Any, file: h5py.File) -> list[tuple[tuple[str, ...], h5py.Dataset]]:
    """Returns the keys that lead to each array of a file, and the array.

    Every object is visited once, so time and memory are bounded by the size of the file.

    Args:
        path: The file, for the message.
        file: The open file.

    Raises:
        ValueError: If a group or array can be reached in two ways (a group may hold itself),
            groups are nested too deeply, an attribute declares more than `_MAX_ATTRIBUTE`
            bytes, or anything lies in another file.
    """
    found = []
    visited = {h5py.h5o.get_info(file.id).addr}
    groups: list[tuple[tuple[str, ...], Any]] = [((), file["/"])]
    while groups:
        keys, group = groups.pop()
        if len(keys) > _MAX_DEPTH:
            raise _refused(path, f"groups no deeper than {_MAX_DEPTH}", keys)
        _check_attributes(path, group, keys)
        for key in group:
            inner = (*keys, key)
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                raise _refused(path, "its arrays itself, without a link", inner)
            child = group[key]
            address = h5py.h5o.get_info(child.id).addr
            if address in visited:
                raise _refused(path, "every group and array once", inner)
            visited.add(address)
            if isinstance(child, h5py.Group):
                groups.append((inner, child))
            elif not isinstance(child, h5py.Dataset):
                raise _refused(path, "groups and arrays alone", inner)
            elif child.external or child.is_virtual:
                raise _refused(path, "its arrays itself, and refer to no other file", inner)
            else:
                _check_attributes(path, child, inner)
                found.append((inner, child))
    return sorted(found, key=lambda item: item[0])


def _check_attributes(path, item, keys):
    for index in range(h5py.h5a.get_num_attrs(item.id)):
        stored = h5py.h5a.open(item.id, index=index)
        count = stored.get_space().get_simple_extent_npoints()
        if count * stored.get_type().get_size() > _MAX_ATTRIBUTE:
            raise _refused(path, f"attributes of no more than {_MAX_ATTRIBUTE:,} bytes", keys)


def _refused(path, what, keys):
    place = "/".join(keys)
    return ValueError(f"A .weights.h5 must hold {what}. Received: {path} with {place[:100]}")


@contextlib.contextmanager
def open_weights_entry(path: str | os.PathLike) -> Iterator[h5py.File]:
    """Opens the weights in a `.keras` archive, without a copy where they are not compressed."""
    with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
        entry = archive.getinfo(WEIGHTS)
        if entry.compress_type == zipfile.ZIP_STORED:
            with archive.open(entry):  # Compares the header of the entry with the directory.
                file.seek(entry.header_offset + 26)
                name, extra = (int.from_bytes(file.read(2), "little") for _ in range(2))
            start = entry.header_offset + 30 + name + extra
            content: Any = _Part(file, start, entry.file_size)
        else:
            content = io.BytesIO(archive.read(entry))
        with h5py.File(content, "r") as weights:
            yield weights


class _Part(io.RawIOBase):
    """A part of an open file, as a file."""

    def __init__(self, file, start, size):
        self._file, self._start, self._size, self._position = file, start, size, 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self._position

    def seek(self, offset, whence=os.SEEK_SET):
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def readinto(self, buffer):
        self._file.seek(self._start + self._position)
        count = max(0, min(len(buffer), self._size - self._position))
        count = self._file.readinto(memoryview(buffer)[:count])
        self._position += count
        return count


def check_survives(path: str | os.PathLike) -> None:
    """Raises ValueError if a process with little memory cannot read the structure of a file.

    Args:
        path: An HDF5 file, or a `.keras` archive with one.
    """
    limit = _SECONDS + os.path.getsize(path) / _BYTES_PER_SECOND
    with _lock:
        process = _started_process()
        killer = threading.Timer(limit, process.kill)
        killer.start()
        try:
            process.stdin.write(json.dumps(os.path.abspath(path)) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:  # It died before it read the path.
            answer = ""
        finally:
            killer.cancel()
        if not answer:
            process.kill()
            process.wait()
    reason = json.loads(answer) if answer else f"reading it crashes or takes {limit:.0f} s"
    if reason:
        raise damaged_file("A file of weights", path, reason)


_lock = threading.Lock()
_process: tuple[int, subprocess.Popen] | None = None  # Of the process with this number.


def _started_process():
    """The process that tries files; it ends when this one does."""
    global _process
    if _process is None or _process[0] != os.getpid() or _process[1].poll() is not None:
        command = [sys.executable, "-P", "-m", "keras_vit.checkpoints.hdf5_structure"]
        root = pathlib.Path(__file__).resolve().parents[2]
        path = os.pathsep.join([str(root), *filter(None, sys.path)])
        _process = (
            os.getpid(),
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "PYTHONPATH": path},
            ),
        )
    return _process[1]


def _read_structure(path):
    """Reads all that is read of a file elsewhere, but for the values of arrays in one piece."""
    with contextlib.ExitStack() as files:
        is_archive = zipfile.is_zipfile(path)
        opened = files.enter_context(
            open_weights_entry(path) if is_archive else h5py.File(path, "r")
        )
        objects: dict[tuple[str, ...], Any] = {(): opened}
        for keys, dataset in datasets_of(path, opened):
            _ = dataset.dtype, dataset.shape, dataset.attrs.get("dtype")
            if dataset.chunks and dataset.size <= _MEMORY // 32:
                _ = dataset[...]
            for depth in range(len(keys)):
                objects.setdefault(keys[:depth], None)
        for keys in objects:
            for place in (keys, (*keys, "vars")):
                group = opened.get("/".join(("", *place)))
                for name in group.attrs if isinstance(group, h5py.Group) else ():
                    _ = group.attrs[name]


def _limit_time():
    """Ends this process when a file keeps it busy and its parent, which would end it, is dead."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + _CPU_SECONDS, hard))


def main() -> None:
    """Tries the files whose paths come in; answers each one with a reason, "" for a good one."""
    with contextlib.suppress(ImportError):  # Not on Windows.
        import resource

        with contextlib.suppress(ValueError, OSError):  # A lower limit is there.
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    for line in sys.stdin:
        _limit_time()
        reason = ""
        try:
            _read_structure(json.loads(line))
        except ValueError:
            pass  # What `datasets_of` refuses is found again, with its message.
        except Exception as error:  # h5py raises nearly anything.
            reason = f"{type(error).__name__}: {error}"
        print(json.dumps(reason), flush=True)


if __name__ == "__main__":
    main()
