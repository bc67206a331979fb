"""The program that makes one table of the lists that other tools write.

Each export is refused by the readers, with the way that reads it, and its table has the labels and
parts that the readers once guessed.
"""

import json
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest

from keras_vit.training.data import DataSpec, open_source
from keras_vit.training.data.early_checks import check_table
from makers import encode

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "examples" / "labels_to_csv.py"
PHOTOS = [f"{number}.png" for number in range(4)]
CATS = {"0.png": ["cat"], "1.png": ["dog"], "2.png": ["cat"], "3.png": ["dog"]}
PETS = {**CATS, "0.png": ["cat", "pet"]}
TRAIN = ["train", "train", "test", "test"]


class Export(NamedTuple):
    """What another tool writes.

    Args:
        files: Their texts by their names; the first is given to the reader as it is.
        words: Arguments of the program.
        refusal: What the reader says of the first file.
        labels: The labels of each photo.
        parts: The part of each photo.
    """

    files: dict[str, str | bytes]
    words: list[str]
    refusal: str
    labels: dict[str, list[str]] = CATS
    parts: list[str] = ["train"] * 4


def lines(*rows):
    return "".join(f"{row}\n" for row in rows)


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


def rows(form, header=None):
    """A table of `CATS`; `form` has the number n, the name and the part of a photo."""
    cells = [
        form.format(n=n, name=names[0], part=TRAIN[n]) for n, names in enumerate(CATS.values())
    ]
    return lines(*([header] if header else []), *cells)


CHOICES = [{"image": f"/data/upload/1/{n}", "choice": PETS[n]} for n in PHOTOS]
CHOICES_AS_TEXT = [
    f"{n}.png,{quoted(json.dumps({'choices': names}))}" for n, names in enumerate(PETS.values())
]
STUDIO = [
    {"id": n, "image": f"/data/local-files/?d=im%67s/{n}.png", "choice": names[0]}
    for n, names in enumerate(CATS.values())
]
LISTS = [str(PETS[name]) for name in PHOTOS]
COLUMN = "--path-column COLUMN"
PROGRAM_READS = r"labels_to_csv.py table.csv .* reads tables of other tools"
EXPORTS = {
    "Kaggle, without suffixes": Export(
        {"train.csv": rows("{n},{name}", "id,label")}, ["train.csv"], COLUMN
    ),
    "paths without suffixes": Export(
        {"a.csv": rows("{n},{name}", "path,label")}, ["a.csv"], "--images FOLDER finds paths"
    ),
    "paths in another case": Export(
        {"a.csv": rows("{n}.PNG,{name}", "path,label")}, ["a.csv"], "--images FOLDER finds paths"
    ),
    "columns in another case": Export(
        {"a.csv": rows("{n}.png,{name}", "Image_Path,CLASS")}, ["a.csv"], COLUMN
    ),
    "an index of pandas": Export(
        {"a.csv": rows("{n},{n}.png,{name}", "Unnamed: 0,file,category")}, ["a.csv"], COLUMN
    ),
    "Excel with semicolons and its mark": Export(
        {"a.csv": rows("{n}.png;{name}", "\ufeffBild;Klasse")},
        ["a.csv", "--path", "Bild", "--label", "Klasse"],
        COLUMN,
    ),
    "Excel in UTF-16 with tabs": Export(
        {"a.csv": rows("{n}.png\t{name}", "image\tlabel").encode("utf-16")}, ["a.csv"], COLUMN
    ),
    "the first line of Excel": Export(
        {"a.csv": "sep=;\n" + rows("{n}.png;{name}", "path;label")}, ["a.csv"], PROGRAM_READS
    ),
    "bars": Export({"a.csv": rows("{n}.png|{name}", "path|label")}, ["a.csv"], PROGRAM_READS),
    "blanks and no header, as of torchvision's lists": Export(
        {"train.txt": rows("{n}.png {name}")},
        ["train.txt", "--columns", "path,label"],
        "Data in a file must be a table .*labels_to_csv.py table.csv .*train.txt reads lists",
    ),
    "no header": Export(
        {"a.csv": rows("{n}.png,{name}")},
        ["a.csv", "--columns", "path,label"],
        "FILE --columns path,label reads a file without names",
    ),
    "numbers, and names in classes.txt": Export(
        {"a.csv": rows("{n}.png,{n}", "image,class"), "classes.txt": "cat\ndog\ncow\nhen\n"},
        ["a.csv", "--names", "classes.txt"],
        COLUMN,
        dict(zip(PHOTOS, [["cat"], ["dog"], ["cow"], ["hen"]], strict=True)),
    ),
    "numbers, and names with their numbers": Export(
        {"a.csv": rows("{n}.png,{n}", "image,class"), "names.txt": "0 cat\n1 dog\n2 cow\n3 hen\n"},
        ["a.csv", "--names", "names.txt"],
        COLUMN,
        dict(zip(PHOTOS, [["cat"], ["dog"], ["cow"], ["hen"]], strict=True)),
    ),
    "Roboflow's columns of 0 and 1": Export(
        {"_classes.csv": lines("filename, cat, dog, pet", *(f"{n}.png, {r}" for n, r in enumerate(
            ["1, 0, 1", "0, 1, 0", "1, 0, 0", "0, 1, 0"])))},
        ["_classes.csv"],
        f"{COLUMN} .*--label-column cat,dog,pet reads columns of 0 and 1",
        PETS,
    ),
    "ISIC's floats of one class, beside an age": Export(
        {"a.csv": lines("image,cat,dog,age", *(f"{n},{r}" for n, r in enumerate(
            ["1.0,0.0,3", "0.0,1.0,7", "1.0,0.0,5", "0.0,1.0,6"])))},
        ["a.csv"],
        "--label-column cat,dog reads",
    ),
    "some columns of 0 and 1": Export(
        {"a.csv": lines("path,cat,dog,male", "0.png,1,0,1", "1.png,0,1,1", "2.png,1,0,0",
                        "3.png,0,1,0")},
        ["a.csv", "--label", "cat,dog"],
        "--label-column cat,dog,male reads",
    ),
    "Label Studio's CSV with choices": Export(
        {"a.csv": lines("image,choice", *CHOICES_AS_TEXT)}, ["a.csv"], COLUMN, PETS
    ),
    "choices under our names": Export(
        {"a.csv": lines("path,label", *CHOICES_AS_TEXT)}, ["a.csv"], "reads lists and", PETS
    ),
    "Label Studio's JSON": Export(
        {"a.json": json.dumps(STUDIO)}, ["a.json"], "table.csv .*a.json reads lists and JSON"
    ),
    "Label Studio's JSON with lists": Export(
        {"a.json": json.dumps(CHOICES)}, ["a.json"], "reads lists and JSON", PETS
    ),
    "choices in JSON lines": Export(
        {"a.jsonl": lines(*(json.dumps({"path": n, "label": {"choices": PETS[n]}}) for n in PETS))},
        ["a.jsonl"],
        "a label must be a name",
        PETS,
    ),
    "Python's lists as text": Export(
        {"a.csv": lines("path,label", *(f'{n}.png,"{text}"' for n, text in enumerate(LISTS)))},
        ["a.csv"],
        "a label must be a name",
        PETS,
    ),
    "HTML as text": Export(
        {"a.csv": rows("{n}.png,{name} &amp; co", "path,label")},
        ["a.csv"],
        "labels must be plain text",
        {name: [f"{names[0]} & co"] for name, names in CATS.items()},
    ),
    "Google AutoML": Export(
        {"a.csv": lines("TRAIN,gs://bucket/x/0.png,cat,pet", "TRAIN,gs://bucket/x/1.png,dog",
                        "TEST,gs://bucket/x/2.png,cat,pet", "TEST,gs://bucket/x/3.png,dog")},
        ["a.csv", "--columns", "split,path,label,label", "--strip", "gs://bucket/x/"],
        "FILE --columns",
        {**PETS, "2.png": ["cat", "pet"]},
        TRAIN,
    ),
    "a column Usage, as of FER2013": Export(
        {"a.csv": lines("path,label,Usage", "0.png,cat,Training", "1.png,dog,Training",
                        "2.png,cat,PublicTest", "3.png,dog,PrivateTest")},
        ["a.csv"],
        "--split Usage reads this",
        parts=TRAIN,
    ),
    "a column is_valid, as of fastai": Export(
        {"a.csv": lines("path,label,is_valid", "0.png,cat,False", "1.png,dog,False",
                        "2.png,cat,True", "3.png,dog,True")},
        ["a.csv", "--split", "is_valid"],
        "--split is_valid reads this",
        parts=TRAIN,  # A validation part without a test part is the test part.
    ),
    "parts in other words": Export(
        {"a.csv": lines("path,label,split", "0.png,cat,Training", "1.png,dog,Train",
                        "2.png,cat,Dev", "3.png,dog,Dev")},
        ["a.csv"],
        "reads other words",
        parts=TRAIN,
    ),
    "folders of another machine, of Windows": Export(
        {"a.csv": rows("C:\\data\\{n}.png,{name}", "path,label")}, ["a.csv"], "no such file"
    ),
}  # fmt: skip


@pytest.fixture
def photos(tmp_path):
    for number, name in enumerate(PHOTOS):
        pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), "uint8")
        (tmp_path / name).write_bytes(encode(pixels))
    return tmp_path


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def run(folder, *words):
    done = subprocess.run(
        [sys.executable, PROGRAM, "table.csv", *words], cwd=folder, capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


def read(folder):
    """The labels and the part of each photo of the written table."""
    source = open_source(DataSpec(folder / "table.csv", holdout=0.0), verify=False)
    labels, parts = {}, {}
    for part, examples in source.splits.items():
        for path, label in zip(examples.names, examples.labels.tolist(), strict=True):
            numbers = [n for n, one in enumerate(label) if one] if type(label) is list else [label]
            name = pathlib.Path(path).relative_to(folder).as_posix()
            labels[name] = [source.class_names[number] for number in numbers]
            parts[name] = part
    return labels, parts


@pytest.mark.parametrize("kind", EXPORTS)
def test_an_export_becomes_a_table_of_its_labels_and_parts(photos, kind):
    export = EXPORTS[kind]
    write(photos, export.files)
    code, _, error = run(photos, *export.words)
    assert (code, error) == (0, "")
    labels, parts = read(photos)
    assert labels == export.labels
    assert parts == dict(zip(PHOTOS, export.parts, strict=True))


@pytest.mark.parametrize("kind", EXPORTS)
def test_an_export_is_refused_with_the_way_that_reads_it(photos, kind):
    export = EXPORTS[kind]
    write(photos, export.files)
    with pytest.raises(ValueError, match=export.refusal) as error:
        check_table(DataSpec(str(photos / next(iter(export.files)))), min_classes=2)
    assert "\n" not in str(error.value)


def test_lists_without_a_header_become_parts_with_names_in_place_of_numbers(photos):
    (photos / "train.txt").write_text("0.png, 7, 0\n1.png, 8, 1\n")
    (photos / "test.txt").write_text("2.png, 9, 1\n")
    (photos / "classes.csv").write_text('Class,Number\nApple,0\n"Kiwi, green",1\n')
    words = ["train=train.txt", "test=test.txt", "--columns", "path,,label"]
    code, printed, _ = run(photos, *words, "--names", "classes.csv")
    assert code == 0
    assert (photos / "table.csv").read_text().splitlines() == [
        "path,label,split",
        "0.png,Apple,train",
        '1.png,"Kiwi, green",train',
        '2.png,"Kiwi, green",test',
    ]
    assert "train.txt: 2 rows, cells between ',', part train" in printed
    assert "2 classes: Apple, Kiwi, green" in printed


def test_tables_in_the_folders_of_their_photos_become_parts(photos):
    for part, names in (("train", PHOTOS[:2]), ("valid", PHOTOS[2:])):
        (photos / part).mkdir()
        for name in names:
            (photos / name).rename(photos / part / name)
        cells = [f"{name}, {n}, {1 - n}" for n, name in enumerate(names)]
        (photos / part / "_classes.csv").write_text(lines("filename, dog, cat", *cells))
    code, printed, _ = run(photos, "train=train/_classes.csv", "valid=valid/_classes.csv")
    assert code == 0
    labels, parts = read(photos)
    assert labels == {f"{folder}/{name}": CATS[name] for folder, name in zip(
        ["train", "train", "valid", "valid"], PHOTOS, strict=True)}  # fmt: skip
    assert list(parts.values()) == TRAIN
    assert "keras-vit finetune table.csv --data-dir ." in printed


def test_the_program_shows_what_it_found(photos):
    (photos / "a.csv").write_text(lines("id,Class,usage", "0,cat,Training", "1.png,dog,holdout"))
    _, printed, _ = run(photos, "a.csv")
    assert printed.splitlines() == [
        "a.csv: 2 rows, cells between ',', part usage",
        "  paths from id, labels from Class",
        "  Training is train: 1 rows",
        "  holdout is test: 1 rows",
        "  without suffix or in another case: 1 rows",
        "first row: 0.png, cat, train",
        "2 classes: cat, dog",
        "written table.csv: keras-vit finetune table.csv --data-dir .",
    ]


def test_other_columns_are_kept_on_request_for_groups(photos):
    (photos / "a.csv").write_text(lines("id,label,cow", "0,cat,x", "1,dog,y", "2,cat,x"))
    assert run(photos, "a.csv", "--keep", "cow")[0] == 0
    spec = DataSpec(photos / "table.csv", holdout=0.0, group_by="cow")
    assert list(open_source(spec, verify=False).groups.values()) == [0, 1, 0]


@pytest.mark.parametrize(
    ("text", "words", "error"),
    [
        ("x,emotion\n0.png,sad\n", [], "a.csv: --path must name .* Received: x, emotion"),
        ("image,emotion\n0.png,sad\n", [], "a.csv: --label must name .*: image, emotion"),
        ("path,label\n0.png,sad\n", ["--label", "y"], "a.csv must have the column y. Received: pa"),
        ("path,label\n9,sad\n", [], "a.csv, row 1: no such file .* Received: 9"),
        ("path,label\n0,sad\n", [], r"a.csv, row 1: a path must be one file. .*0.jpg.*0.png"),
        ("path,label\n0.png,a,b\n", [], "a.csv, row 1: more cells than columns"),
        ('path,label\n0.png,"a\n', [], "a.csv, line 2: .*cells? must be in one line"),
        ("path,label,set\n0.png,a,exam\n", [], "a.csv, row 1: the column set must have parts"),
        ("path,label\n0.png,\"['a;b', 'c']\"\n", [], "a name of several must have no semicolon"),
        ("path,label\n0.png,{a}\n", [], "a.csv, row 1: a label must be a name or a list"),
        ("path,label\n0.png,7\n", ["--names", "n.txt"], "n.txt must have a name of 7"),
        ("path,label\n", [], "a.csv has no rows"),
        ("", [], "a.csv has no rows"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(photos, text, words, error):
    write(photos, {"a.csv": text, "n.txt": "a\nb\n", "0.jpg": b""})
    code, printed, line = run(photos, "a.csv", *words)
    assert (code, printed, line.count("\n")) == (1, "", 1)
    assert re.search(error, line)


@pytest.mark.parametrize("table", ["none.csv", "exam=a.csv", "table.csv"])
def test_a_table_that_is_none_or_would_be_replaced_is_refused(photos, table):
    write(photos, {"a.csv": "path,label\n", "table.csv": "path,label\n"})
    code, _, line = run(photos, table)
    assert (code, line.count("\n")) == (1, 1)
    assert (photos / "table.csv").read_text() == "path,label\n"


def test_an_old_encoding_is_read_on_request(photos):
    write(photos, {"a.csv": "image;label\n0.png;caf\xe9\n".encode("cp1252")})
    code, _, line = run(photos, "a.csv")
    assert (code, "--encoding cp1252" in line) == (1, True)
    assert run(photos, "a.csv", "--encoding", "cp1252")[0] == 0
    assert (photos / "table.csv").read_text(encoding="utf-8").splitlines()[1] == "0.png,caf\xe9"
