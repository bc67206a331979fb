"""The file of a benchmark: what was measured, on what, cell by cell."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import pathlib
import statistics
from collections.abc import Mapping
from typing import Any

from keras_vit.files import atomic_write

RESULTS = "benchmark.json"
TABLE = "benchmark.md"
CSV = "benchmark.csv"
MODES = ("inference", "training")
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Cell:
    """What is measured at once.

    Args:
        model: A name of `keras_vit.list_models()`.
        image_size: Pixels per side.
        mode: "inference" or "training".
        precision: "float32", "mixed_bfloat16" or "mixed_float16".
    """

    model: str
    image_size: int
    mode: str = "inference"
    precision: str = "float32"

    def __str__(self) -> str:
        return f"{self.model} at {self.image_size} pixels, {self.mode}, {self.precision}"


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What was found for a cell.

    Args:
        batch_size: Of the best rate; 0 if not even one image fits the memory.
        rates: Images per second of each timed run at that batch size.
        by_batch_size: Images per second of the other batch sizes, each from one run.
        memory: Bytes of the process at its peak, at that batch size; of a GPU its own.
        largest_batch: The largest that fits the memory; None if it was not looked for.
        too_large_batch: The smallest that was tried and did not fit, or None.
        device: Where it ran, such as "CPU" or a GPU's name.
        seconds: What the measurement took.
        note: How batches that did not fit ended; empty if none was tried.
    """

    batch_size: int
    rates: tuple[float, ...]
    by_batch_size: Mapping[str, float]
    memory: int
    largest_batch: int | None
    too_large_batch: int | None
    device: str
    seconds: float
    note: str = ""

    @property
    def images_per_second(self) -> float | None:
        """The median of the timed runs; None if nothing fits."""
        return statistics.median(self.rates) if self.rates else None


class Results:
    """Measurements by cell, kept in a folder.

    Args:
        folder: Where `benchmark.json` is or will be.
        setting: What all measurements have in common: machine, versions, threads, memory.

    Raises:
        ValueError: If the folder has measurements of another setting, or a file that is
            none.
    """

    def __init__(self, folder: str | os.PathLike, setting: Mapping[str, Any]):
        self.folder = pathlib.Path(folder)
        self.setting = dict(setting)
        self.cells: dict[Cell, Measurement] = {}
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"The output must be a folder. Received: {self.folder}")
        if (self.folder / RESULTS).exists():
            found, self.cells = _read(self.folder / RESULTS)
            differs = [
                f"{name} {found.get(name)!r}, not {value!r}"
                for name, value in self.setting.items()
                if found.get(name) != value
            ]
            if differs:
                raise ValueError(
                    "A run goes on only as it began; take another --output. Received: "
                    f"{self.folder} with {'; '.join(differs)}"
                )

    def add(self, cell: Cell, measurement: Measurement) -> None:
        """Adds a measurement, and writes all files whole."""
        self.cells[cell] = measurement
        self.write()

    def write(self) -> None:
        """Writes `benchmark.json`, `benchmark.csv` and `benchmark.md`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = {
            "format": _FORMAT,
            "setting": self.setting,
            "cells": [
                {**dataclasses.asdict(cell), **dataclasses.asdict(measurement)}
                for cell, measurement in self.cells.items()
            ],
        }
        texts = {
            RESULTS: json.dumps(content, indent=2) + "\n",
            CSV: self.to_csv(),
            TABLE: self.to_markdown(),
        }
        for name, text in texts.items():
            with atomic_write(self.folder / name) as partial:
                partial.write_text(text, encoding="utf-8")

    def to_csv(self) -> str:
        """Returns a row for each cell."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for cell, found in self.cells.items():
            low, middle, high = (
                f"{value:.4g}" if found.rates else ""
                for value in (
                    min(found.rates, default=0),
                    found.images_per_second or 0,
                    max(found.rates, default=0),
                )
            )
            writer.writerow(
                (
                    *dataclasses.astuple(cell),
                    middle,
                    low,
                    high,
                    len(found.rates),
                    found.batch_size,
                    round(found.memory / 2**20),
                    "" if found.largest_batch is None else found.largest_batch,
                    "" if found.too_large_batch is None else found.too_large_batch,
                    found.device,
                    f"{found.seconds:.1f}",
                    found.note,
                )
            )
        return file.getvalue()

    def to_markdown(self) -> str:
        """Returns two tables for each mode and precision, models by sizes."""
        lines = [_told(self.setting), ""]
        for mode, precision in self.groups():
            cells = {
                (cell.model, cell.image_size): found
                for cell, found in self.cells.items()
                if (cell.mode, cell.precision) == (mode, precision)
            }
            tables = {"images per second, median (lowest to highest), at batch": _rate_text}
            if any(found.largest_batch is not None for found in cells.values()):
                tables["largest batch that fits"] = _largest_text
            for title, text in tables.items():
                lines += [f"{mode}, {precision}: {title}", "", *_table(cells, text), ""]
        return "\n".join(lines)

    def groups(self) -> list[tuple[str, str]]:
        """Returns the pairs of mode and precision that there are."""
        return list(dict.fromkeys((cell.mode, cell.precision) for cell in self.cells))


_COLUMNS = (
    "model",
    "image_size",
    "mode",
    "precision",
    "images_per_second",
    "lowest",
    "highest",
    "runs",
    "batch_size",
    "peak_mib",
    "largest_batch",
    "too_large_batch",
    "device",
    "seconds",
    "note",
)


def read_results(folder: str | os.PathLike) -> Results:
    """Returns what a benchmark wrote into a folder.

    Raises:
        ValueError: If the file is none.
        OSError: If it cannot be read.
    """
    setting, _ = _read(pathlib.Path(folder) / RESULTS)
    return Results(folder, setting)


def _read(path):
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            raise ValueError("another format")
        names = [field.name for field in dataclasses.fields(Cell)]
        cells = {}
        for row in content["cells"]:
            cell = Cell(**{name: row.pop(name) for name in names})
            cells[cell] = Measurement(**{**row, "rates": tuple(row["rates"])})
        return content["setting"], cells
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} must be the file of a benchmark: {error!r}") from error


def _told(setting):
    """The setting as a sentence; memory in GiB, versions one after another."""
    shown = {**setting, **setting["versions"]}
    del shown["versions"]
    memory = shown["memory"]
    shown["memory"] = "any" if memory is None else f"{memory / 2**30:g} GiB"
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def _table(cells, text):
    models = list(dict.fromkeys(model for model, _ in cells))
    sizes = sorted({size for _, size in cells})
    header = ["model", *(f"{size} px" for size in sizes)]
    rows = [
        [model, *(text(cells[model, size]) if (model, size) in cells else "" for size in sizes)]
        for model in models
    ]
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]


def _rate_text(found):
    if not found.rates:
        return "does not fit"
    low, high = min(found.rates), max(found.rates)
    return f"{found.images_per_second:.3g} ({low:.3g} to {high:.3g}) at {found.batch_size}"


def _largest_text(found):
    return "" if found.largest_batch is None else str(found.largest_batch)
