"""Tables of labelled images."""

from __future__ import annotations

import collections
import csv
import dataclasses
import functools
import html
import io
import itertools
import os
import pathlib
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import NamedTuple

from keras_vit.description.class_labels import MULTICLASS, MULTILABEL, SEPARATOR, composed
from keras_vit.images.listing import has_image_suffix
from keras_vit.images.transcoding import bit_depth_of
from keras_vit.utils.files import TABLE_SUFFIXES
from keras_vit.utils.json_files import parse_json
from keras_vit.utils.safe_text import first_names
from keras_vit.utils.text_files import read_text

from .examples import sorted_classes
from .labelled_images import Things
from .parts import SPLITS, check_one_word, words_for_parts
from .spec import DataSpec, normal_path, path_forms
from .split_record import PARTS
from .things import InFirst

# What other tools write becomes a table of ours.
CONVERT = "python examples/labels_to_csv.py table.csv"
_FLAGS = {"0": False, "1": True, "0.0": False, "1.0": True}  # pandas writes floats.
# The beginning of the text of a list or an object; of parentheses one with a text in it.
_BRACKETS = ("[", "{", "('", '("')
NO_LABEL = "No label in its row of the table."
_MOST_PARTS = 10  # Values of a column that may be parts.
_MOST_FLAGS = 10  # Columns of 0 and 1 that a refusal names.
_FIRST_ROW = 2  # Number of the row after the names of the columns.

Cell = str | tuple[str, ...]  # A tuple of the items of a list in JSON.


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
    """The cells of a table.

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
    if isinstance(value, list):
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
        ValueError: If the first line names no columns, a row has more cells than there are
            columns, or a quotation mark has no other in its line.
    """
    lines = io.StringIO(text, newline="").readlines()
    first = lines[0] if lines else ""
    # What the first line has most of; with another there is no column of the names that are read.
    header, *rows = _rows(lines, max(",;\t", key=first.count), title) or [[]]
    columns = [name.strip() for name in header]
    if any(map(has_image_suffix, columns)):
        raise ValueError(
            f"The first line of {title} must name the columns, such as path,label. Received: "
            f"{', '.join(columns)}, which is a row; {CONVERT} FILE --columns path,label reads a "
            "file without names"
        )
    for number, cells in enumerate(rows, _FIRST_ROW):
        if any(more := cells[len(columns) :]):
            raise ValueError(
                f"{title}, row {number}: cells with a separator must be in quotes. Received: {more}"
            )
    named = [itertools.zip_longest(columns, cells[: len(columns)], fillvalue="") for cells in rows]
    return LabelTable(columns, [*map(dict, named)], _FIRST_ROW)


def _rows(lines, delimiter, title):
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
            f"{title}, row {1 + len(rows)}: quotation marks must be around a whole cell, on "
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
            f"unpacked; {CONVERT} {path} reads lists and JSON. Received: {path}"
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
        table: The table. Its columns are, in any order, `path`, `label`, and if there are splits
            `split`. A `;` separates the labels of a multi-label image, or they are a list in JSON;
            an image without labels has an empty cell.
        title: Name of the table, for errors.
        root: Folder of relative paths.
        reading: Its `DataSpec` has the columns to take, the separator, and the task "multilabel"
            for multi-label data in which every image has exactly one label. It receives notes,
            and the text of each image in the column of groups.

    Raises:
        ValueError: If a column, value or file is missing, a split unknown, or a path listed twice.
    """
    spec = reading.spec
    names = [name for name in table.columns if name]  # A column without a name is not read.
    if len({*names}) != len(names):
        raise ValueError(f"{title} must have each column once. Received: columns {names}")
    path_column, label_columns, split_column = _columns_of(names, table.rows, title, spec)
    if len(label_columns) > 1:
        labels = _labels_by_column(table, title, label_columns, reading.notes)
    else:
        labels = _labels_of(table, title, label_columns[0], reading)
    parts = _parts_of(table, title, split_column)
    excluded = {normal_path(form) for line in spec.exclude for form in path_forms(line)}
    files: dict[str, LabelledFile] = {}
    rows = zip(table.rows, labels, parts, strict=True)
    for number, (row, label, part) in enumerate(rows, table.first_row):
        paths = path_forms(str(row[path_column]))
        if not label and spec.skip_unlabelled:
            reading.skipped.append((paths[-1], NO_LABEL))
            continue
        _check_lines([paths[-1], *all_names([label])], row, title, number)
        image = _image_of(paths, root, excluded, title, number)
        if image in files:
            raise ValueError(
                f"{title} must list each file once, all its labels in a list or with "
                f'"{SEPARATOR}" between; a table of boxes lists it often. Received in row '
                f"{number}: {image}"
            )
        files[image] = LabelledFile(image, label, part)
        if spec.group_by in row:
            reading.group_texts[image] = str(row[spec.group_by]).strip()
    return list(files.values()), sorted_classes(all_names(filter(None, labels)))


def _parts_of(table, title, column):
    """The part of each row; None for all of them where there is no column of parts."""
    if column is None:
        return [None] * len(table.rows)
    words = [str(row[column]).strip() for row in table.rows]
    check_one_word({word: SPLITS[word] for word in words if word in SPLITS}, f"{title}, split,")
    for number, word in enumerate(words, table.first_row):
        if word not in SPLITS:
            raise ValueError(
                f"Each split of {title} must be one of {', '.join(PARTS)}; {CONVERT} {title} reads "
                f"other words. Received in row {number}: {word!r}"
            )
    return [SPLITS[word] for word in words]


def _check_lines(texts, row, title, number):
    """Raises ValueError unless the path and each label of a row are a line of text."""
    if any(len(text.splitlines()) != 1 for text in texts):
        raise ValueError(
            f"Each row of {title} must have a path and a label, each in one line; "
            "--skip-unlabelled leaves rows without a label out, --task multilabel allows them. "
            f"Received in row {number}: {dict(row)}"
        )


def _image_of(paths, root, excluded, title, number):
    """The file of a row, which may be gone if it is excluded."""
    images = [str(root / path) for path in paths]
    if not excluded or excluded.isdisjoint(map(normal_path, (*paths, *images))):
        return _existing(images, f"{title}, row {number}", title)
    return images[-1]


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


def _columns_of(columns, rows, title, spec):
    """The columns of paths, of labels (or of 0 and 1 for each class), and of parts or None."""
    path, labels = spec.path_column or "path", ["label"]
    if spec.label_column in columns:  # A name may have a comma.
        labels = [spec.label_column]
    elif spec.label_column:
        labels = [name.strip() for name in spec.label_column.split(",")]
    split = "split" if "split" in columns and "split" not in labels else None
    others = [name for name in columns if name not in (path, *labels, split, spec.group_by)]
    if split is None and not spec.split:
        _check_no_parts(rows, others, title)
    if rows and {path, *labels} <= {*columns}:
        return path, labels, split
    flags = [name for name in others if all(str(row[name]).strip() in _FLAGS for row in rows)]
    of_path = "" if path in columns else "--path-column COLUMN reads another column of paths; "
    of_label = "--label-column COLUMN reads another of labels; "
    if {*labels} <= {*columns}:
        of_label = ""
    elif flags and len(flags) <= _MOST_FLAGS:
        of_label = f"--label-column {','.join(flags)} reads columns of 0 and 1; "
    raise ValueError(
        f"{title} must have the columns {','.join([path, *labels])} in its first line, and rows; "
        f"{of_path}{of_label}{CONVERT} {title} reads tables of other tools. Received: "
        f"{', '.join(columns) or 'no columns'}, and {len(rows)} rows"
    )


def _check_no_parts(rows, columns, title):
    """Raises ValueError for a column of words for parts, or named as is_valid: it is not read."""
    for name in columns:
        values = sorted({str(row[name]).strip() for row in rows} - {""})
        is_flag = re.sub(r"^is[ _]?", "", name.lower()) in SPLITS.keys() - {name.lower()}
        has_words = 0 < len(values) <= _MOST_PARTS and all(map(words_for_parts, values))
        if is_flag or has_words:
            raise ValueError(
                f"The column of {title} that has the part of each row ({', '.join(PARTS)}) must be "
                f"named split; --split TABLE gives other parts, {CONVERT} {title} --split "
                f"{name} reads this. Received: {name}, with {first_names(values, 3)}"
            )


def _labels_of(table, title, column, reading):
    """The label of each row: a name, or a tuple of names in all rows of multi-label data."""
    spec = reading.spec
    separator = spec.label_separator
    if not separator:
        separator = "\n" if spec.task == MULTICLASS else SEPARATOR  # A text is one line.
    cells = [row[column] for row in table.rows]
    for number, cell in enumerate(cells, table.first_row):
        _check_names(cell, separator, f"{title}, row {number}", title)
    rows_of_several = [
        index for index, cell in enumerate(cells) if isinstance(cell, tuple) or separator in cell
    ]
    if not (rows_of_several or spec.task == MULTILABEL or spec.label_separator):
        return [composed(str(cell).strip()) for cell in cells]
    if not (spec.task or spec.label_separator) and len(rows_of_several) < len(cells):
        first = rows_of_several[0]
        reading.notes.append(
            f'multi-label, as {len(rows_of_several):,} of {len(cells):,} labels are lists or hold "'
            f'{SEPARATOR}", the first {table.rows[first][column]!r:.80} in {title}, row '
            f'{table.first_row + first}; --task multiclass (task="multiclass") takes each text as '
            "one name"
        )
    return [
        distinct_labels(cell.split(separator) if isinstance(cell, str) else cell) for cell in cells
    ]


def _labels_by_column(table, title, classes, notes):
    """The classes whose column has a 1 in each row; a line names those without any."""
    labels = []
    for number, row in enumerate(table.rows, table.first_row):
        flags = {name: _FLAGS.get(str(row[name]).strip()) for name in classes}
        wrong = [f"{row[name]!r} in {name}" for name in classes if flags[name] is None]
        if wrong:
            raise ValueError(
                f"Each column of --label-column must have 0 or 1 in each row of {title}. Received "
                f"in row {number}: {first_names(wrong)}"
            )
        labels.append(distinct_labels(name for name in classes if flags[name]))
    counts = collections.Counter(all_names(labels))
    if empty := [name for name in classes if not counts[composed(name)]]:
        notes.append(f"left out {', '.join(empty)}: 0 in every row")
    return labels


def _check_names(cell, separator, row_title, title):
    """Raises ValueError unless a cell has plain names."""
    names = [cell] if isinstance(cell, str) else cell
    if any(name.strip().startswith(_BRACKETS) for name in names):
        raise ValueError(
            f'{row_title}: a label must be a name, names with "{SEPARATOR}" between, or in JSON a '
            f"list of names; {CONVERT} {title} reads lists and choices that are text. Received: "
            f"{cell!s:.200}"
        )
    if isinstance(cell, str) and separator in cell and html.unescape(cell) != cell:
        raise ValueError(
            f"{row_title}: labels must be plain text, not HTML such as &amp;; {CONVERT} {title} "
            f"writes it as text. Received: {cell:.200}"
        )


def distinct_labels(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the labels of an image, each once, in Unicode's composed form."""
    stripped = (composed(name.strip()) for name in names)
    return tuple(dict.fromkeys(name for name in stripped if name))


def all_names(labels: Iterable[str | tuple[str, ...]]) -> list[str]:
    """Returns the class names in the labels of images."""
    return [name for names in labels for name in ((names,) if isinstance(names, str) else names)]


def _existing(images, row_title, title):
    """The first path that is a file, in either of Unicode's forms."""
    for image in images:
        for path in (image, composed(image), unicodedata.normalize("NFD", image)):
            if os.path.isfile(path):
                return path
    raise ValueError(
        f"{row_title}: no such file: {images[-1]}; --data-dir names the images' folder, and "
        f"{CONVERT} {title} --images FOLDER finds paths without a suffix or in another case"
    )
