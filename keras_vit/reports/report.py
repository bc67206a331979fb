"""`Report`: the facts and tables of a result, as text, Markdown, JSON and CSV."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from keras_vit.utils.files import write_csv, write_text
from keras_vit.utils.safe_text import for_line, for_markdown

METRICS_JSON = "metrics.json"
FACTS_TABLE = "facts"  # The name of the CSV file.
FACT_COLUMNS = ("fact", "value", "origin")


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


class NamedFact(NamedTuple):
    """A fact of a result.

    Args:
        name: What it is, in a word or two.
        value: The value as it is shown.
        origin: Where it is from, or what it is of; "" for nothing.
        numbers: The value as types of JSON, by key; None: the shown value by the name.
    """

    name: str
    value: str
    origin: str = ""
    numbers: Mapping[str, Any] | None = None

    @property
    def text(self) -> str:
        """The value with its origin."""
        return f"{self.value} ({self.origin})" if self.origin else self.value

    def __str__(self) -> str:
        label = f"{self.name:<8}" if len(self.name) < 8 else f"{self.name}  "
        return f"{label}{self.text}"

    def to_json(self) -> Mapping[str, Any]:
        """Returns the value as types of JSON, by key."""
        return {self.name: self.value} if self.numbers is None else self.numbers


def fact_of_line(line: str) -> NamedFact:
    """Returns a line of a word and a text as a fact, which the JSON does not have."""
    name, _, text = line.partition(" ")
    return NamedFact(name, text.strip(), numbers={})


@dataclasses.dataclass(frozen=True)
class Report:
    """The facts and tables of a result, rendered as text, Markdown, HTML, JSON and CSV.

    `str` gives the text. The HTML is `report_section` of `keras_vit.reports.pages`.

    Args:
        facts: The facts.
        tables: Tables by the name of their file.
        shown: The name of the table that text and Markdown have; "" for none.
        notes: Lines below the table.
        main: The facts that the text has last, so that a long table does not hide them.
        numbers: More values as types of JSON, by key.
    """

    facts: Sequence[NamedFact]
    tables: Mapping[str, Table] = dataclasses.field(default_factory=dict)
    shown: str = ""
    notes: Sequence[str] = ()
    main: Sequence[NamedFact] = ()
    numbers: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def all_facts(self) -> list[NamedFact]:
        """The facts, the main ones first."""
        return [*self.main, *self.facts]

    def __str__(self) -> str:
        shown = []
        if self.shown:
            shown = ["", align_columns(self.tables[self.shown].texts(), left=[0])]
        last = ["", *map(str, self.main)] if self.main else []
        return "\n".join([*map(str, self.facts), *shown, *self.notes, *last])

    def aligned(self, *, origin_below: bool = False) -> str:
        """Returns the facts alone as text, the values below each other.

        Args:
            origin_below: Whether the origin has its own line.
        """
        rows = []
        for fact in self.all_facts:
            rows.append((fact.name, fact.value if origin_below else fact.text))
            if origin_below and fact.origin:
                rows.append(("", fact.origin))
        return align_columns(rows)

    def to_markdown(self) -> str:
        """Returns the facts as a table in Markdown, and below them the shown table."""
        texts = [markdown_table([FACT_COLUMNS, *(fact[:3] for fact in self.all_facts)])]
        if self.shown:
            texts.append(markdown_table(self.tables[self.shown].texts()))
        return "\n\n".join(texts)

    def to_json(self) -> dict[str, Any]:
        """Returns the facts as types of JSON."""
        values: dict[str, Any] = {}
        for fact in self.all_facts:
            values |= fact.to_json()
        return {**values, **self.numbers}

    def table_of_facts(self) -> Table:
        """Returns the facts as a table: the CSV of a result."""
        return Table(FACT_COLUMNS, [fact[:3] for fact in self.all_facts])

    def write(self, folder: str | os.PathLike) -> list[pathlib.Path]:
        """Writes facts and tables as CSV, and at the end the facts as `metrics.json`.

        Args:
            folder: Created if it does not exist.

        Returns:
            The files written.
        """
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tables = {FACTS_TABLE: self.table_of_facts(), **self.tables}
        for name, table in tables.items():
            table.write_csv(folder / f"{name}.csv")
        write_text(folder / METRICS_JSON, json.dumps(self.to_json(), indent=2) + "\n")
        return [folder / METRICS_JSON, *(folder / f"{name}.csv" for name in tables)]


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
