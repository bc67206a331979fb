"""Accuracy by pre-training data and compute: the paper's Figures 3, 4 and 5.

    python paper/scaling.py runs --output scaling [--task photos=CIFAR-10] [--no-paper]

Reads the same results as tables.py, and writes scaling.csv and each figure that has results. The x
axes need the pre-training in the results: `model.pretraining`, `pretraining_images`,
`pretraining_epochs`, `pretraining_image_size`, `pretraining_classes`. Runs of this package write
these fields; missing ones are listed. The paper's points (Tables 5, 6) are drawn pale behind.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from pretraining import (
    COMPUTE_FIELDS,
    DATA_SETS,
    PreTrainingRun,
    config_of_result,
    pretraining_of,
)
from read_results import read_results
from tables import OURS, PAPER, paper_table

from keras_vit import configs
from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.training.evaluation.results import Result
from keras_vit.utils.files import atomic_write, write_csv
from keras_vit.utils.plots import new_figure

AVERAGE = "average of 5"
# The tasks of the averages in Table 7 and Figure 5 (left).
AVERAGED = ("ImageNet", "CIFAR-10", "CIFAR-100", "Pets", "Flowers-102")

# Kind of model: colour and marker.
STYLES = {
    "ViT": ("tab:blue", "o"),
    "ResNet": ("tab:gray", "s"),
    "hybrid": ("tab:orange", "^"),
    "Axial-ViT": ("tab:green", "D"),
}
_KINDS = {"vit": "ViT", "hybrid_vit": "hybrid", "axial_vit": "Axial-ViT"}


@dataclasses.dataclass(frozen=True)
class ScalingFigure:
    """A figure of the paper.

    Args:
        title: The caption.
        axis: The label of the x axis.
        x: The field of `PreTrainingRun` on the x axis.
        few_shot: Whether it shows few-shot results, not fine-tuning.
    """

    title: str
    axis: str
    x: str
    few_shot: bool = False


FIGURES = {
    "3": ScalingFigure(
        "Fine-tuned accuracy by pre-training data",
        "images of the pre-training data",
        "images",
    ),
    "4": ScalingFigure(
        "Few-shot accuracy by pre-training data",
        "images of the pre-training data",
        "images",
        few_shot=True,
    ),
    "5": ScalingFigure(
        "Fine-tuned accuracy by pre-training compute",
        "pre-training compute (exaFLOPs)",
        "exaflops",
    ),
}

_FINE_TUNED = ("classification", "imagenet", "imagenet-real")


@dataclasses.dataclass(frozen=True)
class ScalingPoint:
    """A point of a figure.

    Args:
        figure: "3", "4" or "5".
        source: "paper" or "ours".
        model: The model's name.
        kind: "ViT", "ResNet", "hybrid" or "Axial-ViT".
        pretraining: The pre-training data set.
        epochs: Passes over the data set, or None.
        task: The panel: a test set, with the shots for few-shot results.
        x: Images or exaFLOPs.
        accuracy: Top-1 in %.
        deviation: Sample standard deviation over seeds; None for a single seed.
    """

    figure: str
    source: str
    model: str
    kind: str
    pretraining: str
    epochs: float | None
    task: str
    x: float
    accuracy: float
    deviation: float | None = None


def result_points(
    results: Iterable[tuple[pathlib.Path, Result]],
) -> tuple[list[ScalingPoint], list[str]]:
    """Returns the points of results, and a line for each result that a figure lacks.

    Results that differ only in the seed are one point, their mean; for equal seeds the last
    result counts. Figure 5 also shows the mean of the paper's five tasks, if all are there.

    Args:
        results: Files and their results, as `read_results` returns them.

    Returns:
        The points, and a line for each file and figure that misses fields of the file.
    """
    values: dict[ScalingPoint, dict[int | None, float]] = {}  # Accuracies by seed.
    left_out = []
    for path, result in results:
        figures = [
            number
            for number, figure in FIGURES.items()
            if result.protocol in (("few-shot",) if figure.few_shot else _FINE_TUNED)
        ]
        if not figures or "top_1" not in result.metrics:
            left_out.append(f"{path}: no figure shows {result.protocol} results")
            continue
        run, config = pretraining_of(result), config_of_result(result.model)
        for number in figures:
            missing = _missing(run, FIGURES[number].x)
            if config is None:
                missing.append("model.config")
            if config is None or missing:
                left_out.append(f"{path}: Figure {number} needs {', '.join(missing)}")
                continue
            x = getattr(run, FIGURES[number].x)
            task = result.task
            if FIGURES[number].few_shot:
                task += f", {result.recipe['shots']} shots" if "shots" in result.recipe else ""
            name = str(result.model["name"])
            point = ScalingPoint(
                number, OURS, name, _kind(config), str(run.data), run.epochs, task, x, accuracy=0
            )
            values.setdefault(point, {})[result.seed] = 100 * result.metrics["top_1"]
    points = [
        dataclasses.replace(
            point,
            accuracy=statistics.fmean(by_seed.values()),
            deviation=statistics.stdev(by_seed.values()) if len(by_seed) > 1 else None,
        )
        for point, by_seed in values.items()
    ]
    return points + averages(points), left_out


def paper_points() -> list[ScalingPoint]:
    """Returns the paper's points: Table 5 for Figure 3, Table 6 for Figure 5.

    For Figure 4 the paper has no table.
    """
    points = []
    header, *rows = paper_table("5")
    for data, task, *cells in rows:
        for model, text in zip(header[2:], cells, strict=True):
            if text:
                kind, images = _kind(configs.resolve(model)), DATA_SETS[data][0]
                points.append(
                    ScalingPoint("3", PAPER, model, kind, data, None, task, images, float(text))
                )
    header, *rows = paper_table("6")
    for model, epochs, *cells, exaflops in rows:
        kind, run, x = _kind(configs.resolve(model)), ("JFT-300M", float(epochs)), float(exaflops)
        for task, text in zip(header[2:-1], cells, strict=True):
            points.append(ScalingPoint("5", PAPER, model, kind, *run, task, x, float(text)))
    return points + averages(points)


def averages(points: Iterable[ScalingPoint]) -> list[ScalingPoint]:
    """Returns Figure 5's mean over five tasks, for runs with all five."""
    by_run: dict[ScalingPoint, dict[str, ScalingPoint]] = {}
    for point in points:
        if point.figure == "5" and point.task in AVERAGED:
            run = dataclasses.replace(point, task=AVERAGE, accuracy=0, deviation=None)
            by_run.setdefault(run, {})[point.task] = point
    return [
        dataclasses.replace(
            run, accuracy=statistics.fmean(point.accuracy for point in found.values())
        )
        for run, found in by_run.items()
        if len(found) == len(AVERAGED)
    ]


def write_figures(
    folder: str | os.PathLike,
    points: Iterable[ScalingPoint],
    background: Iterable[ScalingPoint] = (),
) -> list[pathlib.Path]:
    """Writes `scaling.csv` with all points, and a PNG and an SVG for each figure.

    Args:
        folder: Created if it does not exist.
        points: Points of results.
        background: The paper's points, drawn only in panels with results.

    Returns:
        The files written.

    Raises:
        ImportError: Without matplotlib.
    """
    folder, points, background = pathlib.Path(folder), list(points), list(background)
    drawn = []
    for number in FIGURES:
        if any(point.figure == number for point in points):
            drawn.append((number, draw(number, points, background)))
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "scaling.csv"]
    header = [field.name for field in dataclasses.fields(ScalingPoint)]
    rows = map(dataclasses.astuple, [*background, *points])
    short = [[f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in rows]
    write_csv(written[0], [header, *short])
    for number, figure in drawn:
        for suffix in ("png", "svg"):
            written.append(folder / f"figure_{number}.{suffix}")
            with atomic_write(written[-1]) as partial:
                figure.savefig(partial, dpi=150)
    return written


def draw(
    number: str, points: Iterable[ScalingPoint], background: Iterable[ScalingPoint] = ()
) -> Any:
    """Draws a figure: a panel for each task, accuracy by the logarithm of x.

    Args:
        number: "3", "4" or "5".
        points: Points of results; each of their tasks has a panel.
        background: The paper's points, drawn pale and hollow.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If no point belongs to the figure.
        ImportError: Without matplotlib.
    """
    points = [point for point in points if point.figure == number]
    if not points:
        raise ValueError(f"Figure {number} needs results. Received: no result of its tasks")
    tasks = _panels(points)
    behind = [p for p in background if p.figure == number and p.task in tasks]
    columns = min(len(tasks), 3)
    rows = -(-len(tasks) // columns)
    figure = new_figure((4.6 * columns + 0.4, 4.2 * rows + 0.7))
    panels = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    for axes in panels[len(tasks) :]:
        axes.set_axis_off()
    lines = number != "5"  # Figures 3 and 4 follow each model through the data sets.
    for axes, task in zip(panels, tasks, strict=False):
        for source in (behind, points):
            _draw_points(axes, [point for point in source if point.task == task], lines)
        axes.set_xscale("log")
        axes.grid(alpha=0.3)
        axes.set(title=task, xlabel=FIGURES[number].axis, ylabel="top-1 (%)")
    kinds = dict.fromkeys(point.kind for point in (*points, *behind))
    handles = [_mark(panels[0], [], [], kind, OURS) for kind in kinds]
    labels = list(kinds)
    if behind:
        handles.append(_mark(panels[0], [], [], next(iter(kinds)), PAPER))
        labels.append("the paper's")
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    figure.suptitle(FIGURES[number].title, fontsize=11)
    return figure


def _panels(points: list[ScalingPoint]) -> list[str]:
    """Tasks in the paper's order, then other tasks."""
    tasks = dict.fromkeys(point.task for point in points)
    order = (AVERAGE, "ImageNet", "ImageNet ReaL", *AVERAGED[1:])
    return [task for task in order if task in tasks] + [t for t in tasks if t not in order]


def _draw_points(axes: Any, points: list[ScalingPoint], lines: bool) -> None:
    for model in dict.fromkeys(point.model for point in points):
        of_model = sorted((p for p in points if p.model == model), key=lambda point: point.x)
        kind, source = of_model[0].kind, of_model[0].source
        xs, ys = [p.x for p in of_model], [p.accuracy for p in of_model]
        _mark(axes, xs, ys, kind, source, line=lines)
        ours = source == OURS
        if any(point.deviation for point in of_model):
            bars = [point.deviation or 0 for point in of_model]
            axes.errorbar(xs, ys, bars, fmt="none", ecolor=STYLES[kind][0], capsize=2)
        if ours or lines:
            axes.annotate(
                model,
                (xs[-1], ys[-1]),
                xytext=(4, 4 if ours else -8),
                textcoords="offset points",
                fontsize=7,
                color="black" if ours else "gray",
            )


def _mark(
    axes: Any, xs: list[float], ys: list[float], kind: str, source: str, line: bool = False
) -> Any:
    color, marker = STYLES[kind]
    ours = source == OURS
    (drawn,) = axes.plot(
        xs,
        ys,
        linestyle="-" if line else "none",
        marker=marker,
        markersize=7 if ours else 6,
        color=color,
        markerfacecolor=color if ours else "none",
        alpha=1 if ours else 0.45,
        linewidth=1.2 if ours else 0.7,
    )
    return drawn


def _kind(config: ViTConfig | BiTConfig) -> str:
    return _KINDS.get(config.architecture, "ResNet")


def _missing(run: PreTrainingRun, x: str) -> list[str]:
    """The fields of a result file that are missing for its place on the x axis."""
    is_counted = x == "exaflops" and run.exaflops is None
    names = run.missing("data", *(COMPUTE_FIELDS if is_counted else (x,)))
    return ["model.pretraining" if n == "data" else f"model.pretraining_{n}" for n in names]


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the figures and lists the results that are not in them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+")
    parser.add_argument("--output", required=True)
    parser.add_argument("--task", action="append", default=[], metavar="DATA=TASK")
    parser.add_argument("--no-paper", action="store_true")
    given = parser.parse_args(arguments)
    points, left_out = result_points(read_results(given.results, given.task))
    for line in left_out:
        print(f"left out  {line}")
    if not points:
        raise SystemExit("No result has what a figure needs.")
    background = [] if given.no_paper else paper_points()
    for path in write_figures(given.output, points, background):
        print(f"written {path}")


if __name__ == "__main__":
    main()
