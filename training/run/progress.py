"""What a long run tells while it runs: a line on the screen, a CSV file, TensorBoard."""

from __future__ import annotations

import csv
import os
import pathlib
import sys
import time
from collections.abc import Mapping

import tensorflow as tf

from .clock import clock

# Where the output is a file, not a screen: seconds between two lines.
LINE_INTERVAL = 30.0
# On a screen.
REFRESH_INTERVAL = 0.5


class Progress:
    """A line with the step, some values, the rate and the time left.

    On a screen the line is written over; elsewhere there is one every half minute.

    Args:
        name: First word of the line.
        total: Steps, or images, of the whole.
        file: Where to write; standard error by default, so that results can be piped.
    """

    def __init__(self, name: str, total: int, file=None):
        self.name = name
        self.total = total
        self.file = sys.stderr if file is None else file
        self.on_screen = self.file.isatty()
        self.began = time.monotonic()
        self.first: tuple[int, float] | None = None
        self.shown_at = float("-inf")
        self.width = 0

    def show(self, done: int, values: Mapping[str, str] | None = None) -> None:
        """Writes the line, if the last one is old enough or this is the end.

        Args:
            done: Steps or images done.
            values: Words and what to print after them.
        """
        now = time.monotonic()
        # What the first call took, compiling, says nothing of the rest.
        self.first = self.first or (done, now)
        interval = REFRESH_INTERVAL if self.on_screen else LINE_INTERVAL
        if done < self.total and now - self.shown_at < interval:
            return
        self.shown_at = now
        parts = [f"{self.name} {done}/{self.total}"]
        parts += [f"{name} {value}" for name, value in (values or {}).items()]
        if done == self.total:
            parts.append(clock(now - self.began))
        elif done > self.first[0]:
            rate = (done - self.first[0]) / max(now - self.first[1], 1e-9)
            parts.append(f"{clock((self.total - done) / rate)} left")
        line = "  ".join(parts)
        if self.on_screen:
            self.file.write("\r" + line.ljust(self.width))
            self.width = len(line)
        else:
            self.file.write(line + "\n")
        self.file.flush()

    def close(self) -> None:
        """Ends the line, so that what follows starts a new one."""
        if self.on_screen and self.width:
            self.file.write("\n")
            self.file.flush()
            self.width = 0


class History:
    """A table of a run, on disk after every row.

    Args:
        path: The CSV file. Rows that it holds already are kept up to `last_step`.
        columns: Names of the columns, "step" first.
        last_step: Rows of later steps are dropped: a resumed run writes them again.
    """

    def __init__(self, path: str | os.PathLike, columns: tuple[str, ...], last_step: int = 0):
        self.path = pathlib.Path(path)
        self.columns = columns
        self.rows: list[dict[str, str]] = []
        if self.path.exists():
            with open(self.path, newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            self.rows = [row for row in rows if int(row["step"]) <= last_step]
        with open(self.path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(self.rows)

    def add(self, row: Mapping[str, object]) -> None:
        """Adds a row; columns that it lacks stay empty."""
        text = {name: _number(row.get(name, "")) for name in self.columns}
        self.rows.append(text)
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self.columns).writerow(text)


class TensorBoardLog:
    """Scalars for TensorBoard, which need not be installed to write them.

    Args:
        folder: Where the event files go.
    """

    def __init__(self, folder: str | os.PathLike):
        self.writer = tf.summary.create_file_writer(os.fspath(folder))
        # What tf.summary.scalar would say; that function needs the package tensorboard,
        # which TensorFlow 2.21 no longer brings.
        self.metadata = tf.compat.v1.SummaryMetadata(
            plugin_data={"plugin_name": "scalars"}, data_class="DATA_CLASS_SCALAR"
        )

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Writes the scalars of a step."""
        with self.writer.as_default():
            for name, value in scalars.items():
                tf.summary.write(name, tf.constant(value, tf.float32), step, self.metadata)
        self.writer.flush()

    def close(self) -> None:
        """Closes the event file."""
        self.writer.close()


def _number(value):
    return f"{value:.6g}" if isinstance(value, float) else str(value)
