"""The lock of a run's folder, which a process that has ended does not hold."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
from typing import Any

from keras_vit.utils.files import temporary_sibling
from keras_vit.utils.json_files import read_json

LOCK = "lock.json"


def acquire(folder: pathlib.Path) -> None:
    """Takes the lock of a folder; a process that has it already keeps it.

    Raises:
        ValueError: If another process has it, or one on another host may have it.
    """
    path = folder / LOCK
    while True:
        try:
            _create(path)
            return
        except FileExistsError:
            holder = _holder(path)
            check_free(folder)
            if holder == _this_process():
                return
            with contextlib.suppress(FileNotFoundError):  # Another process was faster.
                ended = temporary_sibling(path)
                os.replace(path, ended)
                if _holder(ended) != holder:  # Another process took the lock just now.
                    os.replace(ended, path)
                ended.unlink()


def _create(path):
    """Makes the file of a lock; a process that reads it sees all of it.

    Raises:
        FileExistsError: If there is one.
    """
    draft = temporary_sibling(path)
    draft.write_text(json.dumps(_this_process()), encoding="utf-8")
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:  # File systems without links.
        with open(path, "x", encoding="utf-8") as file:
            file.write(draft.read_text(encoding="utf-8"))
    finally:
        draft.unlink()


def release(folder: pathlib.Path) -> None:
    """Gives the lock of a folder back, if this process has it."""
    if _holder(folder / LOCK) == _this_process():
        (folder / LOCK).unlink(missing_ok=True)


def check_free(folder: pathlib.Path) -> None:
    """Raises ValueError if another process has the lock of a folder, or may have it."""
    holder = _holder(folder / LOCK)
    if not holder or holder == _this_process():
        return
    host, number = holder.get("host"), holder.get("process")
    if host != socket.gethostname():
        raise ValueError(
            "Only one run may write to an output. If the run has ended on the other host, remove "
            f"{folder / LOCK}. Received: {folder}, taken by process {number} on {host}"
        )
    started = _started(number) if isinstance(number, int) else None
    if started is not None and started == holder.get("started"):
        raise ValueError(
            "Only one run may write to an output; choose another one, or wait. "
            f"Received: {folder}, taken by process {number} on this host"
        )


def _holder(path) -> dict[str, Any]:
    try:
        return read_json(path)
    except (OSError, ValueError):
        return {}


def _this_process():
    number = os.getpid()
    return {"host": socket.gethostname(), "process": number, "started": _started(number)}


def _started(number: int) -> str | None:
    """When a process of this host was started, as Linux counts it; None if there is no such one.

    A number is given again to another process, even on a host that was started anew. Where the
    system does not show when it was, a running process counts as the same.
    """
    if not _is_running(number):
        return None
    with contextlib.suppress(OSError):
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        # The name of the program, in brackets, may hold blanks.
        fields = pathlib.Path(f"/proc/{number}/stat").read_text("utf-8").rpartition(")")[2].split()
        return f"{boot} {fields[19]}"
    return "unknown"


def _is_running(number):
    if number < 1 or number >= 2**31:
        return False
    if os.name == "nt":
        return True  # No signal 0 there: `check_free` names the file to remove.
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
