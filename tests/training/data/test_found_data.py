"""Folders and tables as people have them: read with a line that says how, or refused with a way."""

import json
import os

import numpy as np
import pytest
from labelled_data import opened as opened_with, refused

from keras_vit.images.listing import NO_FILE, image_files
from keras_vit.training.data import DataSpec
from keras_vit.training.data.class_folders import NO_CLASS
from keras_vit.training.data.early_checks import check_table

CLASSES = ("cats", "dogs")
IMAGES = [f"{number}.png" for number in range(4)]


def opened(data, **options):
    return opened_with(data, **{"holdout": 0, **options})


def counts(source):
    """The images of each part and class."""
    found = {}
    for part, examples in source.splits.items():
        labels = examples.labels
        labels = labels.sum(axis=0) if labels.ndim == 2 else np.bincount(labels)
        found[part] = dict(zip(source.class_names, labels.tolist(), strict=False))
    return found


def by_name(source):
    """The label of each image by the last part of its name."""
    examples = source.splits["train"]
    names = map(os.path.basename, examples.names)
    return dict(zip(names, examples.labels.tolist(), strict=True))


@pytest.fixture
def table(tmp_path, write_image):
    """A function that writes lines to a table beside `IMAGES`."""

    def write(*lines, name="labels.csv"):
        for image in IMAGES:
            write_image(tmp_path / image)
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        return tmp_path / name

    return write


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("training_set", "test_set"),
        ("TrainImages", "TestImages"),
        ("train2017", "val2017"),
        ("seg_train", "seg_test"),
    ],
)
def test_folders_of_parts_under_other_names_are_refused_with_both_ways(make_folder, train, test):
    layout = {f"{part}/{name}": 2 for part in (train, test) for name in CLASSES}
    folder = make_folder(layout)
    match = f"--folders parts .*--folders classes .*{test}"
    refused(folder, match)
    assert opened(folder, folders="classes").class_names == (*sorted((train, test)),)
    source = opened(folder, folders="parts")
    assert counts(source) == {part: {"cats": 2, "dogs": 2} for part in ("train", "test")}
    assert f"{train} is train" in source.notes[0]


@pytest.mark.parametrize("names", [("Train", "more"), ("Holdout", "cats"), ("dev", "dogs")])
def test_a_folder_that_may_be_a_part_is_refused_with_both_ways(make_folder, names):
    folder = make_folder({f"{name}/{c}": 1 for name in names for c in "ab"})
    refused(folder, f"--folders parts .*--folders classes .*Received: {names[0]}")


@pytest.mark.parametrize("parts", [("train", "test"), (".",)])
@pytest.mark.parametrize("around", ["dogs-and-cats", "data/dogs-and-cats"])
def test_a_folder_around_the_data_is_refused_with_the_data_in_it(make_folder, parts, around):
    layout = {f"{around}/{part}/{name}": 2 for part in parts for name in CLASSES}
    folder = make_folder(layout)
    inner = folder / around
    refused(folder, f"--data {inner} .*--folders classes")
    assert counts(opened(inner))["train"] == {"cats": 2, "dogs": 2}


@pytest.mark.parametrize("names", [("test_tube", "tray"), ("test1", "test2"), ("1", "2")])
def test_other_folders_with_such_words_are_classes(make_folder, names):
    assert opened(make_folder(dict.fromkeys(names, 2))).class_names == names


def test_a_class_called_train_is_read_where_the_folders_are_said_to_be_classes(make_folder):
    folder = make_folder({"train": 2, "car": 2, "bus": 2})
    refused(folder, "bus must .*--folders classes")
    assert opened(folder, folders="classes").class_names == ("bus", "car", "train")
    assert len(opened(folder, folders="classes", labelled=False).splits["train"]) == 6


def test_a_folder_beside_the_parts_of_images_without_labels_gets_a_line(make_folder):
    source = opened(make_folder({"train/a": 2, "train": 1, "test": 1, "more": 1}), labelled=False)
    assert len(source.splits["train"]) == 3
    assert source.notes == ("left out more: not named after a part",)


def test_a_folder_may_be_named_as_a_table(make_folder):
    folder = make_folder({"photos.csv/a": 2, "photos.csv/b": 2}) / "photos.csv"
    check_table(DataSpec(str(folder)), min_classes=0)
    assert opened(folder).class_names == ("a", "b")


def test_folders_of_repeated_names_in_folders_are_refused_with_both_ways(make_folder):
    folder = make_folder({f"{place}/{name}": 2 for place in ("north", "south") for name in CLASSES})
    refused(folder, "north, south, .*--folders classes; .*cats, dogs, .*train and test")
    assert opened(folder, folders="classes").class_names == ("north", "south")


def test_repeated_folders_in_the_classes_of_parts_are_refused_with_both_ways(make_folder):
    layout = {f"{part}/{c}/{day}": 1 for part in ("train", "test") for c in "ab" for day in "12"}
    folder = make_folder(layout)
    refused(folder, "are a, b, .*--folders parts; .*are 1, 2")
    assert counts(opened(folder, folders="parts"))["train"] == {"a": 2, "b": 2}
    refused(make_folder({"else": 1}), "Next to train and test", folders="parts")


def test_one_folder_in_each_class_is_no_doubt_and_is_named(make_folder):
    source = opened(make_folder({"a/images": 2, "b/images": 2}))
    assert source.class_names == ("a", "b")
    assert source.notes == ("folders in a class belong to it: a/images, b/images",)


def test_two_folders_of_one_part_are_refused(make_folder):
    layout = {f"{part}/{name}": 2 for part in ("train", "valid", "val") for name in CLASSES}
    refused(make_folder(layout), "val and valid, .*validation")


def test_images_beside_the_folders_of_classes_are_counted_and_named(make_folder):
    folder = make_folder({"cats": 2, "dogs": 2, ".": 2})
    source = opened(folder)
    assert source.skipped == [(str(folder / f"0{n}.png"), NO_CLASS) for n in range(2)]
    assert len(source.splits["train"]) == 4


def test_an_empty_part_is_named_before_images_are_held_out_in_its_place(make_folder):
    folder = make_folder({f"train/{name}": 4 for name in CLASSES})
    (folder / "test").mkdir()
    source = opened(folder, holdout=0.5)
    assert counts(source) == {part: {"cats": 2, "dogs": 2} for part in ("train", "test")}
    assert source.notes == (f"left out {folder / 'test'}: no folder of a class in it",)


def test_the_first_classes_are_named_with_their_images(make_folder):
    source = opened(make_folder({name: n for n, name in enumerate("abcdefg", 1)}), holdout=0.5)
    assert source.class_line == "a 1, b 2, c 3, d 4, e 5 and 2 more"


def test_a_tree_of_boxes_has_one_folder_of_images(make_folder):
    folder = make_folder({"images/train": 2, "images/val": 1})
    for part in ("train", "val"):
        (folder / "labels" / part).mkdir(parents=True)
        (folder / "labels" / part / "00.txt").write_text("0 0.5 0.5 1 1")
    refused(folder, r"two classes. .* 1 \(images\)")


def test_a_pipe_named_as_an_image_is_left_out_and_named(make_folder, capsys):
    folder = make_folder({"a": 2, "b": 2})
    os.mkfifo(folder / "a" / "q.jpg")
    os.mkfifo(folder / "a" / "recipe.json")
    assert opened(folder, verify=True).skipped == [(str(folder / "a" / "q.jpg"), NO_FILE)]
    assert len(image_files(folder)) == 4
    line = f"keras-vit: left out {folder}/a/q.jpg: {NO_FILE}\n"
    assert capsys.readouterr().err == line
    with pytest.raises(ValueError, match=f"q.jpg. {NO_FILE}"):
        image_files(folder / "a" / "q.jpg")


def test_a_path_that_a_shell_has_divided_needs_quotes(make_folder):
    folder = make_folder({"two words": 1})
    parts = str(folder / "two words").split(" ")
    with pytest.raises(ValueError, match='two. A path with spaces needs quotes: ".*two words"$'):
        image_files(parts)


@pytest.mark.parametrize("separator", [",", " ", "|"])
@pytest.mark.parametrize("task", [None, "multilabel"])
def test_another_separator_is_an_option(table, separator, task):
    path = table("path,label", f'0.png,"animal{separator}cat"', "1.png,animal", "2.png,dog")
    source = opened(path, task=task)
    assert source.class_names == ("animal", f"animal{separator}cat", "dog")
    source = opened(path, task=task, label_separator=separator)
    assert source.class_names == ("animal", "cat", "dog")
    assert by_name(source) == {"0.png": [1, 1, 0], "1.png": [1, 0, 0], "2.png": [0, 0, 1]}


ISIC = ("path,MEL,NV", "0.png,1.0,0.0", "1.png,0.0,1.0", "2.png,1.0,0.0")
ONE_HOT = np.array([[1, 0], [0, 1], [1, 0]])


def test_a_one_hot_table_is_one_class_an_image_where_asked_for_and_says_it_otherwise(table):
    path, columns = table(*ISIC), {"label_column": "MEL,NV"}
    source = opened(path, task="multiclass", **columns)
    assert (source.task, source.class_names) == ("multiclass", ("MEL", "NV"))
    assert by_name(source) == {"0.png": 0, "1.png": 1, "2.png": 0}
    source = opened(path, **columns)
    assert source.task == "multilabel"
    assert "--task multiclass" in source.notes[-1]
    assert "--task multiclass" not in str(opened(path, task="multilabel", **columns).notes)


def test_a_one_hot_table_is_refused_with_the_columns_of_0_and_1(table):
    path = table("image,MEL,NV,age", "0.png,1,0,30", "1.png,0,1,41")
    refused(path, "--path-column COLUMN .*--label-column MEL,NV .*: image, MEL, NV, age")
    refused(path, "csv must have .*--label-column MEL,NV", path_column="image")
    source = opened(path, path_column="image", label_column="MEL,NV")
    assert by_name(source) == {"0.png": [1, 0], "1.png": [0, 1]}


@pytest.mark.parametrize("kind", ["int64", "uint8", "float32"])
def test_one_hot_arrays_are_one_class_an_image_where_asked_for(kind):
    data = (np.zeros((3, 2, 2, 3), "uint8"), ONE_HOT.astype(kind))
    source = opened(data, task="multiclass")
    assert source.splits["train"].labels.tolist() == [0, 1, 0]
    assert [int(label) for _, label in source.splits["train"].encoded()] == [0, 1, 0]
    assert "--task multiclass" in opened(data).notes[-1]


def test_a_column_of_a_class_without_images_is_left_out_with_a_line(table):
    path = table("path,MEL,NV,none", "0.png,1,0,0", "1.png,0,1,0")
    source = opened(path, label_column="MEL,NV,none")
    assert source.notes[0] == "left out none: 0 in every row"
    assert source.class_names == ("MEL", "NV")


def test_a_column_of_classes_with_other_cells_is_refused_with_its_row(table):
    path = table("path,MEL,sex", "0.png,1,male", "1.png,0,female")
    match = "--label-column .*row 2: 'male' in sex"
    refused(path, match, label_column="MEL,sex")


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize("name", ["labels.csv", "labels.tsv"])
def test_semicolons_and_tabs_separate_cells(table, separator, name):
    rows = [("path", "label", "split"), ("0.png", "a,b", "train"), ("1.png", "c", "train")]
    source = opened(table(*map(separator.join, rows), name=name))
    assert by_name(source) == {"0.png": 0, "1.png": 1}
    assert source.class_names == ("a,b", "c")


@pytest.mark.parametrize("header", ["filename,class", "id,label", "Path,Label", "file,category"])
def test_columns_of_other_names_are_read_where_flags_say_so(table, header):
    path = table(header, "0.png,cat", "1.png,dog")
    refused(path, f"--path-column COLUMN .* Received: {header.replace(',', ', ')}, .*2 rows")
    columns = dict(zip(("path_column", "label_column"), header.split(","), strict=True))
    assert by_name(opened(path, **columns)) == {"0.png": 0, "1.png": 1}


def test_cells_with_an_unquoted_separator_are_refused(table):
    refused(table("path,label", "0.png,a", "1.png,b,c"), r"row 3: .*in quotes.* \['c'\]")


TWO = ["0.png,cat", "1.png,dog"]


def test_metadata_of_an_image_folder_is_a_table(table):
    rows = [
        json.dumps(dict(zip(("file_name", "label"), row.split(","), strict=True))) for row in TWO
    ]
    for path in (
        table("file_name,label", *TWO, name="metadata.csv"),
        table(rows[0], "", rows[1], " ", "", name="metadata.jsonl"),
    ):
        assert by_name(opened(path, path_column="file_name")) == {"0.png": 0, "1.png": 1}
    rows = [{"file_name": "0.png", "label": ["a", "b"]}, {"file_name": "1.png", "label": []}]
    path = table(*map(json.dumps, rows), name="metadata.jsonl")
    source = opened(path, path_column="file_name")
    assert by_name(source) == {"0.png": [1, 1], "1.png": [0, 0]}


def test_the_table_of_a_multi_label_export_of_roboflow_is_read(table):
    path = table("filename, cat, dog", "0.png, 1, 0", "1.png, 1, 1", name="_classes.csv")
    refused(path, "--path-column COLUMN .*--label-column cat,dog")
    source = opened(path, path_column="filename", label_column="cat,dog")
    assert by_name(source) == {"0.png": [1, 0], "1.png": [1, 1]}


def test_other_columns_are_named(table):
    path = table("where,breed,label", "0.png,cat,x", "1.png,dog,y")
    source = opened(path, path_column="where", label_column="breed")
    assert source.class_names == ("cat", "dog")
    assert opened(path, path_column="where").class_names == ("x", "y")
    refused(
        path,
        "labels.csv .*file,label .*: where, breed, label, ",
        path_column="file",
    )


@pytest.mark.parametrize(
    ("lines", "match"),
    [
        (['{"file_name": "0.png"}', "{"], "metadata.jsonl, line 2"),
        (["[1]"], "JSON objects"),
    ],
)
def test_a_damaged_line_of_json_is_named(table, lines, match):
    refused(table(*lines, name="metadata.jsonl"), match)


def test_a_single_column_of_0_and_1_is_named_with_its_flag(make_folder, tmp_path_factory):
    folder = make_folder({"x": 4})
    table = tmp_path_factory.mktemp("table") / "train.csv"
    table.write_text("path,has_cactus\n" + "".join(f"0{n}.png,{n % 2}\n" for n in range(4)))
    match = "--label-column has_cactus .*: path, has_cactus, "
    refused(table, match, data_dir=folder / "x")
    source = opened(table, data_dir=folder / "x", label_column="has_cactus", holdout=0)
    assert source.class_names == ("0", "1")


def test_images_without_labels_in_a_part_are_named(make_folder):
    folder = make_folder({"train/n01/images": 2, "train/n02/images": 2, "val/images": 3})
    hint = "the (test|validation) images .*images, .*--data TABLE"
    refused(folder, f"train without images; {hint}", labelled=True)


def test_a_class_with_another_capital_in_a_part_is_named(make_folder):
    folder = make_folder({"train/Cat": 2, "train/dog": 2, "test/cat": 2, "test/dog": 2})
    refused(folder, "test without Cat; 'Cat' and 'cat'")
