"""Tables of images and labels as labelling tools and libraries write them."""

import json
import pathlib

import pytest

from keras_vit.training.data.spec import DataSpec
from keras_vit.training.data.tables import Reading, table_folder_files


def opened(data, **options):
    """The class names, and the names and labels of each part."""
    source = DataSpec(data, holdout=0.0, **options).open(verify=False)
    spec = DataSpec(data, options.get("data_dir"))
    return source.class_names, {
        part: dict(zip(map(spec.relative, examples.names), examples.labels.tolist(), strict=True))
        for part, examples in source.splits.items()
    }


@pytest.fixture
def folder(make_folder):
    return make_folder({"images": 4})


def write(folder, name, *lines):
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


EXPECTED = (("cat", "dog"), {"train": {"images/00.png": 0, "images/01.png": 1}})
TWO = ["images/00.png,cat", "images/01.png,dog"]


def test_metadata_of_an_image_folder(folder):
    table = write(folder, "metadata.csv", "file_name,label", *TWO)
    assert opened(table) == opened(folder) == EXPECTED
    table.unlink()
    rows = [dict(zip(("file_name", "label"), row.split(","), strict=True)) for row in TWO]
    table = write(folder, "metadata.jsonl", *map(json.dumps, rows))
    assert opened(table) == opened(folder) == EXPECTED


def test_labels_of_json_lines_may_be_numbers_and_lists(folder):
    rows = [{"file_name": "images/00.png", "label": 3}, {"file_name": "images/01.png", "label": 11}]
    assert opened(write(folder, "metadata.jsonl", *map(json.dumps, rows)))[0] == ("3", "11")
    rows = [{**rows[0], "label": ["a", "b"]}, {**rows[1], "label": []}]
    names, splits = opened(write(folder, "metadata.jsonl", *map(json.dumps, rows)))
    assert names == ("a", "b")
    assert splits["train"] == {"images/00.png": [1, 1], "images/01.png": [0, 0]}


def test_metadata_in_the_folder_of_each_part(make_folder):
    folder = make_folder({"train": 2, "test": 2})
    for part in ("train", "test"):
        write(folder / part, "metadata.csv", "file_name,label", "00.png,cat", "01.png,dog")
    names, splits = opened(folder)
    assert names == ("cat", "dog")
    assert splits["test"] == {"test/00.png": 0, "test/01.png": 1}
    for part in ("train", "test"):
        (folder / part / "metadata.csv").unlink()
    rows = [f"{part}/0{n}.png,{label}" for part in splits for n, label in enumerate(names)]
    write(folder, "metadata.csv", "file_name,label", *rows)
    assert opened(folder) == (names, splits)


def test_metadata_without_labels_leave_the_folders_as_classes(make_folder):
    folder = make_folder({"cat": 1, "dog": 1})
    write(folder, "metadata.csv", "file_name,text", "cat/00.png,a cat", "dog/00.png,a dog")
    assert opened(folder)[1] == {"train": {"cat/00.png": 0, "dog/00.png": 1}}


def test_a_multi_label_export_of_roboflow(make_folder):
    folder = make_folder({"train": 2, "valid": 1, "test": 1})
    write(folder / "train", "_classes.csv", "filename, cat, dog", "00.png, 1, 0", "01.png, 1, 1")
    for part in ("valid", "test"):
        write(folder / part, "_classes.csv", "filename, cat, dog", "00.png, 1, 1")
    names, splits = opened(folder)
    assert names == ("cat", "dog")
    assert splits == {
        "train": {"train/00.png": [1, 0], "train/01.png": [1, 1]},
        "validation": {"valid/00.png": [1, 1]},
        "test": {"test/00.png": [1, 1]},
    }
    assert opened(folder / "train" / "_classes.csv")[1]["train"] == {
        "00.png": [1, 0],
        "01.png": [1, 1],
    }


def test_other_columns_are_named(folder):
    header = "where,breed,label"
    table = write(folder, "list.csv", header, "images/00.png,cat,x", "images/01.png,dog,y")
    assert opened(table, path_column="where", label_column="breed") == EXPECTED
    assert opened(table, path_column="where")[0] == ("x", "y")
    match = "--path-column .* must be a column of .*list.csv: where, breed, label. Received: file"
    with pytest.raises(ValueError, match=match):
        opened(table, path_column="file")


def test_paths_may_be_absolute_however_the_folder_is_given(make_folder, monkeypatch):
    folder = make_folder({"data/train": 1, "data/test": 1, "else": 1})
    paths = [folder / name / "00.png" for name in ("data/train", "data/test", "else")]
    rows = [f"{path},{name}" for path, name in zip(paths, ("cat", "dog", "cat"), strict=True)]
    write(folder / "data", "metadata.csv", "file_name,label", *rows)
    monkeypatch.chdir(folder)
    parts = {"train": "train", "test": "test"}
    for given in (pathlib.Path("data"), folder / "data"):
        tables = [(given / "metadata.csv", None)]
        listed, classes = table_folder_files(given, parts, tables, Reading(DataSpec()))
        assert [(file.path, file.split) for file in listed] == [
            (str(paths[0]), "train"),
            (str(paths[1]), "test"),
            (str(paths[2]), None),
        ]
        assert classes == ("cat", "dog")


def test_empty_lines_of_json_are_ignored(folder):
    lines = [f'{{"file_name": "{row.split(",")[0]}", "label": "{row[-3:]}"}}' for row in TWO]
    assert opened(write(folder, "metadata.jsonl", lines[0], "", lines[1], " ", "")) == EXPECTED


def test_a_damaged_line_of_json_is_named(folder):
    with pytest.raises(ValueError, match="metadata.jsonl, line 2"):
        opened(write(folder, "metadata.jsonl", '{"file_name": "images/00.png"}', "{"))
    with pytest.raises(ValueError, match="line 1 must be a JSON object"):
        opened(write(folder, "metadata.jsonl", "[1]"))
