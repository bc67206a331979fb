"""Progress of long work, with its rate and the time left."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import sys
from collections.abc import Callable, Iterator
from typing import TypeAlias

from tqdm import tqdm

# Receives lines about work that goes on, such as `print`.
Log: TypeAlias = Callable[[str], object]

LOG_INTERVAL = 30.0  # Seconds between two lines in a log.
COUNTS = "{n_fmt}/{total_fmt}{unit} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"


def to_stderr(line: str) -> None:
    """Prints a line about work that goes on, apart from the results."""
    print(line, file=sys.stderr, flush=True)


_IS_SILENT = contextvars.ContextVar("is_silent", default=False)


@contextlib.contextmanager
def without_progress() -> Iterator[None]:
    """Shows no progress bar within its block, whatever is called there."""
    before = _IS_SILENT.set(True)
    try:
        yield
    finally:
        _IS_SILENT.reset(before)


class ProgressBar(tqdm):
    """A tqdm bar whose rate leaves out the first update.

    The first step or batch compiles the model, which can take longer than all the others.
    """

    monitor_interval = 0  # No thread: every update looks at the time.
    is_first_update = True

    def update(self, n=1):
        """Adds to the count, and shows it if the last time was long enough ago."""
        if self.is_first_update and not self.disable:
            self.unpause()  # Sets the start of the rate to now.
            self.initial += n
            self.is_first_update = False
        return super().update(n)


def progress_bar(
    total: int | None,
    description: str,
    *,
    unit: str = "images",
    initial: int = 0,
    disable: bool = False,
) -> ProgressBar:
    """Returns a progress bar on standard error, so that results can be piped.

    A terminal shows one live line; a log gets a line every half minute and the last.

    Args:
        total: Number of units of the whole; None if it is unknown.
        description: First word of the line.
        unit: What is counted.
        initial: Units that were done before.
        disable: Whether to print nothing.

    Example:
    >>> with progress_bar(len(paths), "read") as bar:
    ...     for path in paths:
    ...         read(path)
    ...         bar.update()
    """
    make = functools.partial(
        ProgressBar,
        total=total,
        desc=description,
        unit=f" {unit}",
        initial=initial,
        disable=disable or _IS_SILENT.get(),
        miniters=1,
        smoothing=0,  # The mean rate: a validation now and then does not change it much.
    )
    if sys.stderr.isatty():
        return make(bar_format="{l_bar}{bar}| " + COUNTS, dynamic_ncols=True)
    log = _LogFile(sys.stderr)
    return make(file=log, bar_format="{desc}: " + COUNTS, mininterval=LOG_INTERVAL)


class _LogFile:
    """Turns each state of a bar, which tqdm writes over the last one, into a line."""

    def __init__(self, file):
        self.file = file
        self.last = ""

    def write(self, text):
        line = text.strip()
        if line and line != self.last:  # tqdm writes the last one again when it closes.
            self.file.write(f"{line}\n")
            self.last = line

    def flush(self):
        self.file.flush()
