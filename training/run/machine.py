"""What a benchmark says of the machine and of its processes."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re


def describe(*packages: str) -> str:
    """Returns a line on the processor, its cores, Python and the versions of packages."""
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
    """Returns the MiB that this process held at its peak.

    From Linux's own count, since that of `resource.getrusage` starts at what the parent held.
    """
    return process_memory("self", "VmHWM") // 2**20


def process_memory(process: int | str, field: str = "VmRSS") -> int:
    """Returns the bytes of a process, as Linux counts them.

    Args:
        process: Its number, or "self".
        field: "VmRSS" for what it holds now, "VmHWM" for its peak.

    Raises:
        OSError: If there is no such process, or the system is not Linux.
    """
    with open(f"/proc/{process}/status", encoding="ascii") as file:
        return _bytes(file.read(), field)


def available_memory() -> int:
    """Returns the bytes that processes can take before the machine swaps.

    Raises:
        OSError: If the system is not Linux.
    """
    with open("/proc/meminfo", encoding="ascii") as file:
        return _bytes(file.read(), "MemAvailable")


def _bytes(text, field):
    found = re.search(rf"^{field}:\s*(\d+) kB", text, re.MULTILINE)
    if found is None:  # A process that has just ended holds nothing.
        return 0
    return int(found[1]) * 1024
