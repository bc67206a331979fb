"""Results of the cost benchmark: its file, tables and figures.

Imports neither NumPy nor TensorFlow.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from keras_vit import configs
from keras_vit.training.evaluation.results import check_same_settings
from keras_vit.utils.files import atomic_write, write_csv, write_text
from keras_vit.utils.json_files import read_json
from keras_vit.utils.text_tables import markdown_table

MODES = ("inference", "training")
_FORMAT = 1
_JSON = "benchmark.json"

# Architecture: line style and marker; the colour is the model's.
_STYLES = {
    "vit": ("-", "o"),
    "bit": ("--", "s"),
    "hybrid_vit": ("-.", "^"),
    "axial_vit": (":", "D"),
    "axial_resnet": (":", "v"),
}


@dataclasses.dataclass(frozen=True)
class BenchmarkCell:
    """A model, image size, mode and precision, which are measured together.

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
    """Speed and memory of a cell.

    Args:
        batch_size: The batch size with the best rate; 0 if one image does not fit.
        rates: Images per second of each timed run at that batch size.
        by_batch_size: Images per second of every batch size tried, each from one run.
        memory: Peak bytes of the process or the GPU at that batch size.
        largest_batch: The largest batch that fits; None if it was not searched.
        too_large_batch: The smallest batch tried that does not fit, or None.
        device: "CPU" or the GPU's name.
        seconds: Duration of the measurement.
        note: How batches that do not fit ended; empty if all fit.
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

    def __str__(self) -> str:
        if not self.rates:
            return "one image does not fit"
        text = f"{self.images_per_second:.3g} images/s at batch {self.batch_size}"
        if self.largest_batch is not None:
            text += f", largest batch {self.largest_batch}"
        return text


class BenchmarkResults:
    """Measurements by cell, kept in a folder.

    Args:
        folder: The folder of `benchmark.json`, which need not exist yet.
        setting: What all measurements share: machine, versions, threads, memory. None
            takes the setting of the file.

    Raises:
        ValueError: If the folder has measurements of another setting, or a file of
            another format.
        OSError: If the file cannot be read.
    """

    def __init__(self, folder: str | os.PathLike, setting: Mapping[str, Any] | None = None):
        self.folder = pathlib.Path(folder)
        self.setting = dict(setting or {})
        self.cells: dict[BenchmarkCell, Measurement] = {}
        path = self.folder / _JSON
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"The output must be a folder. Received: {self.folder}")
        if setting is None or path.exists():
            found, self.cells = _read(path)
            if setting is not None:
                check_same_settings(path, found, setting)
            self.setting = found

    def add(self, cell: BenchmarkCell, measurement: Measurement) -> None:
        """Adds a measurement and writes `benchmark.json`, `.csv` and `.md`."""
        self.cells[cell] = measurement
        content = {
            "format": _FORMAT,
            "setting": self.setting,
            "cells": [
                {**dataclasses.asdict(cell), **dataclasses.asdict(measurement)}
                for cell, measurement in self.cells.items()
            ],
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / _JSON, json.dumps(content, indent=2) + "\n")
        rows = self.rows()
        write_csv(self.folder / "benchmark.csv", [rows[0], *(row.values() for row in rows)])
        write_text(self.folder / "benchmark.md", self.to_markdown())

    def groups(self) -> dict[tuple[str, str], dict[tuple[str, int], Measurement]]:
        """Returns, by mode and precision, the measurements by model and image size."""
        groups: dict[tuple[str, str], dict[tuple[str, int], Measurement]] = {}
        for cell, found in self.cells.items():
            group = groups.setdefault((cell.mode, cell.precision), {})
            group[cell.model, cell.image_size] = found
        return groups

    def rows(self) -> list[dict[str, Any]]:
        """Returns the columns of `benchmark.csv` for each cell."""
        rows: list[dict[str, Any]] = []
        for cell, found in self.cells.items():
            rates = sorted(found.rates)
            rows.append(
                {
                    **dataclasses.asdict(cell),
                    "images_per_second": f"{found.images_per_second:.4g}" if rates else "",
                    "lowest": f"{rates[0]:.4g}" if rates else "",
                    "highest": f"{rates[-1]:.4g}" if rates else "",
                    "runs": len(rates),
                    "batch_size": found.batch_size,
                    "peak_mib": round(found.memory / 2**20),
                    "largest_batch": found.largest_batch,  # None is written as nothing.
                    "too_large_batch": found.too_large_batch,
                    "device": found.device,
                    "seconds": f"{found.seconds:.1f}",
                    "note": found.note,
                }
            )
        return rows

    def to_markdown(self) -> str:
        """Returns the setting and two tables for each mode and precision, models by sizes."""
        shown = {**self.setting, **self.setting["versions"]}
        del shown["versions"]
        memory = shown["memory"]
        shown["memory"] = "any" if memory is None else f"{memory / 2**30:g} GiB"
        lines = [", ".join(f"{name} {value}" for name, value in shown.items()), ""]
        for (mode, precision), group in self.groups().items():
            tables = {"images per second, median (lowest to highest), at batch": _rate_text}
            if any(found.largest_batch is not None for found in group.values()):
                tables["largest batch that fits"] = _largest_text
            for title, text in tables.items():
                lines += [f"{mode}, {precision}: {title}", "", _models_by_sizes(group, text), ""]
        return "\n".join(lines)


def _read(path: pathlib.Path) -> tuple[dict[str, Any], dict[BenchmarkCell, Measurement]]:
    try:
        content = read_json(path)
        if content["format"] != _FORMAT:
            raise ValueError("another format")
        names = [field.name for field in dataclasses.fields(BenchmarkCell)]
        cells = {}
        for row in content["cells"]:
            cell = BenchmarkCell(**{name: row.pop(name) for name in names})
            cells[cell] = Measurement(**{**row, "rates": tuple(row["rates"])})
        return content["setting"], cells
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} must be the file of a benchmark: {error!r}") from error


def _models_by_sizes(
    group: Mapping[tuple[str, int], Measurement], text: Callable[[Measurement], str]
) -> str:
    """Returns a Markdown table."""
    sizes = sorted({size for _, size in group})
    rows = [["model", *(f"{size} px" for size in sizes)]]
    for model in dict.fromkeys(model for model, _ in group):
        found = (group.get((model, size)) for size in sizes)
        rows.append([model, *("" if each is None else text(each) for each in found)])
    return markdown_table(rows)


def _rate_text(found: Measurement) -> str:
    if not found.rates:
        return "does not fit"
    low, high = min(found.rates), max(found.rates)
    return f"{found.images_per_second:.3g} ({low:.3g} to {high:.3g}) at {found.batch_size}"


def _largest_text(found: Measurement) -> str:
    return "" if found.largest_batch is None else str(found.largest_batch)


def write_cost_figures(results: BenchmarkResults) -> list[pathlib.Path]:
    """Draws the paper's Figure 12 for each mode and precision, as PNG and SVG.

    Returns:
        The files written.

    Raises:
        ImportError: Without matplotlib.
    """
    written = []
    for mode, precision in results.groups():
        for name, draw in (("images_per_second", draw_rates), ("largest_batch", draw_batches)):
            figure = draw(results, mode, precision)
            for suffix in (".png", ".svg") if figure else ():
                written.append(results.folder / f"{name}_{mode}_{precision}{suffix}")
                with atomic_write(written[-1]) as partial:
                    figure.savefig(partial, dpi=150)
    return written


def draw_rates(results: BenchmarkResults, mode: str, precision: str) -> Any:
    """Draws images per second by image size, with the range of the timed runs.

    Returns:
        A `matplotlib.figure.Figure`, or None if there is nothing to draw.

    Raises:
        ImportError: Without matplotlib.
    """
    points = {
        place: (found.images_per_second, min(found.rates), max(found.rates))
        for place, found in results.groups().get((mode, precision), {}).items()
        if found.rates
    }
    title = f"Images per second at the best batch size, {mode}, {precision}"
    return _draw(points, title, "images per second")


def draw_batches(results: BenchmarkResults, mode: str, precision: str) -> Any:
    """Draws the largest batch that fits by image size; see `draw_rates`."""
    points = {
        place: (found.largest_batch,) * 3
        for place, found in results.groups().get((mode, precision), {}).items()
        if found.largest_batch
    }
    memory = (results.setting["memory"] or 0) / 2**30
    return _draw(points, f"Largest batch in {memory:g} GiB, {mode}, {precision}", "images")


def _draw(points: Mapping[tuple[str, int], tuple], title: str, label: str) -> Any:
    """Draws (middle, lowest, highest) by model and image size on logarithmic axes."""
    if not points:
        return None
    from keras_vit.utils.plots import new_figure

    figure = new_figure((7.5, 5))
    from matplotlib.ticker import LogLocator, NullLocator

    axes = figure.add_subplot()
    for model in dict.fromkeys(model for model, _ in points):
        sizes = sorted(size for name, size in points if name == model)
        middle, low, high = zip(*(points[model, size] for size in sizes), strict=True)
        line, marker = _STYLES[configs.resolve(model).architecture]
        (drawn,) = axes.plot(sizes, middle, line, marker=marker, markersize=4, label=model)
        axes.fill_between(sizes, low, high, color=drawn.get_color(), alpha=0.2, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = sorted({size for _, size in points})
    axes.set_xticks(ticks, [str(size) for size in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(alpha=0.3)
    axes.set(title=title, xlabel="image size (pixels)", ylabel=label)
    figure.legend(loc="outside right upper", fontsize=8)
    return figure
