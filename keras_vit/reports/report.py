"""`Report`: the facts and tables of a result, as text, JSON, CSV and Markdown."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from keras_vit.utils.files import write_csv, write_text
from keras_vit.utils.safe_text import for_line, for_markdown

METRICS_JSON = "metrics.json"


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows below a header; a cell is a text, a number, or None where there is none.

    Args:
        columns: The header.
        rows: As many cells in each row.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def texts(self) -> list[list[str]]:
        """Returns the header and the rows as text, "-" for None and NaN."""
        return [list(self.columns), *([_text(cell) for cell in row] for row in self.rows)]

    def write_csv(self, path: str | os.PathLike) -> None:
        """Writes a CSV file, floats with six digits, None and NaN as empty cells."""

        def plain(cell):
            if cell is None or cell != cell:
                return ""
            return f"{cell:.6g}" if isinstance(cell, float) else cell

        write_csv(path, [self.columns, *(map(plain, row) for row in self.rows)])


def _text(cell):
    if cell is None or cell != cell:
        return "-"
    return f"{cell:.4f}" if type(cell) is float else str(cell)


@dataclasses.dataclass(frozen=True)
class Report:
    """The facts and tables of a result; `str` gives the text.

    Args:
        lines: The facts as text.
        facts: The facts as types of JSON.
        tables: Tables by the name of their file.
        shown: The name of the table that the text has below the lines; "" for none.
        notes: Lines below the table.
    """

    lines: Sequence[str]
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tables: Mapping[str, Table] = dataclasses.field(default_factory=dict)
    shown: str = ""
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        shown = []
        if self.shown:
            shown = ["", align_columns(self.tables[self.shown].texts(), left=[0])]
        return "\n".join([*self.lines, *shown, *self.notes])

    def write(self, folder: str | os.PathLike) -> list[pathlib.Path]:
        """Writes each table as CSV, and at the end the facts as `metrics.json`.

        Args:
            folder: Created if it does not exist.

        Returns:
            The files written.
        """
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in self.tables.items():
            table.write_csv(folder / f"{name}.csv")
        write_text(folder / METRICS_JSON, json.dumps(self.facts, indent=2) + "\n")
        return [folder / METRICS_JSON, *(folder / f"{name}.csv" for name in self.tables)]


def align_columns(rows: Sequence[Sequence[str]], left: Collection[int] | None = None) -> str:
    """Returns rows of text in columns of equal width, two spaces apart; cells by `for_line`.

    Args:
        rows: Cells of each row, all rows with as many.
        left: Numbers of the columns that are aligned at the left, negative ones from the
            end; the others are aligned at the right. By default all.
    """
    rows = [list(map(for_line, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    at_left = range(len(widths)) if left is None else {column % len(widths) for column in left}
    return "\n".join(
        "  ".join(
            text.ljust(width) if column in at_left else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Returns rows of text as a Markdown table, by `for_markdown`; the first is the header."""
    header, *body = (list(map(for_markdown, row)) for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *body))
