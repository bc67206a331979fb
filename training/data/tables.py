"""Tables of images: of labels, ours and other tools', and tables and lists that change the data."""

from __future__ import annotations

import ast
import collections
import contextlib
import csv
import dataclasses
import html
import io
import itertools
import json
import os
import pathlib
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from keras_vit.description.class_labels import MULTICLASS, MULTILABEL, SEPARATOR, composed
from keras_vit.images.listing import has_image_suffix
from keras_vit.utils.files import parse_json
from keras_vit.utils.safe_text import for_csv

from .examples import first_names
from .parts import SPLITS, shared_parts, words_of
from .split_record import PARTS

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".json")
# Columns with the path of an image and with its label, the clearest name first.
_PATHS = ["path", "file_name", "filename", "filepath", "file_path", "image_path", "file", "image"]
_PATHS += ["image_name", "image_id", "img", "id"]
_LABELS = ("label", "labels", "class", "class_name", "category", "choice")
_UNNAMED = re.compile(r"|Unnamed: \d+")  # The index that pandas writes, and reads again.
_FLAGS = {"0": False, "1": True, "0.0": False, "1.0": True}  # pandas writes floats.
# Words in the name of a column that says which part a row is in, and the values of such a column
# that are no words for parts.
_PART_COLUMNS = {*SPLITS, "set", "sub", "partition", "fold", "kfold", "split", "phase"}
_PART_FLAG = re.compile(r"\d(\.0)?|true|false|yes|no|[tfyn]?", re.IGNORECASE)
_OBJECT = re.compile(
    r"\{.*\}$|\[.*,.*\]$|[\[({]\s*(\w+\.\w+\()?['\"]", re.DOTALL
)  # Text of a list or dict.
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)

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
        recorded: Whether the data are a run's, of which excluded images may be gone.
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
    recorded: bool = False
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
    """Returns the text of a value in JSON or a data frame, or the texts in a list of values.

    Objects, and lists that hold objects or lists, are JSON as text.

    Raises:
        ValueError: If they are no JSON, hold themselves or are too deep.
    """
    value = value.tolist() if hasattr(value, "tolist") else value  # NumPy's.
    items = value if isinstance(value, list | tuple | set | frozenset) else ()
    try:
        if any(isinstance(x, dict | list | tuple) for x in (value, *items) if x is not items):
            return json.dumps(value, default=str)
        if items is value:
            return tuple(str(cell_of(item)) for item in items)
    except (RecursionError, TypeError, ValueError) as error:
        raise ValueError(
            "A cell of a table must be a text, a number or a list of them. Received: a "
            f"{type(value).__name__}, {error}"
        ) from error
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else str(value)


def csv_table(text: str, title: str) -> LabelTable:
    """Returns the table in a text with commas, semicolons, tabs or bars between the cells.

    Tabs may separate cells with single quotation marks in them, which are read as they are.

    Args:
        text: The text; its first line has the names of the columns. Excel's line `sep=;` may be
            before it.
        title: Name of the table, for errors.

    Raises:
        ValueError: If the first line names no columns, a row has more cells than there are
            columns, or a quotation mark has no other.
    """
    lines = io.StringIO(text, newline="").readlines()
    first = lines[0] if lines else ""
    # What the first line has most of; a comma in a tie.
    delimiter = max(",;\t|", key=first.count)
    if separator := re.fullmatch(r'"?sep=(.)"?\s*', first, re.IGNORECASE):
        delimiter, lines = separator[1], lines[1:]
    first_row = 3 if separator else 2
    try:
        header, *rows = _rows(lines, delimiter, f"{title}, row", first_row - 1) or [[]]
    except ValueError:
        if delimiter != "\t":
            raise
        cells = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
        whole = [[re.sub('^"(.*)"$', r"\1", cell) for cell in row] for row in cells]
        header, *rows = filter(any, whole)
    columns = [name.strip() for name in header]
    if any(map(has_image_suffix, columns)):
        raise ValueError(
            f"The first line of {title} must name the columns, such as path,label. Received: "
            f"{', '.join(columns)}, which is a row"
        )
    for number, cells in enumerate(rows, first_row):
        if any(more := cells[len(columns) :]):
            raise ValueError(
                f"{title}, row {number}: cells with a separator must be in quotes. Received: {more}"
            )
    named = [itertools.zip_longest(columns, cells[: len(columns)], fillvalue="") for cells in rows]
    return LabelTable(columns, [*map(dict, named)], first_row)


def _rows(lines, delimiter, place, number):
    """The cells of each row of CSV; rows without any, as spreadsheets write, are left out."""
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    rows: list[list[str]] = []
    fewest, end = float("inf"), 0
    try:
        for cells in reader:
            record, end = lines[end : reader.line_num], reader.line_num
            if len(record) > 1 and all(line.count(delimiter) >= fewest for line in record):
                raise csv.Error(f"quoted lines that look like rows: {' '.join(record)[:80]!r}")
            if any(cells):
                rows.append(cells)
                fewest = min(fewest, len(cells) - 1)  # Separators in a row.
    except csv.Error as error:
        raise ValueError(
            f"{place} {number + len(rows)}: quotation marks must be around a whole cell, on one "
            f"line, and doubled inside it; a cell has up to {csv.field_size_limit():,} letters. "
            f"Received: {error}"
        ) from error
    return rows


def _text_of(path: str | os.PathLike) -> str:
    try:
        return pathlib.Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{os.fspath(path)} must be a CSV file in UTF-8. {error}") from error


def read_label_table(path: pathlib.Path, notes: list[str]) -> LabelTable:
    """Returns a CSV file, a file of a JSON object a line, a JSON list of objects or a COCO file.

    Args:
        path: The file.
        notes: Receives a line about boxes that are not used.

    Raises:
        ValueError: If the file is damaged.
    """
    text, suffix = _text_of(path), path.suffix.lower()
    if suffix not in (".jsonl", ".json"):
        return csv_table(text, str(path))
    if suffix == ".jsonl":
        lines = enumerate(text.split("\n"), 1)
        found = [parse_json(line, f"{path}, line {n}") for n, line in lines if line.strip()]
    else:
        content = parse_json(text, f"{path} (or .jsonl, with an object a line)")
        found = _coco_rows(content, path, notes) if isinstance(content, dict) else content
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise ValueError(f"{path} must have JSON objects. Received: {str(found):.80}")
    columns = list(dict.fromkeys(name for row in found for name in row))
    rows = [{name: cell_of(row.get(name)) for name in columns} for row in found]
    return LabelTable(columns, rows, 1)


def _coco_rows(content, path, notes):
    """The images of a COCO file with their categories, a list where it is not one."""
    try:
        images, categories = content["images"], content["categories"]
        # Programs write numbers or their texts.
        names = {str(category["id"]): str(category["name"]) for category in categories}
        labels: dict[str, list[str]] = {str(image["id"]): [] for image in images}
        for annotation in content["annotations"]:
            label = names[str(annotation["category_id"])]
            labels[str(annotation["image_id"])].append(label)
        rows = [
            (image["file_name"], [*dict.fromkeys(labels[str(image["id"])])]) for image in images
        ]
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{path} must be a list of objects with path and label, or a COCO file: images with id "
            "and file_name, categories with id and name, and annotations with the image_id and "
            f"category_id of these. Received: one without {error}"
        ) from error
    if len(labels) < len(images) or len(names) < len(categories):
        raise ValueError(f"{path} must have each id of an image or a category once.")
    if any("bbox" in annotation for annotation in content["annotations"]):
        notes.append(f"the labels in {path.name} are the categories of an image's boxes")
    return [{"path": name, "label": found if len(found) != 1 else found[0]} for name, found in rows]


def listed_files(
    table: LabelTable, title: str, root: pathlib.Path, reading: Reading
) -> tuple[list[LabelledFile], tuple[str, ...]]:
    """Returns the images listed in the rows of a table, and its class names.

    Args:
        table: The table. Its columns are, in any order and case, `path`, `label`, and if there
            are splits `split`; or as other tools name them. The labels of a multi-label image are
            a list, or a `;` separates them; an image without labels has an empty cell. Or `path`, a
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
    spec, rows, first_row = reading.spec, table.rows, table.first_row
    columns = [name for name in table.columns if not _UNNAMED.fullmatch(name)]
    if len({*columns}) != len(columns):
        raise ValueError(f"{title} must have each column once. Received: columns {columns}")
    path, label, split, classes = _columns_of(columns, spec, title)
    used = {path, label, split, spec.group_by, *(classes if spec.label_column else ())}
    others = [name for name in columns if name not in used]
    unread = _part_columns(rows, others, reading.notes, bool(classes))
    classes = [name for name in classes if name not in unread]
    if path is None or not (label or classes) or not rows:
        raise ValueError(
            f"{title} must have the columns path,label or path and a column of 0 and 1 for each "
            "class, named in its first line, and rows; --path-column and --label-column name "
            f"others. Received: {columns}"
        )
    if label is None and len(classes) == 1:
        label = classes[0]
        reading.notes.append(f"the labels are the column {label}, as {path} is the only other one")
    if label:
        places = [f"{title}, row {number}" for number in range(first_row, first_row + len(rows))]
        labels = _labels([row[label] for row in rows], places, spec, reading.notes)
    else:
        labels = [
            _flagged(title, number, row, classes) for number, row in enumerate(rows, first_row)
        ]
        _note_columns(classes, labels, reading.notes)
    labels = [
        composed(found) if isinstance(found, str) else tuple(map(composed, found))
        for found in labels
    ]
    if split:
        reading.notes += shared_parts({str(row[split]).strip().lower() for row in rows})
    class_names = sorted_classes(all_names(labels))
    if line := _question_numbers(class_names, len(rows)):
        reading.notes.append(line)
    excluded = {*map(_normal, spec.exclude)}
    files: dict[str, LabelledFile] = {}
    stems: dict[str, dict[str, list[str]]] = {}
    for number, (row, of_image) in enumerate(zip(rows, labels, strict=True), first_row):
        name = str(row[path]).strip()
        part = SPLITS.get(str(row[split]).strip().lower()) if split else None
        lines = [text.splitlines() for text in (name, *all_names([of_image]))]
        if not all(len(text) == 1 for text in lines) or (split and part is None):
            raise ValueError(
                f"Each row of {title} must have a path, a label (--task multilabel allows none), "
                f"and a split ({', '.join(PARTS)}) if there are any, each in one line. Received in "
                f"row {number}: {dict(row)}"
            )
        if "\\" in name and not os.path.isfile(root / name):
            name = name.replace("\\", "/")  # As Windows writes it.
        image = str(root / name)
        if excluded.isdisjoint((_normal(name), _normal(image))):  # Else it may be gone.
            image = _existing(image, stems, f"{title}, row {number}")
        if image in files:
            raise ValueError(
                f"{title} must list each file once, with several labels as a list or with "
                f'"{SEPARATOR}" between; a table of boxes lists it often. Received in row '
                f"{number}: {image}"
            )
        group = str(row[spec.group_by]).strip() if spec.group_by in columns else None
        files[image] = LabelledFile(image, of_image, part, group)
    return list(files.values()), class_names


def all_names(labels: Iterable[str | tuple[str, ...]]) -> list[str]:
    """Returns the class names in the labels of images."""
    return [name for names in labels for name in ((names,) if isinstance(names, str) else names)]


def _question_numbers(class_names, count):
    """A line about classes of `count` images that may be quantities; None where they are not."""
    if not all(_NUMBER.fullmatch(name.replace(",", ".")) for name in class_names):
        return None
    whole = all(re.fullmatch(r"\d+(\.0)?", name) for name in class_names)
    if whole and (len(class_names) <= 2 or 5 * len(class_names) <= count):
        return None
    return (
        f"the classes are {len(class_names)} numbers ({first_names(class_names, 3)}): right for "
        "numbered classes, wrong for quantities such as ages or prices"
    )


def _part_columns(rows, columns, notes, is_one_hot):
    """The columns that say which part a row is in, but are not read; a line names them."""
    unread = []
    for name in columns:
        values = sorted({str(row[name]).strip() for row in rows} - {""})
        is_named = not _PART_COLUMNS.isdisjoint(w.removeprefix("is") for w in words_of(name))
        if is_one_hot and _FLAGS.keys() >= {*values}:  # Else it may be a class, as test_tube.
            is_named = is_named and name.lower().startswith("is")
        flags = is_named and all(map(_PART_FLAG.fullmatch, values))
        is_words = all(not SPLITS.keys().isdisjoint(words_of(value)) for value in values)
        if values and (flags or is_words):
            unread.append(name)
            notes.append(
                f"the column {name} ({first_names(values, 3)}) is not read: a column named split "
                f"has the part of each row ({', '.join(PARTS)})"
            )
    return unread


def _columns_of(columns, spec, title):
    """The columns of paths, labels and parts, None where there is none, and else of classes."""
    given = spec.label_column or ""
    wanted = [given] if given in columns else [name.strip() for name in given.split(",") if given]
    for name, flag in [(spec.path_column, "path"), *((name, "label") for name in wanted)]:
        if name is not None and name not in columns:
            raise ValueError(
                f"--{flag}-column must be one of {title}: {', '.join(columns)}. Received: {name}"
            )
    named = {name.lower(): name for name in reversed(columns)}  # As spreadsheets write them.
    path = spec.path_column or next((named[name] for name in _PATHS if name in named), None)
    split = "split" if "split" in columns else named.get("split")
    split = None if split in wanted else split
    if wanted:
        return path, *((wanted[0], split, []) if len(wanted) == 1 else (None, split, wanted))
    label = next((named[name] for name in _LABELS if named.get(name, path) != path), None)
    kept = (path, label, split, spec.group_by)
    return path, label, split, [] if label else [name for name in columns if name not in kept]


def _labels(cells, places, spec, notes):
    """The label of each cell; a tuple of them in all rows of multi-label data."""
    lists = [_listed(cell, place) for cell, place in zip(cells, places, strict=True)]
    texts = [cell.strip() for cell, found in zip(cells, lists, strict=True) if found is None]
    separator = spec.label_separator
    if not separator:
        _offer_separator({*texts} - {""}, notes)
        separator = "\n" if spec.task == MULTICLASS else SEPARATOR  # A text is one line.
    several = [
        (place, cell)
        for place, cell, found in zip(places, cells, lists, strict=True)
        if found is not None or separator in html.unescape(cell)  # Not cats &amp; dogs.
    ]
    if not (several or spec.task == MULTILABEL or spec.label_separator):
        return texts
    if texts and several and spec.task is None and not spec.label_separator:
        place, cell = several[0]
        notes.append(
            f'multi-label, as {len(several):,} of {len(cells):,} labels are lists or hold "'
            f'{SEPARATOR}", the first {cell!r:.80} in {place}; --task multiclass '
            '(task="multiclass") takes each text as one name'
        )
    return [
        split_labels(html.unescape(cell), separator)
        if found is None
        else tuple(dict.fromkeys(found))
        for cell, found in zip(cells, lists, strict=True)
    ]


def split_labels(cell: str, separator: str | None = None) -> tuple[str, ...]:
    """Returns the labels in a text, each once; `;` is between them by default."""
    names = map(str.strip, cell.split(separator or SEPARATOR))
    return tuple(dict.fromkeys(filter(None, names)))


def _listed(cell, place):
    """The items of a list or of Label Studio's choices, also as text; None for another cell."""
    items = cell
    if isinstance(cell, str):
        text = cell.strip()
        if text[:1] not in ("[", "{", "("):
            return None
        items = None
        if not re.search(r"['\"]\s+['\"]", text):  # NumPy's array, whose texts Python would join.
            with contextlib.suppress(
                ValueError, SyntaxError, TypeError, MemoryError, RecursionError
            ):
                items = ast.literal_eval(text)
            with contextlib.suppress(ValueError):
                items = parse_json(text, place)
        # A name such as [none] or (2019), but no text of a list.
        if not isinstance(items, list | tuple | dict) and not _OBJECT.match(text):
            return None
    if isinstance(items, dict) and [*items] == ["choices"]:
        items = items["choices"]
    if not isinstance(items, list | tuple) or any(
        isinstance(item, dict | list | tuple) for item in items
    ):
        raise ValueError(
            f"{place}: a label must be a name, a list of names with commas between, or "
            f'{{"choices": [...]}} of names. Received: {cell!s:.200}'
        )
    return tuple(filter(None, (str(cell_of(item)).strip() for item in items)))


def _offer_separator(labels, notes):
    """Notes a separator where labels look like several names.

    They have a bar; or all have a comma; or a part of a label is another label, as in "animal,cat"
    and "animal".
    """
    for separator in ("|", ",", " "):
        inside = [label for label in sorted(labels) if len(split_labels(label, separator)) > 1]
        if separator == " " or (separator == "," and len(inside) < len(labels)):
            inside = [label for label in inside if labels & {*split_labels(label, separator)}]
        if inside and SEPARATOR not in inside[0]:
            notes.append(
                f'labels such as "{inside[0]}" look like several: --label-separator "{separator}" '
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
            if has_image_suffix(name):
                for known in map(composed, (os.path.splitext(name)[0], name)):
                    stems[folder][known].append(os.path.join(real, name))
                    stems[folder][known.lower() + "/"].append(os.path.join(real, name))
    stem = composed(stem)  # A slash, which is in no name, is behind the names of any case.
    found = stems[folder].get(stem) or stems[folder].get(stem.lower() + "/", [])
    if len(found) > 1:
        raise ValueError(f"{place}: a path must name one file. Received: {found}")
    if not found:
        raise ValueError(f"{place}: no such file: {image}; --data-dir names the images' folder")
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
    wrong = [f"{row[name]!r} in {name}" for name in classes if flags[name] is None]
    if wrong:
        raise ValueError(
            f"{title} must have a column label, or 0 or 1 in a column for each class; "
            "--label-column names these columns, with commas between. Received in row "
            f"{number}: {first_names(wrong)}"
        )
    return tuple(name for name in classes if flags[name])


def sorted_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the different class names: in numerical order if all are numbers, else sorted."""
    names = set(names)
    numbers = all(map(_NUMBER.fullmatch, names))
    return tuple(sorted(names, key=lambda name: (float(name), name) if numbers else name))


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
        table = _text_of(table).splitlines()
    return tuple(line for line in table if line.strip())


def read_table(names: Sequence[str], lines: Sequence[str], flag: str) -> dict[str, str]:
    """Returns the value of each path in a table.

    Args:
        names: The images of the data; see `relative_names`.
        lines: The lines; the first has the columns `path` and the flag's, and maybe others.
        flag: "split" or "labels".

    Raises:
        ValueError: If a column is missing, a path is missing or listed twice, or the data do not
            have an image.
    """
    column, title = _GIVEN[flag], f"The table of --{flag} ({flag}=)"
    columns, rows, first_row = csv_table("\n".join(lines), title)
    named = {name.lower(): name for name in reversed(columns)}
    if not {"path", column} <= named.keys():
        raise ValueError(f"{title} must have the columns path,{column}. Received: {columns}")
    found: dict[str, str] = {}
    known = {*names}
    for number, row in enumerate(rows, first_row):
        path = str(row[named["path"]]).strip()
        # As Windows writes it.
        name = _normal(path if _normal(path) in known else path.replace("\\", "/"))
        if name == "." or name in found:
            raise ValueError(
                f"{title} must have a path in each row, each once. "
                f"Received in row {number}: {path!r}"
            )
        found[name] = composed(str(row[named[column]]).strip())
    if unknown := sorted(found.keys() - known):
        raise ValueError(
            f"{title} must have images of the data, by their paths relative to it, such as "
            f"{[*names[:1]]}. Received: {first_names(unknown, 3)}, which the data do not have"
        )
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


def left_out(names: Sequence[str], paths: Sequence[str], reading: Reading) -> list[bool]:
    """Returns whether each image is left out.

    Args:
        names: The images; see `relative_names`.
        paths: Their whole paths.
        reading: Its data, whose `exclude` has paths relative to them, or whole ones.

    Raises:
        ValueError: If the data have no such image, and are not a run's.
    """
    spec = reading.spec
    wanted, whole = set(map(_normal, spec.exclude)), [*map(_normal, paths)]
    unused = sorted(wanted.difference(names, whole))
    if unused and not reading.recorded:
        text = first_names(unused)
        raise ValueError(
            f"Excluded images must be in the data. Received: {spec.data}, without {text}"
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
    table = read_table(names, lines, "split")
    known = {**SPLITS, "": ""}
    parts = [known.get(table[name].lower()) if name in table else None for name in names]
    wrong = [
        f"{table[name]!r} of {name}" if name in table else f"no row of {name}"
        for name, part, out in zip(names, parts, is_left_out, strict=True)
        if part is None and not (out and name not in table)
    ]
    if wrong:
        raise ValueError(
            f"The table of --split (split=) must have a part ({', '.join(PARTS)}) of every image. "
            f"Received: {first_names(wrong, 3)}"
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
    table = read_table(names, lines, "labels")
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
