"""Tables of labelled images, ours and other tools'."""

from __future__ import annotations

import collections
import contextlib
import csv
import dataclasses
import functools
import html
import io
import itertools
import os
import pathlib
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from keras_vit.description.class_labels import MULTICLASS, MULTILABEL, SEPARATOR, composed
from keras_vit.images.listing import has_image_suffix
from keras_vit.images.transcoding import bit_depth_of
from keras_vit.utils.json_files import parse_json
from keras_vit.utils.text_files import read_text

from .examples import first_names, sorted_classes
from .parts import SPLITS, shared_parts, words_for_parts
from .spec import DataSpec, normal_path, path_forms
from .split_record import PARTS
from .things import InFirst, Things

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl")
OTHER_LISTS = "examples/labels_to_csv.py makes a table of other lists"
# Columns with the path of an image and with its label, the clearest name first.
_PATHS = (
    *("path", "file_name", "filename", "filepath", "file_path", "image_path"),
    *("file", "image", "image_name", "image_id", "img", "id"),
)
_LABELS = ("label", "labels", "class", "class_name", "category", "choice")
_UNNAMED = re.compile(r"|Unnamed: \d+")  # The index that pandas writes, and reads again.
_FLAGS = {"0": False, "1": True, "0.0": False, "1.0": True}  # pandas writes floats.
# The beginning of a list or an object; of parentheses one with a text in it.
_BRACKETS = ("[", "{", "('", '("')
_MOST_PARTS = 10  # Values of a column that may be parts.

Cell = str | tuple[str, ...]  # A tuple of the items of a list.


class LabelledFile(NamedTuple):
    """An image file with its label; `split` is None for data without splits.

    The labels of a multi-label image are a tuple, which may be empty.
    """

    path: str
    label: str | tuple[str, ...]
    split: str | None


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
        class_notes: Lines about the classes, shown with them.
        bit_depth: Bits of the values of 16-bit images in records; None where that is not stored.
        largest_value: The largest value of 16-bit images; 0 where there are none, or nothing was
            decoded.
        group_texts: The text that names the group of each image file, from a table; "" for none.
        log: See `find_things`.
        in_first: See `find_things`.
        things: The things of these images, where they are known; else they are looked for.
    """

    spec: DataSpec
    verify: bool = True
    min_classes: int = 2
    labelled: bool = True
    download: bool = True
    one_part: bool = False
    recorded: bool = False
    skipped: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    class_notes: list[str] = dataclasses.field(default_factory=list)
    bit_depth: int | None = None
    largest_value: int = 0
    group_texts: dict[str, str] = dataclasses.field(default_factory=dict)
    log: Callable[[str], None] | None = None
    in_first: InFirst | None = None
    things: Things | None = None

    def found_bit_depth(self) -> int | None:
        """Returns the bits of 16-bit images, and notes a line on them; None if they are unknown.

        They are those that the data need, as only the high 8 of them are read.
        """
        given, largest = self.spec.bit_depth, self.largest_value
        if not largest:
            return given or self.bit_depth
        needed = bit_depth_of(largest)
        bit_depth = given or needed
        line = f"16-bit images have values up to {largest:,}, read as {bit_depth} bits"
        if needed > bit_depth:
            line += f": all above {2**bit_depth - 1:,} is white"
        elif needed < bit_depth:
            line += f": they are dark, as {needed} bits would hold them"
        elif given is None:
            line += "; --bit-depth N (bit_depth=N) reads others"
        self.notes.append(line)
        return bit_depth


OPTIONS_OF_READING = {
    *("verify", "min_classes", "labelled", "download", "log", "in_first", "things"),
}


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


def cell_of(value: object) -> Cell:
    """Returns the text of a value in JSON, or the texts in a list of values."""
    if isinstance(value, dict) and [*value] == ["choices"]:  # Label Studio's.
        value = value["choices"]
    if isinstance(value, list):
        return tuple(str(cell_of(item)) for item in value)
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else str(value)


def csv_table(text: str, title: str) -> LabelTable:
    """Returns the table in a text with commas, semicolons, tabs or bars between the cells.

    Args:
        text: The text; its first line has the names of the columns. Excel's line `sep=;` may be
            before it.
        title: Name of the table, for errors.

    Raises:
        ValueError: If the first line names no columns, a row has more cells than there are
            columns, or a quotation mark has no other in its line.
    """
    lines = io.StringIO(text, newline="").readlines()
    first = lines[0] if lines else ""
    # What the first line has most of; a comma in a tie.
    delimiter = max(",;\t|", key=first.count)
    if separator := re.fullmatch(r'"?sep=(.)"?\s*', first, re.IGNORECASE):
        delimiter, lines = separator[1], lines[1:]
    first_row = 3 if separator else 2
    header, *rows = _rows(lines, delimiter, title, first_row - 1) or [[]]
    columns = [name.strip() for name in header]
    if any(map(has_image_suffix, columns)):
        raise ValueError(
            f"The first line of {title} must name the columns, such as path,label. Received: "
            f"{', '.join(columns)}, which is a row; {OTHER_LISTS}"
        )
    for number, cells in enumerate(rows, first_row):
        if any(more := cells[len(columns) :]):
            raise ValueError(
                f"{title}, row {number}: cells with a separator must be in quotes. Received: {more}"
            )
    named = [itertools.zip_longest(columns, cells[: len(columns)], fillvalue="") for cells in rows]
    return LabelTable(columns, [*map(dict, named)], first_row)


def _rows(lines, delimiter, title, number):
    """The cells of each line of CSV; lines without any, as spreadsheets write, are left out."""
    rows: list[list[str]] = []
    try:
        for line in lines:  # One by one: a mark without another would swallow the lines below.
            # A space before a quotation mark is no part of the cell; elsewhere it may be.
            skips, form = '"' in line, {"delimiter": delimiter, "strict": True}
            (cells,) = csv.reader([line], skipinitialspace=skips, **form)
            if any(cells):
                rows.append(cells)
    except csv.Error as error:
        raise ValueError(
            f"{title}, row {number + len(rows)}: quotation marks must be around a whole cell, on "
            "one line, and doubled inside it; a cell has up to "
            f"{csv.field_size_limit():,} letters. Received: {error}"
        ) from error
    return rows


def read_label_table(path: pathlib.Path) -> LabelTable:
    """Returns a CSV file, or a file of a JSON object a line.

    Raises:
        ValueError: If there is no such file, or it is neither of these or damaged.
    """
    suffix = path.suffix.lower()
    if not path.is_file():
        raise ValueError(
            "The data must be a folder, a CSV file, tfrecords:FOLDER or tfds:NAME. "
            f"Received: {path}; there is no such folder or file"
        )
    if suffix not in TABLE_SUFFIXES:
        raise ValueError(
            f"Data in a file must be a table ({', '.join(TABLE_SUFFIXES)}), and an archive be "
            f"unpacked; {OTHER_LISTS}. Received: {path}"
        )
    text = read_text(path)
    if suffix != ".jsonl":
        return csv_table(text, str(path))
    lines = enumerate(text.split("\n"), 1)
    objects = [parse_json(line, f"{path}, line {n}") for n, line in lines if line.strip()]
    if not all(isinstance(row, dict) for row in objects):
        raise ValueError(f"{path} must have JSON objects. Received: {str(objects):.80}")
    columns = list(dict.fromkeys(name for row in objects for name in row))
    rows = [{name: cell_of(row.get(name)) for name in columns} for row in objects]
    return LabelTable(columns, rows, 1)


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
            each guess, and the text of each image in the column of groups.

    Raises:
        ValueError: If a column, value or file is missing, a split unknown, or a path listed twice.
    """
    spec = reading.spec
    names = [name for name in table.columns if not _UNNAMED.fullmatch(name)]
    if len({*names}) != len(names):
        raise ValueError(f"{title} must have each column once. Received: columns {names}")
    columns = _columns_of(names, table.rows, title, reading)
    if columns.label is None:
        labels = _labels_by_column(table, title, columns.classes, reading.notes)
    else:
        labels = _labels_of(table, title, columns.label, reading)
    class_names = sorted_classes(all_names(labels))
    words = [str(row.get(columns.split, "")).strip().lower() for row in table.rows]
    reading.notes += shared_parts(words)
    excluded = {normal_path(form) for line in spec.exclude for form in path_forms(line)}
    images_in = functools.cache(_images_by_name)
    files: dict[str, LabelledFile] = {}
    rows = zip(table.rows, labels, words, strict=True)
    for number, (row, label, word) in enumerate(rows, table.first_row):
        paths, part = path_forms(str(row[columns.path])), SPLITS.get(word)
        texts = [paths[-1], *all_names([label])]
        if any(len(text.splitlines()) != 1 for text in texts) or (columns.split and part is None):
            raise ValueError(
                f"Each row of {title} must have a path, a label (--task multilabel allows none), "
                f"and a split ({', '.join(PARTS)}) if there are any, each in one line. Received in "
                f"row {number}: {dict(row)}"
            )
        images = [str(root / path) for path in paths]
        image, forms = images[-1], map(normal_path, (*paths, *images))
        if not excluded or excluded.isdisjoint(forms):  # Else it may be gone.
            image = _existing(images, images_in, f"{title}, row {number}")
        if image in files:
            raise ValueError(
                f"{title} must list each file once, all its labels in a list or with "
                f'"{SEPARATOR}" between; a table of boxes lists it often. Received in row '
                f"{number}: {image}"
            )
        files[image] = LabelledFile(image, label, part)
        if spec.group_by in row:
            reading.group_texts[image] = str(row[spec.group_by]).strip()
    return list(files.values()), class_names


def check_listed_once(files: Iterable[LabelledFile], title: str) -> None:
    """Raises ValueError if a table lists a file twice, by whatever paths and links.

    Args:
        files: The files of the table.
        title: Name of the table, for the error.
    """
    real_folder = functools.cache(os.path.realpath)
    listed: dict[str, str] = {}
    for file in files:
        real = os.path.join(real_folder(os.path.dirname(file.path)), os.path.basename(file.path))
        real = os.path.realpath(real) if os.path.islink(real) else real
        if real in listed:
            raise ValueError(
                f"{title} must list each file once, by one path. Received: {listed[real]} and "
                f"{file.path}, which are one file"
            )
        listed[real] = file.path


class Columns(NamedTuple):
    """What the columns of a table are.

    Args:
        path: The column of paths.
        label: The column of labels; None where there is a column for each class.
        split: The column of parts; None without one.
        classes: The columns of the classes, where there is no column of labels.
    """

    path: str
    label: str | None
    split: str | None
    classes: list[str]


def _columns_of(columns, rows, title, reading):
    """The columns that the flags name, or that have the names of other tools."""
    spec = reading.spec
    label_columns = _named_labels(columns, title, spec)
    path = spec.path_column or _first_column(_PATHS, columns)
    split = _first_column(["split"], [name for name in columns if name not in label_columns])
    label = _first_column(_LABELS, [name for name in columns if name != path])
    if label_columns:
        label = label_columns[0] if len(label_columns) == 1 else None
    used = (path, label, split, spec.group_by, *label_columns)
    others = [name for name in columns if name not in used]
    if split is None and not spec.split:
        _check_no_parts(rows, others, title)
    classes = label_columns or others
    is_single = label is None and not label_columns and len(others) == 1
    if is_single and spec.task != MULTILABEL and _are_flags(rows, others[0]):
        raise ValueError(
            f"{title} must have a column label, or columns of 0 and 1 for several classes: "
            f"--label-column {others[0]} (label_column=) reads the 0 and 1 of the only other "
            f"column as two classes. Received: {columns}"
        )
    if path is None or not (label or classes) or not rows:
        raise ValueError(
            f"{title} must have the columns path,label or path and a column of 0 and 1 for each "
            "class, named in its first line, and rows; --path-column and --label-column name "
            f"others. Received: {columns}"
        )
    return Columns(path, label, split, classes)


def _are_flags(rows, column):
    return all(str(row[column]).strip() in _FLAGS for row in rows)


def _named_labels(columns, title, spec):
    """The columns of --label-column; raises ValueError if a flag names a missing column."""
    labels = [name.strip() for name in (spec.label_column or "").split(",") if name]
    if spec.label_column in columns:  # A name may have a comma.
        labels = [spec.label_column]
    paths = [] if spec.path_column is None else [spec.path_column]
    for flag, names in (("label", labels), ("path", paths)):
        for name in names:
            if name not in columns:
                raise ValueError(
                    f"--{flag}-column must be one of {title}: {', '.join(columns)}. "
                    f"Received: {name}"
                )
    return labels


def _first_column(names, columns):
    """The first column that has one of the names, in any case as in spreadsheets; else None."""
    by_name = {column.lower(): column for column in reversed(columns)}
    by_name |= {column: column for column in columns}
    return next((by_name[name] for name in names if name in by_name), None)


def _check_no_parts(rows, columns, title):
    """Raises ValueError for a column of words for parts, or named as is_valid: it is not read."""
    for name in columns:
        values = sorted({str(row[name]).strip() for row in rows} - {""})
        is_flag = re.sub(r"^is[ _]?", "", name.lower()) in SPLITS.keys() - {name.lower()}
        has_words = 0 < len(values) <= _MOST_PARTS and all(map(words_for_parts, values))
        if is_flag or has_words:
            raise ValueError(
                f"The column of {title} that has the part of each row ({', '.join(PARTS)}) must be "
                f"named split; --split TABLE gives other parts. Received: {name}, with "
                f"{first_names(values, 3)}"
            )


def _labels_of(table, title, column, reading):
    """The label of each row: a name, or a tuple of names in all rows of multi-label data."""
    spec = reading.spec
    cells = [
        _names_in(row[column], f"{title}, row {number}")
        for number, row in enumerate(table.rows, table.first_row)
    ]
    separator = spec.label_separator
    if not separator:
        separator = "\n" if spec.task == MULTICLASS else SEPARATOR  # A text is one line.
    rows_of_several = [
        index
        for index, cell in enumerate(cells)
        if isinstance(cell, list) or separator in html.unescape(cell)  # Not cats &amp; dogs.
    ]
    if not (rows_of_several or spec.task == MULTILABEL or spec.label_separator):
        return [composed(cell) for cell in cells]
    if not (spec.task or spec.label_separator) and len(rows_of_several) < len(cells):
        first = rows_of_several[0]
        reading.notes.append(
            f'multi-label, as {len(rows_of_several):,} of {len(cells):,} labels are lists or hold "'
            f'{SEPARATOR}", the first {table.rows[first][column]!r:.80} in {title}, row '
            f'{table.first_row + first}; --task multiclass (task="multiclass") takes each text as '
            "one name"
        )
    return [
        distinct_labels(html.unescape(cell).split(separator) if isinstance(cell, str) else cell)
        for cell in cells
    ]


def _labels_by_column(table, title, classes, notes):
    """The classes whose column has a 1 in each row; a line names the columns."""
    labels = []
    for number, row in enumerate(table.rows, table.first_row):
        flags = {name: _FLAGS.get(str(row[name]).strip()) for name in classes}
        wrong = [f"{row[name]!r} in {name}" for name in classes if flags[name] is None]
        if wrong:
            raise ValueError(
                f"{title} must have a column label, or 0 or 1 in a column for each class; "
                "--label-column names these columns, with commas between. Received in row "
                f"{number}: {first_names(wrong)}"
            )
        labels.append(distinct_labels(name for name in classes if flags[name]))
    counts = collections.Counter(all_names(labels))
    line = f"a class for each column of 0 and 1: {first_names(classes)}"
    if empty := [name for name in classes if not counts[composed(name)]]:
        line += f"; left out {', '.join(empty)}: 0 in every row"
    notes.append(line)
    return labels


def _names_in(cell, row_title):
    """The text of a cell, or the names of a list, also of one that a program wrote as text."""
    if isinstance(cell, str):
        cell = cell.strip()
        if not cell.startswith(_BRACKETS):
            return cell
        with contextlib.suppress(ValueError):  # Python writes its lists with single marks.
            marks = cell if '"' in cell else cell.replace("'", '"')
            cell = cell_of(parse_json(marks, row_title))
    if isinstance(cell, str) or any(name.startswith(_BRACKETS) for name in cell):
        raise ValueError(
            f"{row_title}: a label must be a name, a list of names with commas between, or "
            f'{{"choices": [...]}} of names. Received: {cell!s:.200}'
        )
    return [*cell]


def distinct_labels(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the labels of an image, each once, in Unicode's composed form."""
    stripped = (composed(name.strip()) for name in names)
    return tuple(dict.fromkeys(name for name in stripped if name))


def all_names(labels: Iterable[str | tuple[str, ...]]) -> list[str]:
    """Returns the class names in the labels of images."""
    return [name for names in labels for name in ((names,) if isinstance(names, str) else names)]


def _existing(images, images_in, row_title):
    """The first path of a file; the last may be in another case or without the suffix."""
    for image in images:
        if os.path.isfile(image):
            return image
    folder, name = os.path.split(image)
    files = images_in(folder)[composed(name).lower()]
    if len(files) > 1:
        raise ValueError(f"{row_title}: a path must name one file. Received: {files}")
    if not files:
        raise ValueError(f"{row_title}: no such file: {image}; --data-dir names the images' folder")
    return files[0]


def _images_by_name(folder):
    """The images of a folder by name and by stem, in small letters."""
    files = collections.defaultdict(list)
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if has_image_suffix(name):
            for form in (os.path.splitext(name)[0], name):
                files[composed(form).lower()].append(os.path.join(folder, name))
    return files
