"""Processor, cores and memory of this machine and its processes, and the time of a call."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import time
from collections.abc import Callable


def describe(*packages: str) -> str:
    """Returns a line with the processor, its cores, and the versions of Python and packages."""
    versions = [f"{package} {importlib.metadata.version(package)}" for package in packages]
    python = f"Python {platform.python_version()}"
    return ", ".join([processor(), f"{os.cpu_count()} cores", python, *versions])


def processor() -> str:
    """Returns the processor's name."""
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = re.findall(r"model name\s*:\s*(.+)", file.read())
        if names:
            return names[0]
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Returns the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Not on macOS and Windows.
        return os.cpu_count() or 1


def peak_memory() -> int:
    """Returns the peak memory of this process in MiB, as Linux counts it.

    `resource.getrusage` would start at the memory of the parent process.
    """
    return process_memory("self", "VmHWM") // 2**20


def process_memory(process: int | str, field: str = "VmRSS") -> int:
    """Returns the memory of a process in bytes, as Linux counts it.

    Args:
        process: Process ID, or "self".
        field: "VmRSS" for its memory now, "VmHWM" for its peak.

    Raises:
        OSError: If there is no such process, or the system is not Linux.
    """
    with open(f"/proc/{process}/status", encoding="ascii") as file:
        return _bytes(file.read(), field)


def available_memory() -> int:
    """Returns the bytes that processes can allocate before the machine swaps.

    Raises:
        OSError: If the system is not Linux.
    """
    with open("/proc/meminfo", encoding="ascii") as file:
        return _bytes(file.read(), "MemAvailable")


def seconds_of(step: Callable[[], object]) -> float:
    """Returns how long a call takes."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def _bytes(text, field):
    found = re.search(rf"^{field}:\s*(\d+) kB", text, re.MULTILINE)
    if found is None:  # The process has just ended.
        return 0
    return int(found[1]) * 1024
