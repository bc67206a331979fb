"""The paper's tables 2 and 5 to 9 filled with results, the paper's numbers alongside ours.

    python paper/tables.py runs [--output tables] [--task photos=CIFAR-10]

Reads result files (`keras-vit evaluate --output`) and classifiers' folders, subfolders included.
--output writes report.md, and a CSV file and a picture for each table. A cell without a result
stays empty. The interval after a number is its 95% one for the test images of one seed.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import os
import pathlib
import statistics
from collections.abc import Callable, Iterable, Sequence

from read_results import read_results

from keras_vit.configs import ViTConfig
from keras_vit.reports.report import align_columns, markdown_table
from keras_vit.training.evaluation.measures import accuracy_text
from keras_vit.training.evaluation.results import Result
from keras_vit.utils.files import atomic_write, write_csv, write_text
from keras_vit.utils.plots import new_figure

PUBLISHED = pathlib.Path(__file__).parent / "published"
PAPER, OURS = "paper", "ours"

RowLabels = tuple[str, ...]  # The first cells of a row.
Place = tuple[RowLabels, str]  # A row and the name of a column.
Average = Callable[[Iterable[float]], float]  # Over seeds.

_ACCURACIES = ("classification", "imagenet", "imagenet-real")
_JFT = "JFT-300M"
_VTAB_MEAN = "mean"


@dataclasses.dataclass(frozen=True)
class PaperTable:
    """A table of the paper and the results that belong to it.

    Args:
        title: The caption.
        num_labels: Cells at the start of a row that label it.
        place: Gives the row and column of a result, or None for results of other tables.
        value: Gives the number of a result.
        digits: Decimal places.
    """

    title: str
    num_labels: int
    place: Callable[[Result], Place | None]
    value: Callable[[Result], float]
    digits: int = 2


@dataclasses.dataclass(frozen=True)
class SeedStatistics:
    """Mean and deviation of results that differ only in the seed.

    Args:
        mean: Mean over seeds; for VTAB tasks the median, as in the benchmark.
        deviation: Sample standard deviation over seeds; None for a single seed.
        count: Number of seeds.
        interval: The 95% interval of `mean` by the test images of a seed, as text; "" for means
            over tasks, which have none.
    """

    mean: float
    deviation: float | None
    count: int
    interval: str = ""


@dataclasses.dataclass(frozen=True)
class FilledTable:
    """A table of the paper with our results.

    Args:
        name: "Table 2" and so on.
        title: The caption.
        label_names: Header of the row labels.
        columns: The other columns: the paper's, then columns with our results only.
        rows: Labels of the rows, in the same order.
        paper: The paper's cells as printed.
        ours: Our cells.
        digits: Decimal places.
    """

    name: str
    title: str
    label_names: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[RowLabels, ...]
    paper: dict[Place, str]
    ours: dict[Place, SeedStatistics]
    digits: int

    def lines(self) -> list[list[str]]:
        """Returns the header and, for each row, the paper's line and ours."""
        lines = [[*self.label_names, "", *self.columns]]
        for row in self.rows:
            lines.append([*row, PAPER, *(self.paper.get((row, c), "") for c in self.columns)])
            lines.append([*row, OURS, *(self._text(row, c) for c in self.columns)])
        return lines

    def to_markdown(self) -> str:
        """Returns the table in Markdown, with a heading."""
        return f"## {self.name}: {self.title}\n\n{markdown_table(self.lines())}\n"

    def draw(self, path: str | os.PathLike) -> None:
        """Draws the table as a picture.

        Raises:
            ImportError: Without matplotlib.
        """
        header, *body = self.lines()
        widths = [max(len(line[k]) for line in (header, *body)) + 2 for k in range(len(header))]
        size = 0.085 * sum(widths) + 0.4, 0.25 * (len(body) + 3)
        figure = new_figure(size, layout=None)
        axes = figure.add_axes((0.01, 0, 0.98, 1))
        axes.axis("off")
        axes.set_title(f"{self.name}: {self.title}", fontsize=10, y=0.93)
        drawn = axes.table(
            body,
            colLabels=header,
            colWidths=[width / sum(widths) for width in widths],
            loc="center",
            cellLoc="left",
        )
        drawn.auto_set_font_size(False)
        drawn.set_fontsize(8)
        for (line, _), cell in drawn.get_celld().items():
            cell.set_linewidth(0.3)
            if line and line % 2 == 0:
                cell.set_facecolor("#eef3fa")
        with atomic_write(path) as partial:
            figure.savefig(partial, dpi=150)

    def _text(self, row: RowLabels, column: str) -> str:
        cell = self.ours.get((row, column))
        if cell is None:
            return ""
        text = f"{cell.mean:.{self.digits}f}"
        if cell.deviation is not None:
            text += f"±{cell.deviation:.{self.digits}f}"
        return f"{text} ({cell.interval}%)" if cell.interval else text


def make_tables(results: Iterable[Result]) -> list[FilledTable]:
    """Returns the tables of the paper to which the results belong.

    Results of one cell differ only in the seed; for equal seeds the last result counts.

    Raises:
        ValueError: If no result belongs to a table.
    """
    results = list(results)
    tables = [
        table for number, paper in TABLES.items() if (table := _fill(number, paper, results)).ours
    ]
    if not tables:
        raise ValueError(
            "There must be results of the paper's tasks, models and protocols. Received: "
            f"{len(results)} results, none of Tables {', '.join(TABLES)}"
        )
    return tables


def write_report(
    folder: str | os.PathLike,
    tables: Iterable[FilledTable],
    results: Iterable[Result],
) -> list[pathlib.Path]:
    """Writes report.md and results.csv, and a CSV file and a picture for each table.

    Args:
        folder: Created if it does not exist.
        tables: The tables.
        results: All results, which are listed at the end.

    Returns:
        The files written.
    """
    folder, tables, rows = pathlib.Path(folder), list(tables), list_results(results)
    folder.mkdir(parents=True, exist_ok=True)
    listed = f"## Results\n\n{markdown_table(rows)}\n"
    written = [folder / "report.md", folder / "results.csv"]
    write_text(written[0], "\n".join((*(table.to_markdown() for table in tables), listed)))
    write_csv(written[1], rows)
    for table in tables:
        path = folder / f"{table.name.lower().replace(' ', '_')}.csv"
        write_csv(path, table.lines())
        written.append(path)
        table.draw(path.with_suffix(".png"))
        written.append(path.with_suffix(".png"))
    return written


def list_results(results: Iterable[Result]) -> list[tuple[str, ...]]:
    """Returns a header and a row for each result: protocol, task, model, accuracy or mAP."""
    results = list(results)
    columns = {"top_1": "top-1", "mAP": "mAP"}
    if not any("mAP" in result.metrics for result in results):
        del columns["mAP"]
    rows: list[tuple[str, ...]] = [
        ("protocol", "task", "model", "weights", "seed", "images", *columns.values(), "95%")
    ]
    for r in results:
        rows.append(
            (
                r.protocol + (f" {r.recipe['shots']}" if "shots" in r.recipe else ""),
                r.task,
                str(r.model.get("name")),
                r.pretraining,
                "" if r.seed is None else str(r.seed),
                str(r.images),
                *(f"{r.metrics[key]:.4f}" if key in r.metrics else "" for key in columns),
                _interval([r]),
            )
        )
    return rows


def _interval(results: Sequence[Result], average: Average = statistics.fmean) -> str:
    """The 95% interval of the accuracy on the images of one seed, such as "84.1 to 88.4"."""
    images = min(result.images for result in results)
    if not images or not all("top_1" in result.metrics for result in results):
        return ""
    accuracy = average(result.metrics["top_1"] for result in results)
    return accuracy_text(accuracy, images).partition("(")[2].rstrip(")")


def paper_table(number: str) -> list[list[str]]:
    """Returns a table of the paper as printed: the header, then the rows."""
    text = (PUBLISHED / f"table_{number}.csv").read_text(encoding="utf-8")
    return list(csv.reader(text.splitlines()))


def _fill(number: str, table: PaperTable, results: list[Result]) -> FilledTable:
    header, *body = paper_table(number)
    labels, columns = header[: table.num_labels], header[table.num_labels :]
    rows = [tuple(line[: table.num_labels]) for line in body]
    paper = {
        (row, column): text
        for row, line in zip(rows, body, strict=True)
        for column, text in zip(columns, line[table.num_labels :], strict=True)
        if text
    }
    values: dict[Place, dict[int | None, float]] = {}
    of_place: dict[Place, dict[int | None, Result]] = {}
    for result in results:
        place = table.place(result)
        if place is not None:
            values.setdefault(place, {})[result.seed] = table.value(result)
            of_place.setdefault(place, {})[result.seed] = result
    average: Average = statistics.median if number == "9" else statistics.fmean
    ours = {
        place: dataclasses.replace(
            _statistics(by_seed.values(), average),
            interval=_interval(list(of_place[place].values()), average),
        )
        for place, by_seed in values.items()
    }
    if number == "9":
        ours |= _vtab_means(values, columns)
    if number == "2":
        ours |= _vtab_row(results)
    for row, column in ours:  # Places that the paper does not have.
        rows += [row] if row not in rows else []
        columns += [column] if column not in columns else []
    return FilledTable(
        f"Table {number}",
        table.title,
        tuple(labels),
        tuple(columns),
        tuple(rows),
        paper,
        ours,
        table.digits,
    )


def _statistics(values: Iterable[float], average: Average = statistics.fmean) -> SeedStatistics:
    values = list(values)
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return SeedStatistics(average(values), deviation, len(values))


def _vtab_means(values, columns):
    """For models with all 19 tasks: the mean over tasks of the median over seeds."""
    tasks = [column for column in columns if column != _VTAB_MEAN]
    means = {}
    for row in dict.fromkeys(row for row, _ in values):
        if all((row, task) in values for task in tasks):
            medians = [statistics.median(values[row, task].values()) for task in tasks]
            means[row, _VTAB_MEAN] = SeedStatistics(statistics.fmean(medians), None, 1)
    return means


def _vtab_row(results):
    """The mean over tasks of each seed with all 19 tasks, then statistics over seeds."""
    tasks = [column for column in paper_table("9")[0][1:] if column != _VTAB_MEAN]
    by_run: dict[tuple[str, int | None], dict[str, float]] = {}
    for result in results:
        if place := _place_9(result):
            (row,), task = place
            by_run.setdefault((row, result.seed), {})[task] = _percent(result)
    by_model: dict[str, list[float]] = {}
    for (row, _), found in by_run.items():
        if all(task in found for task in tasks):
            by_model.setdefault(row, []).append(statistics.fmean(found[task] for task in tasks))
    return {(("VTAB",), row): _statistics(values) for row, values in by_model.items()}


def _percent(result: Result) -> float:
    return 100 * result.metrics["top_1"]


def _name(result: Result) -> str:
    return str(result.model["name"])


def _origin(result: Result) -> str:
    return f"{_name(result)}, {result.pretraining}"


def _is_accuracy(result: Result) -> bool:
    return result.protocol in _ACCURACIES and result.task in _PAPER_TASKS


def _place_2(result: Result) -> Place | None:
    return ((result.task,), _origin(result)) if _is_accuracy(result) else None


def _place_5(result: Result) -> Place | None:
    if not _is_accuracy(result):
        return None
    return (result.pretraining, result.task), _name(result)


def _place_6(result: Result) -> Place | None:
    if not _is_accuracy(result):
        return None
    model = _name(result) if result.pretraining == _JFT else _origin(result)
    epochs = result.model.get("pretraining_epochs")
    return (model, "" if epochs is None else str(epochs)), result.task


def _place_7(result: Result) -> Place | None:
    optimizer = result.model.get("pretraining_optimizer")
    if not _is_accuracy(result) or optimizer is None:
        return None
    column = f"{_name(result)}, {optimizer}"
    return (result.task,), column if result.pretraining == _JFT else (
        f"{column}, {result.pretraining}"
    )


def _place_8(result: Result) -> Place | None:
    config = result.model.get("config")
    is_five_shot = (
        result.protocol == "few-shot"
        and result.task == "ImageNet"
        and result.recipe.get("shots") == 5
        and _name(result) == "ViT-B/16"
    )
    if not is_five_shot or not config:
        return None
    kind, place = (
        config.get(name, getattr(ViTConfig, name))
        for name in ("position_embedding", "position_embedding_at")
    )
    return (kind,), place


def _place_9(result: Result) -> Place | None:
    return ((_origin(result),), result.task) if result.protocol == "vtab" else None


_PAPER_TASKS = ("ImageNet", "ImageNet ReaL", "CIFAR-10", "CIFAR-100", "Pets", "Flowers-102")

TABLES = {
    "2": PaperTable("Comparison with the state of the art, top-1 in %", 1, _place_2, _percent),
    "5": PaperTable("Top-1 in % by pre-training data, fine-tuned at 384 px", 2, _place_5, _percent),
    "6": PaperTable("Scaling study, top-1 in %", 2, _place_6, _percent),
    "7": PaperTable("ResNets pre-trained with Adam or SGD, top-1 in %", 1, _place_7, _percent),
    "8": PaperTable(
        "Position embeddings, ImageNet 5-shot linear, share",
        1,
        _place_8,
        lambda result: result.metrics["top_1"],
        digits=5,
    ),
    "9": PaperTable("VTAB-1k by task, top-1 in %", 1, _place_9, _percent, digits=1),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the tables, and writes them if --output is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--output")
    parser.add_argument("--task", action="append", default=[], metavar="DATA=TASK")
    given = parser.parse_args(arguments)
    results = [found for _, found in read_results(given.folders, given.task)]
    print(align_columns(list_results(results)), end="\n\n")
    made = make_tables(results)
    for table in made:
        print(table.to_markdown())
    if given.output:
        for path in write_report(given.output, made, results):
            print(f"written {path}")


if __name__ == "__main__":
    main()
