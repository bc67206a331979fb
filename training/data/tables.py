"""Tables of images and labels: our CSV files, and tables of labelling tools and libraries."""

from __future__ import annotations

import ast
import collections
import contextlib
import csv
import dataclasses
import io
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from keras_vit.description.class_labels import MULTILABEL, SEPARATOR, composed
from keras_vit.preprocessing import IMAGE_SUFFIXES, OTHER_IMAGE_SUFFIXES
from keras_vit.utils.json_files import parse_json

from .labels import first_names
from .parts import SPLITS

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".json")
# Names of tables that lie beside the images: Hugging Face's ImageFolder, Roboflow.
NAMES = ("metadata.csv", "metadata.jsonl", "_classes.csv")
# Columns with the path of an image and with its label, the clearest name first.
_PATHS = ["path", "file_name", "filename", "filepath", "file_path", "image_path", "file", "image"]
_PATHS += ["image_name", "image_id", "img", "id"]
_LABELS = ("label", "labels", "class", "class_name", "category")
_UNNAMED = re.compile(r"|Unnamed: \d+")  # The index that pandas writes, and reads again.
_FLAGS = {"0": False, "1": True, "0.0": False, "1.0": True}  # pandas writes floats.

Cell = str | tuple[str, ...]  # A tuple of the items of a list.


class LabelledFile(NamedTuple):
    """An image file with its label; `split` is None for data without splits.

    The labels of a multi-label image are a tuple, which may be empty. `group` is the text of a
    table's column of groups.
    """

    path: str
    label: str | tuple[str, ...]
    split: str | None
    group: str | None = None


@dataclasses.dataclass
class Reading:
    """How labelled images are read, and what is noticed on the way.

    Args:
        spec: The `DataSpec`.
        verify: Whether every file is decoded once now, so that the usable files are known
            before any work is done. With False, a file that cannot be decoded ends the run.
            Record files are never verified.
        min_classes: Classes that the data must have; 1 where a classifier's are added to them; 0
            for an evaluation, in which parts may be without images of some.
        labelled: Whether labels are needed. Without them, images may lie in any folders; the
            source has no class names and only the split "train", or all images if the data
            have no splits.
        download: Whether a missing data set of TensorFlow Datasets is downloaded.
        one_part: Whether parts that the data have are ignored: all images are in "train".
        by_pillow: Whether files are decoded without TensorFlow; see `image_files.undecodable`.
        skipped: Files that are left out, each with the reason.
        notes: Lines about the data for the user.
        root: The folder that names of images are relative to; None where they are in no files.
        cells: The text that names the group of each image file, from a table.
    """

    spec: Any
    verify: bool = True
    min_classes: int = 2
    labelled: bool = True
    download: bool = True
    one_part: bool = False
    by_pillow: bool = False
    skipped: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    root: pathlib.Path | None = None
    cells: Mapping[str, str | None] | None = None


class LabelTable(NamedTuple):
    """A table as another program wrote it, or ours.

    Args:
        columns: Names of the columns.
        rows: Each cell by the column's name.
        first_row: Number of the first row, for errors.
    """

    columns: list[str]
    rows: list[dict[str, Cell]]
    first_row: int


def cell_of(value: Any) -> Cell:
    """Returns the text of a value in JSON or a data frame, or the texts in a list of values."""
    value = value.tolist() if hasattr(value, "tolist") else value  # NumPy's.
    if isinstance(value, list | tuple | set | frozenset):
        return tuple(str(cell_of(item)) for item in value)
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else str(value)


def csv_table(text: str, title: str) -> LabelTable:
    """Returns the table in a text with commas, semicolons or tabs between the cells.

    Args:
        text: The text; its first line has the names of the columns.
        title: Name of the table, for errors.

    Raises:
        ValueError: If a row has more cells than there are columns.
    """
    text = text.removeprefix("\ufeff")
    # What the first line has most of; a comma in a tie.
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    # Roboflow has ", " between the names.
    columns = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    rows = []
    for number, row in enumerate(reader, 2):
        if any(more := row.pop(None, ())):
            raise ValueError(
                f"{title}, row {number}: a cell with the separator in it must be in quotes. "
                f"Received: {len(more)} more cells than columns, {more}"
            )
        rows.append({name: cell or "" for name, cell in row.items()})
    return LabelTable(columns, rows, 2)


@contextlib.contextmanager
def named_csv_errors(path: str | os.PathLike) -> Iterator[None]:
    """Raises ValueError with the path where the block reads a file that is no CSV in UTF-8."""
    try:
        yield
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{os.fspath(path)} must be a CSV file in UTF-8. {error}") from error


def read_label_table(path: pathlib.Path, notes: list[str]) -> LabelTable:
    """Returns a CSV file, a file of a JSON object a line, a JSON list of objects or a COCO file.

    Args:
        path: The file.
        notes: Receives a line about boxes that are not used.

    Raises:
        ValueError: If the file is damaged.
    """
    with named_csv_errors(path):
        text = path.read_bytes().decode("utf-8-sig")
        suffix = path.suffix.lower()
        if suffix not in (".jsonl", ".json"):
            return csv_table(text, str(path))
    if suffix == ".jsonl":
        lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
        found = [(parse_json(line, f"{path}, line {n}"), f"{path}, line {n}") for n, line in lines]
    else:
        content = parse_json(text, str(path))
        if isinstance(content, dict):
            content = _coco_rows(content, path, notes)
        found = [(row, f"{path}, entry {n}") for n, row in enumerate(content, 1)]
    for row, place in found:
        if not isinstance(row, dict):
            raise ValueError(f"{place} must be a JSON object. Received: {str(row):.80}")
    columns = list(dict.fromkeys(name for row, _ in found for name in row))
    rows = [{name: cell_of(row.get(name)) for name in columns} for row, _ in found]
    return LabelTable(columns, rows, 1)


def _coco_rows(content, path, notes):
    """The images of a COCO file with the names of their categories; lists if some have several."""
    try:
        names = {category["id"]: str(category["name"]) for category in content["categories"]}
        labels: dict[Any, list[str]] = {image["id"]: [] for image in content["images"]}
        for annotation in content["annotations"]:
            labels[annotation["image_id"]].append(names[annotation["category_id"]])
        rows = [
            (image["file_name"], [*dict.fromkeys(labels[image["id"]])])
            for image in content["images"]
        ]
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{path} must be a list of objects with path and label, or a COCO file: images with id "
            "and file_name, categories with id and name, annotations with image_id and category_id."
            f" Received: one without {error}"
        ) from error
    if any("bbox" in annotation for annotation in content["annotations"]):
        notes.append(f"the labels in {path.name} are the categories of an image's boxes")
    one = all(len(of_image) == 1 for _, of_image in rows)
    return [{"path": name, "label": found[0] if one else found} for name, found in rows]


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
    of_parts = [(folder / name, part) for name, part in sorted(parts.items())]
    for roots in ([(folder, None)], of_parts):
        paths = [next((root / n for n in NAMES if (root / n).is_file()), None) for root, _ in roots]
        found = [
            (path, part)
            for path, (_, part) in zip(paths, roots, strict=True)
            if path is not None and _has_labels(path, label)
        ]
        if found:
            return found if len(found) == len(roots) else []
    return []


def _has_labels(path, label):
    wanted = label.split(",") if label else _LABELS
    known = path.name == NAMES[-1]
    return known or not {*wanted}.isdisjoint(read_label_table(path, []).columns)


def table_folder_files(
    folder: pathlib.Path,
    parts: Mapping[str, str],
    tables: Sequence[tuple[pathlib.Path, str | None]],
    reading: Reading,
) -> tuple[list[LabelledFile], tuple[str, ...]]:
    """Returns the images that tables in a folder list, and the class names.

    Args:
        folder: The folder.
        parts: The part of each folder in it, by its name.
        tables: See `tables_beside`.
        reading: As for `listed_files`.

    Raises:
        ValueError: As `listed_files`.
    """
    files: list[LabelledFile] = []
    classes: list[str] = []
    for path, part in tables:
        table = read_label_table(path, reading.notes)
        listed, names = listed_files(table, str(path), path.parent, reading)
        classes += names
        for file in listed:
            inside = os.path.relpath(file.path, folder).split(os.sep)[0]  # ".." of others.
            files.append(file._replace(split=file.split or part or parts.get(inside)))
    return files, sorted_classes(classes)


def listed_files(
    table: LabelTable, title: str, root: pathlib.Path, reading: Reading
) -> tuple[list[LabelledFile], tuple[str, ...]]:
    """Returns the images listed in the rows of a table, and its class names.

    Args:
        table: The table. Its columns are, in any order, `path`, `label`, and if there are splits
            `split`; or as other tools name them. The labels of a multi-label image are a list, or a
            `;` separates them, in all rows; an image without labels has an empty cell. Or `path`, a
            column with 0 or 1 for each class instead of `label`, and `split`. A path may be without
            the suffix of its file.
        title: Name of the table, for errors.
        root: Folder of relative paths.
        reading: Its `DataSpec` has the columns to take, the separator, and the task "multilabel"
            for multi-label data in which every image has exactly one label. It receives a note for
            each guess.

    Raises:
        ValueError: If a column, value or file is missing, a split unknown, or a path listed twice.
    """
    spec, rows = reading.spec, table.rows
    columns = [name for name in table.columns if not _UNNAMED.fullmatch(name)]
    if len({*columns}) != len(columns):
        raise ValueError(f"{title} must have each column once. Received: columns {columns}")
    path, label, classes = _columns_of(columns, spec, title)
    if path is None or not (label or classes) or not rows:
        raise ValueError(
            f"{title} must have the columns path,label or path,label,split, or path and a column "
            "of 0 and 1 for each class, and rows; --path-column and --label-column name others. "
            f"Received: columns {columns}"
        )
    if label is None and len(classes) == 1:
        label = classes[0]
        reading.notes.append(f"the labels are the column {label}, as {path} is the only other one")
    if label:
        labels = _labels([row[label] for row in rows], spec, reading.notes)
    else:
        labels = [
            _flagged(title, number, row, classes)
            for number, row in enumerate(rows, table.first_row)
        ]
        _note_columns(classes, labels, reading.notes)
    files: dict[str, LabelledFile] = {}
    stems: dict[str, dict[str, list[str]]] = {}
    for number, (row, of_image) in enumerate(zip(rows, labels, strict=True), table.first_row):
        name = str(row[path]).strip()
        split = SPLITS.get(str(row["split"]).strip().lower()) if "split" in row else None
        if not name or of_image == "" or ("split" in row and split is None):
            raise ValueError(
                f"Each row of {title} must have a path, a label (--task multilabel allows none) "
                f"and, if there is such a column, a split ({', '.join(SPLITS)}). "
                f"Received in row {number}: {dict(row)}"
            )
        image = _existing(str(root / name), stems, f"{title}, row {number}")
        if image in files:
            raise ValueError(f"{title} must list each file once. Received in row {number}: {image}")
        group = str(row[spec.group_by]).strip() if spec.group_by in columns else None
        files[image] = LabelledFile(image, of_image, split, group)
    found = [name for names in labels for name in ((names,) if type(names) is str else names)]
    return list(files.values()), sorted_classes(found)


def _columns_of(columns, spec, title):
    """The columns of paths and of labels, None where there is none, and else of classes."""
    given = spec.label_column or ""
    wanted = [given] if given in columns else [name.strip() for name in given.split(",") if given]
    for name, flag in [(spec.path_column, "path"), *((name, "label") for name in wanted)]:
        if name is not None and name not in columns:
            raise ValueError(
                f"--{flag}-column ({flag}_column=) must be a column of {title}: "
                f"{', '.join(columns)}. Received: {name}"
            )
    named = {name.lower(): name for name in reversed(columns)}  # As spreadsheets write them.
    path = spec.path_column or next((named[name] for name in _PATHS if name in named), None)
    if wanted:
        return path, *((wanted[0], []) if len(wanted) == 1 else (None, wanted))
    label = next((named[name] for name in _LABELS if named.get(name, path) != path), None)
    kept = (path, label, "split", spec.group_by)
    return path, label, [] if label else [name for name in columns if name not in kept]


def _labels(cells, spec, notes):
    """The label of each cell; a tuple of them in all rows of multi-label data."""
    lists = [_listed(cell) for cell in cells]
    from_text = [cell for cell, found in zip(cells, lists, strict=True) if found and found != cell]
    if from_text:
        notes.append(f"labels such as {from_text[0]} are read as lists")
    separator = spec.label_separator
    if not separator:
        _offer_separator({cell.strip() for cell in cells if isinstance(cell, str)}, notes)
    several = any(found is not None for found in lists) or spec.task == MULTILABEL or separator
    if not several and not any(SEPARATOR in cell for cell in cells):
        return [cell.strip() for cell in cells]
    return [
        split_labels(cell, separator) if found is None else tuple(dict.fromkeys(found))
        for cell, found in zip(cells, lists, strict=True)
    ]


def split_labels(cell: str, separator: str | None = None) -> tuple[str, ...]:
    """Returns the labels in a text, each once; `;` is between them by default."""
    names = map(str.strip, cell.split(separator or SEPARATOR))
    return tuple(dict.fromkeys(filter(None, names)))


def _listed(cell):
    """The items of a list, or of its text as pandas writes it; None for another cell."""
    if not isinstance(cell, str):
        return tuple(filter(None, map(str.strip, cell)))
    text = cell.strip()
    if text == "set()":
        return ()
    if text[:1] not in ("[", "{", "("):
        return None
    text = re.sub(r"\bnp\.\w+\(([^()]*)\)", r"\1", text)  # NumPy's numbers and texts.
    text = re.sub(r"(?<=['\"])\s+(?=['\"])", ", ", text)  # NumPy's arrays.
    try:
        items = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    return tuple(map(str, items)) if isinstance(items, list | tuple | set) else None


def _offer_separator(labels, notes):
    """Notes a separator where a part of a label is another label: "animal,cat" and "animal"."""
    for separator in ("|", ",", " "):
        for label in sorted(labels):
            parts = {*split_labels(label, separator)} - {label}
            if parts & labels and SEPARATOR not in label:
                notes.append(
                    f'labels such as "{label}" look like several: --label-separator "{separator}" '
                    f'(label_separator="{separator}") splits them'
                )
                return


def _note_columns(classes, labels, notes):
    """Notes which columns are classes, and which of them look like none."""
    counts = collections.Counter(name for names in labels for name in names)
    line = f"a class for each column of 0 and 1: {first_names(classes)}"
    if empty := [name for name in classes if not counts[name]]:
        line += f"; left out {', '.join(empty)}: 0 in every row"
    if full := [name for name in classes if counts[name] == len(labels)]:
        line += f"; {', '.join(full)}: 1 in every row; --label-column names the columns to take"
    notes.append(line)


def _existing(image, stems, place):
    """The file of a path, which may be without the suffix."""
    if os.path.isfile(image):
        return image
    folder, stem = os.path.split(image)
    if folder not in stems:
        stems[folder], real = collections.defaultdict(list), _in_any_form(folder)
        for name in sorted(os.listdir(real)) if os.path.isdir(real) else ():
            first, suffix = os.path.splitext(name)
            if suffix.lower() in IMAGE_SUFFIXES or suffix.lower() in OTHER_IMAGE_SUFFIXES:
                stems[folder][composed(first)].append(os.path.join(real, name))
                stems[folder][composed(name)].append(os.path.join(real, name))
    found = stems[folder].get(composed(stem), [])
    if len(found) > 1:
        names = list(map(os.path.basename, found))
        raise ValueError(f"{place}: a path must name one file. Received: {image}: {names}")
    if not found:
        raise ValueError(
            f"{place}: no such file: {image}, with or without a suffix; --data-dir names the "
            "folder of the images"
        )
    return found[0]


def _in_any_form(folder):
    """The folder of a path, whose names may be on disk in another of Unicode's forms."""
    parent, name = os.path.split(folder)
    if os.path.exists(folder) or not name:
        return folder
    parent = _in_any_form(parent)
    names = os.listdir(parent or ".") if os.path.isdir(parent or ".") else []
    found = [other for other in names if composed(other) == composed(name)]
    return os.path.join(parent, found[0] if found else name)


def _flagged(title, number, row, classes):
    """The classes whose column has a 1 in a row."""
    flags = {name: _FLAGS.get(str(row[name]).strip()) for name in classes}
    wrong = [name for name in classes if flags[name] is None]
    if wrong:
        raise ValueError(
            f"Without a column label, {title} must have 0 or 1 in a column for each class; "
            "--label-column names the column of labels, or the columns of the classes with commas "
            f"between. Received in row {number}: "
            + ", ".join(f"{row[name]!r} in {name}" for name in wrong[:5])
        )
    return tuple(name for name in classes if flags[name])


def sorted_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the different class names: in numerical order if all are numbers, else sorted."""
    names = set(names)
    numbers = all(name.isdecimal() for name in names)
    return tuple(sorted(names, key=lambda name: (int(name), name) if numbers else name))
