"""Lists and tables of a run: images to leave out, and other parts and labels than the data's."""

from __future__ import annotations

import collections
import csv
import io
import os
import posixpath
from collections.abc import Iterable, Mapping, Sequence

from keras_vit.description.class_labels import MULTILABEL
from keras_vit.utils.safe_text import for_csv

from .label_tables import csv_table, named_csv_errors, split_labels
from .parts import SPLITS
from .split_record import PARTS

COLUMNS = {"split": "split", "labels": "label"}  # By the flag, the column of values.
_MAX_NAMED = 3  # Paths and labels in an error.


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
        writer.writerows([("path", COLUMNS[flag]), *rows])
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
    column = COLUMNS[flag]
    columns, rows, _ = csv_table("\n".join(lines), f"The table of --{flag} ({flag}=)")
    if not {"path", column} <= {*columns}:
        raise ValueError(
            f"The table of --{flag} ({flag}=) must have the columns path,{column}. "
            f"Received: columns {columns}"
        )
    found: dict[str, str] = {}
    for number, row in enumerate(rows, 2):
        name, value = _normal(str(row["path"]).strip()), str(row[column]).strip()
        if name == "." or name in found:
            raise ValueError(
                f"Each row of --{flag} ({flag}=) must have a path, each once. "
                f"Received in row {number}: {row['path']!r}"
            )
        found[name] = value
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
    return posixpath.normpath(path.replace(os.sep, "/"))


def excluded(
    names: Sequence[str], paths: Sequence[str], exclude: Iterable[str], data: str
) -> list[bool]:
    """Returns whether each image is left out.

    Args:
        names: The images; see `relative_names`.
        paths: Their whole paths.
        exclude: Paths relative to the data, or else ends of whole paths.
        data: The data, for errors.

    Raises:
        ValueError: If the data have no such image.
    """
    known, wanted = set(names), {}
    exact = {}
    for name in exclude:
        if (normal := _normal(name)) in known:
            exact[normal] = name
        else:
            wanted["/" + name.replace(os.sep, "/").lstrip("/")] = name
    left_out, unused = [], {*wanted.values()}
    for name, path in zip(names, paths, strict=True):
        path = "/" + path.replace(os.sep, "/")
        # Every end is looked up: a list may be as long as the data.
        ends = (path[place:] for place, letter in enumerate(path) if wanted and letter == "/")
        hits = {wanted[end] for end in ends if end in wanted}
        unused -= hits
        left_out.append(bool(hits) or name in exact)
    check_excluded(unused, data)
    return left_out


def check_excluded(unused: Iterable[str], data: str) -> None:
    """Raises ValueError if names to leave out are not in the data.

    Args:
        unused: The names.
        data: The data.
    """
    if unused:
        raise ValueError(
            f"Excluded images must be in the data. Received: {data}, without "
            f"{', '.join(sorted(unused)[:5])}"
        )


def given_parts(
    names: Sequence[str], lines: Sequence[str], left_out: Sequence[bool]
) -> list[str | None]:
    """Returns the part of each image by the table of `--split`; None for images without a row.

    Args:
        names: The images; see `relative_names`.
        lines: The table.
        left_out: Whether an image needs no row.

    Raises:
        ValueError: If a part is unknown, the data do not have an image, or an image has no row.
    """
    table = read_table(lines, "split")
    for name, value in table.items():
        if value.lower() not in SPLITS:
            raise ValueError(
                f"The column split of --split (split=) must be {', '.join(PARTS)}. "
                f"Received: {value!r} of {name}"
            )
    _check_known(names, table, "split")
    parts = [SPLITS.get(table.get(name, "").lower()) for name in names]
    missing = [
        name
        for name, part, out in zip(names, parts, left_out, strict=True)
        if part is None and not out
    ]
    if missing:
        raise ValueError(
            "Every image of the data must be in the table of --split (split=), or in the list of "
            f"--exclude. Received: {len(missing)} of {len(names)} images without a row: "
            f"{_first(missing)}"
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
    table = read_table(lines, "labels")
    _check_known(names, table, "labels")
    several = task == MULTILABEL or any(isinstance(label, tuple) for label in labels)
    given = {name: split_labels(value) if several else (value,) for name, value in table.items()}
    known = set(class_names)
    of_label = {label: name for name, of_image in given.items() for label in of_image}
    unknown = [f"{label!r} of {name}" for label, name in of_label.items() if label not in known]
    if unknown:
        raise ValueError(
            "Labels of --labels (labels=) must be classes of the data "
            f"({_first(class_names, 10)}). Received: {_first(unknown)}"
        )
    changed = [given.get(name) for name in names]
    if several:
        return [
            new if new is not None else old if isinstance(old, tuple) else (old,)
            for new, old in zip(changed, labels, strict=True)
        ]
    return [old if new is None else new[0] for new, old in zip(changed, labels, strict=True)]


def _check_known(names, table, flag):
    known = set(names)
    unknown = [name for name in table if name not in known]
    if unknown:
        raise ValueError(
            f"The table of --{flag} ({flag}=) must have images of the data, by their paths "
            f"relative to it, such as {names[0] if names else 'none'}. Received: {len(unknown)} "
            f"that the data do not have: {_first(unknown)}"
        )


def _first(names, count=_MAX_NAMED):
    return ", ".join(names[:count]) + (", ..." if len(names) > count else "")
