"""A table `path,label,split` from the lists and tables that other tools write.

    python labels_to_csv.py labels.csv train=train.txt test=test.txt --columns path,,label
    python labels_to_csv.py labels.csv legend.csv --path image --label emotion

A list without a header needs `--columns`: the names of its columns, of which `path` and `label` are
read. `--names classes.csv` has a number and the name that it stands for in each row. Several lists
are the parts of the data, by the word before the equals sign. The program shows what it read.
"""

import argparse
import csv
import pathlib
import sys


def read_rows(path, columns):
    """Returns the rows of a table as dicts, and how its cells are separated."""
    text = path.read_text(encoding="utf-8-sig")
    first = text.partition("\n")[0]
    delimiter = max(",;\t| ", key=first.count)
    rows = csv.DictReader(
        text.splitlines(), columns, delimiter=delimiter, skipinitialspace=True, restval=""
    )
    return [dict(row) for row in rows], delimiter


def cell_of(row, column, path):
    """Returns a cell; ends the program with the names of the columns if there is none."""
    if column not in row:
        sys.exit(f"{path} must have the column {column}. Received: {', '.join(map(str, row))}")
    return row[column].strip()


def read_names(path):
    """Returns the names in a table of numbers and names; a header has no number."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.reader(file) if len(row) > 1]
    names = {}
    for cells in rows:
        numbers = [cell.strip() for cell in cells if cell.strip().isdecimal()]
        texts = [cell.strip() for cell in cells if cell.strip() and not cell.strip().isdecimal()]
        if numbers and texts:
            names[numbers[-1]] = texts[0]
    return names


def parse_arguments():
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=pathlib.Path, help="the table to write")
    parser.add_argument("tables", nargs="+", help="FILE, or PART=FILE for each part")
    parser.add_argument("--columns", help="names of the columns of lists without a header")
    parser.add_argument("--path", default="path", help="the column of paths")
    parser.add_argument("--label", default="label", help="the column of labels")
    parser.add_argument("--names", type=pathlib.Path, help="a table of numbers and their names")
    return parser.parse_args()


def main():
    """Reads the tables and writes one."""
    given = parse_arguments()
    columns = None
    if given.columns:  # A column with an empty name is not read.
        columns = [name or f"column {place}" for place, name in enumerate(given.columns.split(","))]
    names = read_names(given.names) if given.names else {}
    written = []
    for table in given.tables:
        part, _, name = table.rpartition("=")
        path = pathlib.Path(name)
        rows, delimiter = read_rows(path, columns)
        print(f"{path}: {len(rows)} rows, cells between {delimiter!r}, part {part or 'none'}")
        for row in rows:
            label = cell_of(row, given.label, path)
            written.append((cell_of(row, given.path, path), names.get(label, label), part))
    has_parts = any(part for *_, part in written)
    with open(given.output, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("path", "label", "split")[: 3 if has_parts else 2])
        writer.writerows(row[: 3 if has_parts else 2] for row in written)
    labels = sorted({label for _, label, _ in written})
    print(f"first row: {', '.join(written[0])}")
    print(f"{len(labels)} classes: {', '.join(labels[:10])}")
    print(f"written {given.output}: keras-vit finetune {given.output} --data-dir FOLDER")


if __name__ == "__main__":
    main()
