"""A table `path,label,split` from the lists and tables that other tools write.

    python labels_to_csv.py table.csv train.csv --images train
    python labels_to_csv.py table.csv train=train.txt test=test.txt --columns path,,label
    python labels_to_csv.py table.csv legend.csv --path image --label emotion

Read are text with commas, semicolons, tabs, bars or blanks between the cells, JSON (a list of
objects) and JSON lines. The program finds columns by the names that tools give them, parts by their
words, and files without their suffix, and shows what it found: read that before you train. What it
cannot read ends it with a line.

A list without a header needs `--columns`: the names of its columns, of which those called as the
columns of paths, labels and parts are read; a name may occur twice. `--names classes.txt` has a
name a line, numbered from 0, or a number and its name. Several lists are the parts of the data, by
the word before the equals sign.
"""

import argparse
import collections
import csv
import html
import json
import os
import pathlib
import re
import sys
import unicodedata
import urllib.parse

# Names of columns in small letters, the clearest first.
PATHS = (
    *("path", "file_name", "filename", "filepath", "file_path", "image_path"),
    *("file", "image", "image_name", "image_id", "img", "id"),
)
LABELS = ("label", "labels", "class", "class_name", "category", "choice")
SPLITS = ("split", "set", "usage", "is_valid", "is_test")
PARTS = {
    "train": ("train", "training", "trainset"),
    "validation": ("val", "valid", "validation", "dev", "eval", "evaluation"),
    "calibration": ("calibration",),
    "test": ("test", "testing", "holdout", "publictest", "privatetest"),
}
PART_OF = {word: part for part, words in PARTS.items() for word in words}
# Words of a column that says for one part whether a row is in it.
YES, NO = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")
FLAGS = {"0": False, "0.0": False, "1": True, "1.0": True}
MARKS = {"utf-8-sig": b"\xef\xbb\xbf", "utf-16": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}


def read_text(path, encoding):
    """Returns the text of a file, by the mark at its beginning or else in an encoding."""
    content = path.read_bytes()
    encoding = next((name for name in MARKS if content.startswith(MARKS[name])), encoding)
    try:
        return content.decode(encoding).lstrip("\ufeff")
    except UnicodeDecodeError as error:
        sys.exit(f"{path} is not {encoding}: {error}; --encoding cp1252 reads files of old Excel")


def read_rows(path, given):
    """Returns the names of the columns of a table, its rows, and what it is."""
    text = read_text(path, given.encoding)
    if path.suffix.lower() in (".json", ".jsonl"):
        return read_json(path, text)
    lines = [line for line in text.splitlines() if line.strip()]
    excel = re.fullmatch(r'"?sep=(.)"?', lines[0].strip(), re.IGNORECASE) if lines else None
    lines = lines[1:] if excel else lines
    if not lines:
        return [], [], ""
    delimiter = excel[1] if excel else delimiter_of(lines[0])
    rows = []
    for number, line in enumerate(lines, 1):  # One by one: an open mark would swallow the rest.
        try:
            (cells,) = csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True)
        except csv.Error as error:
            sys.exit(
                f"{path}, line {number}: {error}; a cell must be in one line. Received: {line}"
            )
        rows.append([cell.strip() for cell in cells])
    columns = given.columns.split(",") if given.columns else rows.pop(0)
    for number, cells in enumerate(rows, 1):
        if any(cells[len(columns) :]):
            sys.exit(f"{path}, row {number}: more cells than columns. Received: {cells}")
    return columns, [cells for cells in rows if any(cells)], f"cells between {delimiter!r}"


def delimiter_of(line):
    """Returns what a line has most of; blanks only if there is nothing else."""
    delimiter = max(",;\t|", key=line.count)
    return delimiter if delimiter in line else " "


def read_json(path, text):
    """Returns the columns and rows of a list of objects in JSON, or of an object a line."""
    try:
        if path.suffix.lower() == ".jsonl":
            objects = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            objects = json.loads(text)
    except ValueError as error:
        sys.exit(f"{path} is no JSON: {error}")
    if not isinstance(objects, list) or not all(isinstance(item, dict) for item in objects):
        sys.exit(f"{path} must be a list of objects in JSON, or an object a line")
    columns = list(dict.fromkeys(name for item in objects for name in item))
    rows = [[item.get(name, "") for name in columns] for item in objects]
    return columns, [[int(x) if isinstance(x, bool) else x for x in row] for row in rows], "JSON"


def column_of(given, names, columns, path, flag):
    """Returns the column that a flag names, or that has the first of some names."""
    if given and given not in columns:
        sys.exit(f"{path} must have the column {given}. Received: {', '.join(map(str, columns))}")
    by_name = {column.lower(): column for column in reversed(columns)}
    found = given or next((by_name[name] for name in names if name in by_name), None)
    if found is None and flag:
        sys.exit(
            f"{path}: {flag} must name one of the columns, or --columns name all of a list without "
            f"a header. Received: {', '.join(columns)}"
        )
    return found


def is_flags(rows, place):
    """Returns whether a column has nothing but 0 and 1."""
    return all(len(row) > place and str(row[place]) in FLAGS for row in rows)


def label_places(given, columns, rows, path, used):
    """Returns the numbers of the columns of labels, and whether they are classes with 0 and 1."""
    names = given.label.split(",") if given.label and given.label not in columns else []
    if len(names) > 1:
        for name in names:
            column_of(name, (), columns, path, "--label")
        return [columns.index(name) for name in names], True
    label = column_of(given.label, LABELS, columns, path, None)
    if label:
        return [place for place, name in enumerate(columns) if name == label], False
    flags = [n for n, name in enumerate(columns) if n not in used and name and is_flags(rows, n)]
    if len(flags) < 2:
        column_of(None, (), columns, path, "--label")
    return flags, True


def names_in(cell, where):
    """Returns the names in a cell: text, a list or Label Studio's choices, also as their text."""
    if isinstance(cell, dict) and [*cell] == ["choices"]:
        cell = cell["choices"]
    if isinstance(cell, list):
        return [name for item in cell for name in names_in(item, where)]
    text = "" if cell is None else html.unescape(str(cell)).strip()
    if not text.startswith(("[", "{", "('", '("')):
        return [text] if text else []
    try:  # Python writes its lists with single quotation marks.
        found = json.loads(text if '"' in text else text.replace("'", '"'))
    except ValueError:
        found = None
    if isinstance(found, list) or (isinstance(found, dict) and [*found] == ["choices"]):
        return names_in(found, where)
    sys.exit(f"{where}: a label must be a name or a list of names. Received: {text}")


def read_names(path, given):
    """Returns the names in a table: of a number and a name a row, or a name a line from 0 on."""
    lines = [line.strip() for line in read_text(path, given.encoding).splitlines() if line.strip()]
    delimiter = delimiter_of(lines[0]) if lines else " "
    if delimiter == " " and not all(line.split(" ")[0].isdecimal() for line in lines):
        return {str(number): line for number, line in enumerate(lines)}
    names = {}
    for cells in csv.reader(lines, delimiter=delimiter, skipinitialspace=True):
        numbers = [cell.strip() for cell in cells if cell.strip().isdecimal()]
        texts = [cell.strip() for cell in cells if cell.strip() and not cell.strip().isdecimal()]
        if numbers and texts:  # A header has no number.
            names[numbers[-1]] = texts[0]
    return names


def part_of(word, column, where):
    """Returns the part that a word of a column stands for."""
    text = str(word).strip().lower()
    of_column = PART_OF.get(column.lower().removeprefix("is").strip("_ "))
    if of_column and text in YES + NO:
        return of_column if text in YES else "train"
    if text not in PART_OF:
        sys.exit(
            f"{where}: the column {column} must have parts ({', '.join(PARTS)}), or --split '' "
            f"leave it out. Received: {word!r}"
        )
    return PART_OF[text]


class Images:
    """The files in the folder of images: a path of a table is looked for in this order.

    As it is written; without `strip` before it, and with slashes; with another case or without its
    suffix; by its last part alone.
    """

    def __init__(self, folder, strip):
        self.folder, self.strip = folder, strip
        self.counts = collections.Counter()
        self.by_path, self.by_name = collections.defaultdict(set), collections.defaultdict(set)
        for file in sorted(folder.rglob("*")):
            name = file.relative_to(folder).as_posix()
            if file.is_file() and not any(part.startswith(".") for part in name.split("/")):
                for form in {plain(name), plain(name).rpartition(".")[0]}:
                    self.by_path[form].add(name)
                    self.by_name[form.rpartition("/")[2]].add(name)

    def find(self, text, where):
        """Returns the path of a file relative to the folder."""
        if text and (self.folder / text).is_file():
            return text
        path = text.replace("\\", "/").removeprefix(self.strip)
        if "?d=" in path:  # Label Studio's local files.
            path = urllib.parse.unquote(path.partition("?d=")[2])
        if path and (self.folder / path).is_file():
            self.counts["spelled another way"] += 1
            return path
        ways = {"without suffix or in another case": self.by_path[plain(path).removeprefix("./")]}
        ways["by the last part"] = self.by_name[plain(path).rpartition("/")[2]]
        for way, files in ways.items():
            if len(files) > 1:
                sys.exit(f"{where}: a path must be one file. Received: {text}: {sorted(files)[:3]}")
            if files:
                self.counts[way] += 1
                return next(iter(files))
        sys.exit(
            f"{where}: no such file in {self.folder} (--images FOLDER names it, --strip TEXT "
            f"leaves the beginning of paths out). Received: {text}"
        )


def plain(name):
    """Returns a name in small letters and in Unicode's composed form."""
    return unicodedata.normalize("NFC", name).lower()


def parse_arguments():
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=pathlib.Path, help="the table to write")
    parser.add_argument("tables", nargs="+", help="FILE, or PART=FILE for each part")
    parser.add_argument("--columns", help="names of the columns of lists without a header")
    parser.add_argument("--path", help="the column of paths")
    parser.add_argument("--label", help="the column of labels, or the columns of 0 and 1")
    parser.add_argument("--split", help="the column of parts; '' for none")
    parser.add_argument("--keep", default="", help="more columns to write, with commas between")
    parser.add_argument("--names", type=pathlib.Path, help="a table of numbers and their names")
    parser.add_argument("--images", type=pathlib.Path, help="the images' folder; else the table's")
    parser.add_argument("--strip", default="", help="a beginning of paths to leave out: gs://b/")
    parser.add_argument("--encoding", default="utf-8", help="of files without a mark, as cp1252")
    return parser.parse_args()


def read_table(path, part, root, given, names):
    """Returns `(path, label, part, *kept)` of each row of a table, and shows what was read.

    Args:
        path: The table.
        part: Its part; "" for none.
        root: Folder that the paths are written relative to.
        given: The arguments of the command line.
        names: Names by their numbers; empty for none.
    """
    columns, rows, kind = read_rows(path, given)
    if not rows:
        sys.exit(f"{path} has no rows")
    paths = column_of(given.path, PATHS, columns, path, "--path")
    split = None
    if not part and given.split != "":
        split = column_of(given.split, SPLITS, columns, path, None)
    kept = [column_of(name, (), columns, path, "--keep") for name in given.keep.split(",") if name]
    used = [columns.index(name) for name in (paths, split, *kept) if name]
    places, is_flag = label_places(given, columns, rows, path, used)
    images = Images(given.images or path.parent, given.strip)
    below = pathlib.Path(os.path.relpath(images.folder, root))
    read, words = [], collections.Counter()
    for number, row in enumerate(rows, 1):
        cells = [*row, *[""] * (len(columns) - len(row))]
        where = f"{path}, row {number}"
        if is_flag and not all(str(cells[place]) in FLAGS for place in places):
            sys.exit(f"{where}: the columns of classes must have 0 or 1. Received: {cells}")
        if is_flag:
            found = [columns[place] for place in places if FLAGS[str(cells[place])]]
        else:
            found = [name for place in places for name in names_in(cells[place], where)]
        if names and (missing := [name for name in found if name not in names]):
            sys.exit(f"{where}: {given.names} must have a name of {missing[0]}")
        found = list(dict.fromkeys(names.get(name, name) for name in found))
        if len(found) > 1 and any(";" in name for name in found):
            sys.exit(f"{where}: a name of several must have no semicolon. Received: {found}")
        of_row = part
        if split:
            word = cells[columns.index(split)]
            of_row = part_of(word, split, where)
            words[f"{word} is {of_row}"] += 1
        image = images.find(str(cells[columns.index(paths)]), where)
        more = [cells[columns.index(name)] for name in kept]
        read.append(((below / image).as_posix(), ";".join(found), of_row, *more))
    print(f"{path}: {len(rows)} rows, {kind}, part {split or part or 'none'}")
    label = ", ".join(dict.fromkeys(columns[place] for place in places))
    print(f"  paths from {paths}, {'a class for each of' if is_flag else 'labels from'} {label}")
    for words_of_part, count in [*words.items(), *images.counts.items()]:
        print(f"  {words_of_part}: {count} rows")
    return read


def main():
    """Reads the tables and writes one."""
    given = parse_arguments()
    names = read_names(given.names, given) if given.names else {}
    tables = []
    for table in given.tables:
        part, _, name = table.rpartition("=")
        path = pathlib.Path(name)
        if not path.is_file() or (part and part.lower() not in PART_OF):
            sys.exit(
                f"tables must be FILE, or PART=FILE with {', '.join(PARTS)}. Received: {table}"
            )
        if given.output.exists() and path.samefile(given.output):
            sys.exit(f"the table to write must be another file than {path}")
        tables.append((path, PART_OF.get(part.lower(), "")))
    # Without --images, the images of each table are in its folder.
    folders = [path.absolute().parent for path, _ in tables]
    root = given.images or pathlib.Path(os.path.relpath(os.path.commonpath(folders)))
    written = []
    for path, part in tables:
        written += read_table(path, part, root, given, names)
    kept = [name for name in given.keep.split(",") if name]
    columns = ["path", "label", *(["split"] if any(row[2] for row in written) else []), *kept]
    with open(given.output, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for path, label, part, *more in written:
            writer.writerow([path, label, *([part] if "split" in columns else []), *more])
    labels = sorted({name for _, label, *_ in written for name in label.split(";") if name})
    print(f"first row: {', '.join(str(cell) for cell in written[0] if cell)}")
    print(f"{len(labels)} classes: {', '.join(labels[:10])}")
    print(f"written {given.output}: keras-vit finetune {given.output} --data-dir {root}")


if __name__ == "__main__":
    main()
