"""Cores and memory of this machine."""

from __future__ import annotations

import os
import re


def usable_cores() -> int:
    """Returns the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Not on macOS and Windows.
        return os.cpu_count() or 1


def available_memory() -> int:
    """Returns the bytes that processes can allocate before the machine swaps.

    Raises:
        OSError: If the system is not Linux.
    """
    with open("/proc/meminfo", encoding="ascii") as file:
        found = re.search(r"^MemAvailable:\s*(\d+) kB", file.read(), re.MULTILINE)
    if found is None:
        raise OSError("The kernel does not state the available memory.")
    return int(found[1]) * 1024
