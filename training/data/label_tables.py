"""Tables of images and labels: our CSV files, and tables of labelling tools and libraries."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pathlib
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from keras_vit.description.tasks import MULTILABEL, SEPARATOR
from keras_vit.utils.json_files import parse_json

from .parts import SPLITS

TABLE_SUFFIXES = (".csv", ".jsonl")
# Names of tables that lie beside the images: Hugging Face's ImageFolder, Roboflow.
NAMES = ("metadata.csv", "metadata.jsonl", "_classes.csv")
# Columns of other tools with the path of an image. Label Studio's `image` goes with `choice`.
_PATHS = ("file_name", "filename")
_STUDIO = ("image", "choice")
_UPLOAD = re.compile(r"^[0-9a-f]{8}-")  # Label Studio's prefix of the name of an uploaded file.


_FLAGS = {"0": False, "1": True, "0.0": False, "1.0": True}  # pandas writes floats.


class LabelledFile(NamedTuple):
    """An image file with its label; `split` is None for data without splits.

    The labels of a multi-label image are a tuple, which may be empty. `group` is the text of a
    table's column of groups.
    """

    path: str
    label: str | tuple[str, ...]
    split: str | None
    group: str | None = None


class Columns(NamedTuple):
    """Columns of a table.

    Args:
        path: Name of the column of paths; None: as the table shows it.
        label: Name of the column of labels; None: as the table shows it.
        group: Name of the column of groups; None, or a name that no column has: there is none.
    """

    path: str | None = None
    label: str | None = None
    group: str | None = None


class Table(NamedTuple):
    """A table with our names of columns: `path`, `label` or a column for each class, `split`.

    Args:
        columns: Names of the columns.
        rows: The text of each cell by the column's name.
        first_row: Number of the first row, for errors.
    """

    columns: list[str]
    rows: list[dict[Any, Any]]
    first_row: int


def read_label_table(path: pathlib.Path, names: Columns, root: pathlib.Path) -> Table:
    """Returns a CSV file, or a file of a JSON object a line, with our names of columns.

    Args:
        path: The file.
        names: The columns to take.
        root: Folder of relative paths.

    Raises:
        ValueError: If the file is damaged, or as `renamed`.
    """
    with named_csv_errors(path), open(path, newline="", encoding="utf-8-sig") as file:
        if path.suffix.lower() == ".jsonl":
            lines = [(n, line) for n, line in enumerate(file, 1) if line.strip()]
            rows = [_json_row(line, f"{path}, line {n}") for n, line in lines]
            columns = list(dict.fromkeys(name for row in rows for name in row))
            rows = [{name: row.get(name, "") for name in columns} for row in rows]
            first = 1
        else:
            reader = csv.DictReader(file)
            rows, first = list(reader), 2
            columns = list(reader.fieldnames or ()) if rows else []
    return renamed(Table(columns, rows, first), names, str(path), root)


@contextlib.contextmanager
def named_csv_errors(path: str | os.PathLike) -> Iterator[None]:
    """Raises ValueError with the path where the block reads a file that is no CSV in UTF-8."""
    try:
        yield
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{os.fspath(path)} must be a CSV file in UTF-8. {error}") from error


def _json_row(line, source):
    row = parse_json(line, source)
    if not isinstance(row, dict):
        raise ValueError(f"{source} must be a JSON object. Received: {line.strip():.80}")
    return {name: _text(value) for name, value in row.items()}


def _text(value):
    if isinstance(value, list):
        return SEPARATOR.join(map(_text, value))
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else str(value)


def renamed(table: Table, names: Columns, title: str, root: pathlib.Path) -> Table:
    """Returns a table with our names of columns.

    Args:
        table: The table as another program wrote it, or ours.
        names: The columns to take.
        title: Name of the table, for errors.
        root: Folder of relative paths, in which Label Studio's images are found.

    Raises:
        ValueError: If a column that was asked for is missing, or an image of Label Studio does not
            lie in the folder.
    """
    stripped = [(name or "").strip() for name in table.columns]  # Roboflow has ", " between names.
    for wanted, flag in ((names.path, "path"), (names.label, "label")):
        if wanted is not None and wanted not in stripped:
            raise ValueError(
                f"--{flag}-column ({flag}_column=) must be a column of {title}: "
                f"{', '.join(stripped)}. Received: {wanted}"
            )
    path = names.path or _found(stripped, ("path", *_PATHS))
    is_studio = path is None and {*_STUDIO} <= {*stripped}
    if is_studio:
        path = _STUDIO[0]
    label = names.label or (_STUDIO[1] if is_studio else "label")
    if path is None or (path, label, stripped) == ("path", "label", table.columns):
        return table  # Ours, or without a path, which the caller reports.
    kept = [path, label, "split", names.group]
    if label in stripped:
        columns = [name for name in stripped if name in kept]
    else:
        columns = stripped
    new_name = {path: "path", label: "label"}
    old_name = dict(zip(stripped, table.columns, strict=True))
    rows = []
    for number, row in enumerate(table.rows, table.first_row):
        new: dict[Any, Any] = {new_name.get(name, name): row[old_name[name]] for name in columns}
        if None in row:  # More cells than columns.
            new[None] = row[None]
        if is_studio:
            new["path"] = _studio_image(new["path"] or "", root, f"{title}, row {number}")
            new["label"] = _studio_choices(new["label"] or "")
        rows.append(new)
    return Table([new_name.get(name, name) for name in columns], rows, table.first_row)


def _found(columns, names):
    return next((name for name in names if name in columns), None)


def _studio_image(address, root, place):
    """The file of an address as Label Studio writes it: a path on its server."""
    if not address:
        return ""
    parts = urllib.parse.urlsplit(address)
    local = urllib.parse.parse_qs(parts.query).get("d", [""])[0]  # /data/local-files/?d=a/b.jpg
    name = urllib.parse.unquote(local or parts.path)
    last = name.rpartition("/")[2]
    tried = dict.fromkeys((name.lstrip("/"), last, _UPLOAD.sub("", last)))
    for candidate in tried:
        if candidate and os.path.isfile(root / candidate):
            return candidate
    raise ValueError(
        f"{place}: Label Studio has the image on its server: put the images into {root} "
        f"(or --data-dir), under the last part of the address. Received: {address}, without a file "
        f"{' or '.join(list(tried)[1:])}"
    )


def _studio_choices(cell):
    """The choices of a cell; several are a JSON object."""
    if not cell.startswith("{"):
        return cell
    try:
        return SEPARATOR.join(map(str, json.loads(cell)["choices"]))
    except (ValueError, KeyError, TypeError):
        return cell


def tables_beside(
    folder: pathlib.Path, parts: Mapping[str, str], label: str | None
) -> list[tuple[pathlib.Path, str | None]]:
    """Returns the tables in a folder of images, or in all its folders of parts, with their parts.

    Empty where there are none with labels: the folders are the classes then.

    Args:
        folder: The folder.
        parts: The part of each folder in it, by its name; {} if it has no parts.
        label: Name of the column of labels, or None.
    """
    roots: list[tuple[pathlib.Path, str | None]] = [(folder, None)]
    found = _labelled_tables(roots, label)
    if not found and parts:
        roots = [(folder / name, part) for name, part in sorted(parts.items())]
        found = _labelled_tables(roots, label)
    return found if len(found) == len(roots) else []


def _labelled_tables(roots, label):
    found = []
    for root, part in roots:
        path = next((root / name for name in NAMES if (root / name).is_file()), None)
        if path is not None and _has_labels(path, label):
            found.append((path, part))
    return found


def _has_labels(path, label):
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        first = file.readline()
    if path.name == NAMES[-1]:
        return True
    if path.suffix == ".jsonl":
        return f'"{label or "label"}"' in first
    columns: Sequence[str] = next(csv.reader([first]), [])
    return (label or "label") in [name.strip() for name in columns]


def table_folder_files(
    folder: pathlib.Path,
    parts: Mapping[str, str],
    tables: Sequence[tuple[pathlib.Path, str | None]],
    task: str | None,
    columns: Columns,
) -> tuple[list[LabelledFile], list[str]]:
    """Returns the images that tables in a folder list, and the class names.

    Args:
        folder: The folder.
        parts: The part of each folder in it, by its name.
        tables: See `tables_beside`.
        task: As for `csv_files`.
        columns: As for `csv_files`.

    Raises:
        ValueError: As `csv_files`.
    """
    files: list[LabelledFile] = []
    classes: list[str] = []
    for path, part in tables:
        listed, names = csv_files(path, path.parent, task, columns)
        classes += names
        for file in listed:
            inside = os.path.relpath(file.path, folder).split(os.sep)[0]  # ".." of others.
            files.append(file._replace(split=file.split or part or parts.get(inside)))
    return files, sorted_classes(classes)


def csv_files(
    path: pathlib.Path, root: pathlib.Path, task: str | None, columns: Columns
) -> tuple[list[LabelledFile], list[str]]:
    """Returns the images listed in a CSV file, and its class names.

    Args:
        path: The file. Its first line names the columns, in any order: `path`, `label`, and if
            there are splits `split`. A `;` separates the labels of a multi-label image, in
            all rows; an image without labels has an empty cell. Or `path`, a column with 0
            or 1 for each class instead of `label`, and `split`.
        root: Folder of relative paths.
        task: "multilabel" for multi-label data in which every image has exactly one label; by
            default as the file shows it.
        columns: The columns to take; also as other tools name them, see `label_tables.renamed`.

    Raises:
        ValueError: If a column, value or file is missing, a split unknown, or a path listed
            twice; if a file may have either form.
    """
    table = read_label_table(path, columns, root)
    return listed_files(table, root, task, title=str(path), group_by=columns.group)


def listed_files(
    table: Table,
    root: pathlib.Path,
    task: str | None,
    *,
    title: str,
    group_by: str | None = None,
) -> tuple[list[LabelledFile], list[str]]:
    """Returns the images listed in the rows of a table, and its class names.

    Args:
        table: The table, with our names of columns.
        root: Folder of relative paths.
        task: As for `csv_files`.
        title: Name of the table, for errors.
        group_by: Name of the column of groups; None, or another name: there is none.

    Raises:
        ValueError: As `csv_files` raises it.
    """
    columns, rows = table.columns, table.rows
    classes = [name for name in columns if name not in ("path", "label", "split", group_by)]
    if "path" not in columns or not ("label" in columns or classes):
        raise ValueError(
            f"{title} must have the columns path,label or path,label,split, or path and a column "
            f"of 0 and 1 for each class, and rows. Received: columns {list(columns)}"
        )
    if "label" in columns:
        if classes and task is None and _are_flags(rows, ["label", *classes]):
            raise ValueError(
                f"{title} has a column label and other columns, all of 0 and 1: give --task "
                "multiclass (task=) if label holds the class, else rename it. "
                f"Received: columns {columns}"
            )
        several = task == MULTILABEL or any(SEPARATOR in (row["label"] or "") for row in rows)
        labels = [_names(row["label"], several) for row in rows]
    else:
        labels = [
            _flagged(title, number, row, classes)
            for number, row in enumerate(rows, table.first_row)
        ]
    files: dict[str, LabelledFile] = {}
    for number, (row, label) in enumerate(zip(rows, labels, strict=True), table.first_row):
        name = (row["path"] or "").strip()
        split = SPLITS.get((row["split"] or "").strip().lower()) if "split" in row else None
        if not name or label == "" or ("split" in row and split is None):
            raise ValueError(
                f"Each row of {title} must have a path, a label (--task multilabel allows none) "
                f"and, if there is such a column, a split ({', '.join(SPLITS)}). "
                f"Received in row {number}: {dict(row)}"
            )
        image = str(root / name)
        if image in files:
            raise ValueError(f"{title} must list each file once. Received in row {number}: {image}")
        if not os.path.isfile(image):
            raise ValueError(f"{title}, row {number}: no such file: {image}")
        group = (row[group_by] or "").strip() if group_by in columns else None
        files[image] = LabelledFile(image, label, split, group)
    if "label" in columns:
        classes = [name for label in labels for name in ((label,) if type(label) is str else label)]
    return list(files.values()), sorted_classes(classes)


def _names(cell, several):
    """The label of a cell, or with several its labels."""
    names = (cell or "").strip()
    if not several:
        return names
    return tuple(dict.fromkeys(filter(None, map(str.strip, names.split(SEPARATOR)))))


def _are_flags(rows, columns):
    return all((row[name] or "").strip() in _FLAGS for row in rows for name in columns)


def _flagged(table, number, row, classes):
    """The classes whose column has a 1 in a row."""
    flags = {name: _FLAGS.get((row[name] or "").strip()) for name in classes}
    wrong = [name for name in classes if flags[name] is None]
    if wrong or None in row or len(flags) != len(classes):
        raise ValueError(
            f"Without a column label, {table} must have 0 or 1 in a column for each class, each "
            f"class once. Received in row {number}: {dict(row)}"
        )
    return tuple(name for name in classes if flags[name])


def sorted_classes(names: Iterable[str]) -> list[str]:
    """Returns the different class names: in numerical order if all are numbers, else sorted."""
    names = set(names)
    numbers = all(name.isdecimal() for name in names)
    return sorted(names, key=lambda name: (int(name), name)) if numbers else sorted(names)
