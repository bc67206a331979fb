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


def peak_memory() -> int:
    """Returns the peak memory of this process in MiB, as Linux counts it.

    `resource.getrusage` would start at the memory of the parent process.
    """
    with open("/proc/self/status", encoding="ascii") as file:
        return int(re.search(r"^VmHWM:\s*(\d+) kB", file.read(), re.MULTILINE)[1]) // 2**10


def seconds_of(step: Callable[[], object]) -> float:
    """Returns how long a call takes."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start
