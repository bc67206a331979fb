"""Lists and tables of a run: images to leave out, and other parts and labels than the data's."""

from __future__ import annotations

import collections
import csv
import io
import os
import posixpath
from collections.abc import Iterable, Mapping, Sequence

from keras_vit.description.class_labels import MULTILABEL, composed
from keras_vit.utils.safe_text import for_csv

from .labels import first_names
from .parts import SPLITS
from .split_record import PARTS
from .tables import csv_table, named_csv_errors, split_labels

_GIVEN = {"split": "split", "labels": "label"}  # By the flag, the column of values.


def table_lines(
    table: str | os.PathLike | Mapping[str, str] | Iterable[str], flag: str
) -> tuple[str, ...]:
    """Returns the lines of a table, as a run records it and `check` writes it.

    A path that a spreadsheet would run as a formula is quoted and begins with "./".

    Args:
        table: A CSV file, its lines, or a mapping from paths to values.
        flag: "split" or "labels".

    Raises:
        ValueError: If a file is not text in UTF-8.
    """
    if isinstance(table, Mapping):
        text = io.StringIO()
        formulas = {path for path in table if for_csv(path) != path}
        rows = [(f"./{path}" if path in formulas else path, table[path]) for path in table]
        writer = csv.writer(
            text, lineterminator="\n", quoting=csv.QUOTE_ALL if formulas else csv.QUOTE_MINIMAL
        )
        writer.writerows([("path", _GIVEN[flag]), *rows])
        return tuple(text.getvalue().splitlines())
    if isinstance(table, str | os.PathLike):
        with named_csv_errors(table), open(table, encoding="utf-8") as file:
            table = file.read().splitlines()
    return tuple(line.removeprefix("\ufeff") for line in table if line.strip())


def read_table(lines: Sequence[str], flag: str) -> dict[str, str]:
    """Returns the value of each path in a table.

    Args:
        lines: The lines; the first has the columns `path` and the flag's, and maybe others.
        flag: "split" or "labels".

    Raises:
        ValueError: If a column is missing, or a path is missing or listed twice.
    """
    column, title = _GIVEN[flag], f"The table of --{flag} ({flag}=)"
    columns, rows, _ = csv_table("\n".join(lines), title)
    if not {"path", column} <= {*columns}:
        raise ValueError(f"{title} must have the columns path,{column}. Received: {columns}")
    found: dict[str, str] = {}
    for number, row in enumerate(rows, 2):
        name = _normal(str(row["path"]).strip())
        if name == "." or name in found:
            raise ValueError(
                f"{title} must have a path in each row, each once. "
                f"Received in row {number}: {row['path']!r}"
            )
        found[name] = composed(str(row[column]).strip())
    return found


def relative_names(paths: Sequence[str], root: str | os.PathLike) -> list[str]:
    """Returns the path of each image relative to the folder of the data, with slashes.

    An image outside of the folder has the last part of its path, as in `DataSpec.relative`, if no
    other image has this name.

    Args:
        paths: The images.
        root: The folder.
    """
    inside = os.path.join(os.fspath(root), "")
    names = [
        _normal(path[len(inside) :] if path.startswith(inside) else os.path.relpath(path, root))
        for path in paths
    ]
    last = [posixpath.basename(name) if name.startswith("../") else name for name in names]
    counts = collections.Counter(last)
    return [short if counts[short] == 1 else name for short, name in zip(last, names, strict=True)]


def _normal(path):
    return composed(posixpath.normpath(path.replace(os.sep, "/")))


def left_out(
    names: Sequence[str], paths: Sequence[str], exclude: Iterable[str], data: str
) -> list[bool]:
    """Returns whether each image is left out.

    Args:
        names: The images; see `relative_names`.
        paths: Their whole paths.
        exclude: Paths relative to the data, or whole ones.
        data: The data, for errors.

    Raises:
        ValueError: If the data have no such image.
    """
    wanted, whole = set(map(_normal, exclude)), [*map(_normal, paths)]
    if unused := sorted(wanted.difference(names, whole)):
        raise ValueError(
            f"Excluded images must be in the data. Received: {data}, without "
            f"{', '.join(unused[:5])}"
        )
    return [name in wanted or path in wanted for name, path in zip(names, whole, strict=True)]


def given_parts(
    names: Sequence[str], lines: Sequence[str], is_left_out: Sequence[bool]
) -> list[str | None]:
    """Returns the part of each image by the table of `--split`.

    None for images without a row, "" for those whose row has no part, which are left out.

    Args:
        names: The images; see `relative_names`.
        lines: The table.
        is_left_out: Whether an image needs no row.

    Raises:
        ValueError: If a part is unknown, the data do not have an image, or an image has no row.
    """
    table = _table_of(names, lines, "split")
    known = {**SPLITS, "": ""}
    parts = [known.get(table[name].lower()) if name in table else None for name in names]
    wrong = [
        f"{table[name]!r} of {name}" if name in table else f"no row of {name}"
        for name, part, out in zip(names, parts, is_left_out, strict=True)
        if part is None and not (out and name not in table)
    ]
    if wrong:
        raise ValueError(
            f"The table of --split (split=) must have a part ({', '.join(PARTS)}) of every image "
            f"that is not in the list of --exclude. Received: {first_names(wrong, 3)}"
        )
    return parts


def given_labels(
    names: Sequence[str],
    labels: Sequence[str | tuple[str, ...]],
    lines: Sequence[str],
    class_names: Sequence[str],
    task: str | None,
) -> list[str | tuple[str, ...]]:
    """Returns the label of each image, by the table of `--labels` where it has the image.

    Args:
        names: The images; see `relative_names`.
        labels: Their labels in the data; tuples for multi-label images.
        lines: The table. A `;` separates the labels of a multi-label image.
        class_names: The classes of the data.
        task: "multilabel" makes tuples of all labels.

    Raises:
        ValueError: If the data do not have an image or a label.
    """
    table = _table_of(names, lines, "labels")
    several = task == MULTILABEL or any(isinstance(label, tuple) for label in labels)
    given = {name: split_labels(value) if several else (value,) for name, value in table.items()}
    unknown = [
        f"{label!r} of {name}"
        for name, of_image in given.items()
        for label in of_image
        if label not in class_names
    ]
    if unknown:
        raise ValueError(
            "Labels of --labels (labels=) must be classes of the data "
            f"({first_names(class_names, 10)}). Received: {first_names(unknown, 3)}"
        )
    old = [label if isinstance(label, tuple) else (label,) for label in labels]
    found = [given.get(name, label) for name, label in zip(names, old, strict=True)]
    return list(found) if several else [label for (label,) in found]


def _table_of(names, lines, flag):
    """A table whose images the data have."""
    table = read_table(lines, flag)
    if unknown := sorted(table.keys() - {*names}):
        raise ValueError(
            f"The table of --{flag} ({flag}=) must have images of the data, by their paths "
            f"relative to it, such as {names[0] if names else 'none'}. Received: {len(unknown)} "
            f"that the data do not have: {first_names(unknown, 3)}"
        )
    return table
