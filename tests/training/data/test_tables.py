"""Tables that replace the parts and labels of the data, and lists of images to leave out."""

import argparse
import dataclasses
import json

import pytest

from keras_vit.description.run_record import RunRecord
from keras_vit.description.without_paths import without_paths
from keras_vit.training.data import open_source
from keras_vit.training.data.spec import DataSpec
from keras_vit.utils.fields import add_arguments, from_arguments

LAYOUT = {"a": 4, "b": 4}
ROWS = {f"{name}/0{number}.png": name for name in LAYOUT for number in range(4)}
PARTS = ("train", "validation", "calibration", "test")
SPLIT = {path: PARTS[number % 4] for number, path in enumerate(ROWS)}


def names(spec, **options):
    splits = open_source(spec, verify=False, **options).splits
    return {
        part: [spec.relative(name) for name in examples.names] for part, examples in splits.items()
    }


def labels(spec, **options):
    source = open_source(spec, verify=False, **options)
    (examples,) = source.splits.values()
    return [source.class_names[number] for number in examples.labels]


def refused(spec, match):
    with pytest.raises(ValueError, match=match) as error:
        open_source(spec, 0.1, verify=False)
    assert "\n" not in str(error.value)


@pytest.fixture
def data(make_folder):
    return make_folder(LAYOUT)


def test_a_table_has_the_part_of_each_image(data, tmp_path):
    path = tmp_path / "split.csv"
    path.write_text("path,split\n" + "".join(f"{name},{part}\n" for name, part in SPLIT.items()))
    expected = {part: [f"a/0{n}.png", f"b/0{n}.png"] for n, part in enumerate(PARTS)}
    assert names(DataSpec(data, split=path)) == expected
    assert names(DataSpec(data, split=SPLIT)) == expected
    assert names(DataSpec(data, split=path.read_text().splitlines())) == expected


def test_paths_are_relative_to_a_csv_file_or_to_its_folder(data):
    table = data / "list.csv"
    table.write_text("path,label\n" + "".join(f"{p},{label}\n" for p, label in ROWS.items()))
    assert names(DataSpec(table, split=SPLIT))["test"] == ["a/03.png", "b/03.png"]
    moved = data / "lists" / "list.csv"
    moved.parent.mkdir()
    moved.write_text(table.read_text())
    assert names(DataSpec(moved, data, split=SPLIT))["test"] == ["a/03.png", "b/03.png"]


@pytest.mark.parametrize(
    ("flag", "table", "match"),
    [
        ("split", {**SPLIT, "a/99.png": "test"}, "a/99.png, which"),
        ("split", {**SPLIT, "a/00.png": "exam"}, "part .train, .*test. .*: 'exam' of a/00.png"),
        ("split", dict(list(SPLIT.items())[1:]), "Received: no row of a/00.png"),
        (
            "split",
            ["path,part", "a/00.png,train"],
            r"columns path,split. Received: \['path', 'part",
        ),
        ("split", ["path,split", "a/00.png,train", "./a/00.png,test"], "once.* in row 3"),
        ("split", dict.fromkeys(SPLIT, "test"), "images to train.*only test"),
        ("labels", {"a/00.png": "c"}, "Received: 'c' of a/00.png"),
        ("labels", {"a/00.png": ""}, "Received: '' of a/00.png"),
        ("labels", {"00.png": "b"}, "'a/00.png'.*: 00.png, which"),
        ("labels", {path: "b" for path in ROWS if path[0] == "a"}, "train without a"),
    ],
)
def test_a_table_with_a_mistake(data, flag, table, match):
    refused(DataSpec(data, **{flag: table}), match)


def test_an_image_that_is_left_out_needs_no_row(data):
    split = dict(list(SPLIT.items())[:-1])
    spec = DataSpec(data, split={**split, "a/03.png": "train"}, exclude=["b/03.png"])
    assert names(spec)["train"] == ["a/00.png", "a/03.png", "b/00.png"]
    with_row = dataclasses.replace(spec, split={**SPLIT, "a/03.png": "train"})
    assert names(with_row) == names(spec)


def test_a_table_has_other_labels_for_some_images(data):
    spec = DataSpec(data, holdout=0.0, labels={"a/01.png": "b", "b/03.png": "a"})
    assert labels(spec) == ["a", "b", "a", "a", "b", "b", "b", "a"]


def test_labels_of_a_multi_label_table_are_separated(data):
    table = data / "list.csv"
    table.write_text("path,label\na/00.png,x;y\na/01.png,x\na/02.png,y\n")
    spec = DataSpec(table, holdout=0.0, labels={"a/00.png": "y", "a/01.png": "x;y"})
    assert open_source(spec, verify=False).splits["train"].labels.tolist() == [
        [0, 1],
        [1, 1],
        [0, 1],
    ]
    spec = DataSpec(data, holdout=0.0, labels={"a/00.png": "a;b", "a/01.png": ""})
    refused(spec, "a, b.*'a;b' of a/00.png")
    found = (
        open_source(dataclasses.replace(spec, task="multilabel"), verify=False)
        .splits["train"]
        .labels
    )
    assert found[:3].tolist() == [[1, 1], [0, 0], [1, 0]]


@pytest.mark.parametrize("flag", ["split", "labels"])
def test_a_table_in_latin_1_is_refused_by_its_name(data, tmp_path, flag):
    path = tmp_path / "table.csv"
    path.write_bytes("path,label\na/00.png,caf\xe9\n".encode("latin-1"))
    with pytest.raises(ValueError, match='table.csv .*"CSV UTF-8"'):
        DataSpec(data, **{flag: path})


def spec_of_flags(*arguments):
    parser = argparse.ArgumentParser()
    add_arguments(parser, DataSpec)
    return from_arguments(DataSpec, parser.parse_args([*map(str, arguments)]))


TEXTS = {
    "exclude": "a/00.png\r\nb/01.png\r\n",
    "labels": "path,label\na/00.png,b\n",
    "split": "path,split\n" + "".join(f"{name},{part}\n" for name, part in SPLIT.items()),
}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("flag", [*TEXTS])
def test_a_file_with_a_byte_order_mark_is_read_by_flags_and_python(data, tmp_path, flag, encoding):
    plain, marked = tmp_path / "plain.txt", tmp_path / "marked.txt"
    plain.write_bytes(TEXTS[flag].encode())
    marked.write_bytes(TEXTS[flag].encode(encoding))
    expected = DataSpec(data, **{flag: plain})
    assert "".join(getattr(expected, flag)).isascii()
    assert DataSpec(data, **{flag: marked}) == expected
    assert spec_of_flags("--data", data, f"--{flag}", marked) == expected
    assert names(dataclasses.replace(expected, holdout=0.0))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-32", "latin-1"])
def test_a_list_in_another_encoding_is_refused_by_its_name(data, tmp_path, encoding):
    path = tmp_path / "list.txt"
    path.write_bytes("caf\xe9/0.png\n".encode(encoding))
    with pytest.raises(ValueError, match="list.txt .*UTF-8"):
        spec_of_flags("--data", data, "--exclude", path)
    with pytest.raises(ValueError, match="list.txt .*UTF-8"):
        DataSpec(data, exclude=path)


@pytest.mark.parametrize("form", [" a/00.png", "a/00.png\t", "a\\00.png", ".\\a\\00.png "])
def test_a_path_may_have_spaces_around_it_and_backslashes(data, form):
    assert "a/00.png" not in names(DataSpec(data, holdout=0.0, exclude=[form]))["train"]
    assert labels(DataSpec(data, holdout=0.0, labels={form: "b"}))[:2] == ["b", "a"]
    (data / "list.csv").write_text(f"path,label\n{form},a\nb/00.png,b\n")
    table = DataSpec(data / "list.csv", holdout=0.0)
    assert names(table) == {"train": ["a/00.png", "b/00.png"]}


@pytest.mark.parametrize("path", ["a/00.png ", "b/ 00.png", " a/00.png", "a/b\\00.png"])
def test_a_file_of_exactly_this_name_is_meant_first(data, path):
    (data / path).parent.mkdir(exist_ok=True)
    (data / path).write_bytes((data / "a" / "00.png").read_bytes())
    expected = {*names(DataSpec(data, holdout=0.0))["train"]} - {path}
    found = names(DataSpec(data, holdout=0.0, exclude=[path]), min_classes=0)["train"]
    assert {*found} == expected
    spec = DataSpec(data, split={**SPLIT, path: ""})
    assert names(spec, min_classes=0)["test"] == ["a/03.png", "b/03.png"]
    (data / "list.csv").write_text(f"path,label\n{path},a\nb/00.png,b\n")
    assert names(DataSpec(data / "list.csv", holdout=0.0)) == {"train": [path, "b/00.png"]}


def test_tables_go_with_image_files(tmp_path):
    (tmp_path / "index.npz").write_bytes(b"")
    refused(DataSpec(tmp_path, split=SPLIT), "split goes with folder")


COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


def test_both_forms_of_unicode_are_one_class_and_one_path(make_folder):
    data = make_folder({COMPOSED: 2, DECOMPOSED: 3, "b": 3})
    source = open_source(DataSpec(data, holdout=0.0), verify=False)
    assert source.class_names == ("b", COMPOSED)
    assert source.splits["train"].labels.tolist() == [0] * 3 + [1] * 5
    path = f"{COMPOSED}/02.png"  # On disk only in the other form.
    assert len(names(DataSpec(data, holdout=0.0, exclude=[path]))["train"]) == 7
    other = open_source(DataSpec(data, holdout=0.0, labels={path: "b"}), verify=False)
    assert other.splits["train"].labels.sum() == 4
    labels = {"b/00.png": DECOMPOSED}
    other = open_source(DataSpec(data, holdout=0.0, labels=labels), verify=False)
    assert other.splits["train"].labels.sum() == 6


@pytest.mark.parametrize("row", [f"{COMPOSED}.png,{DECOMPOSED}", f"{DECOMPOSED}.png,{COMPOSED}"])
def test_a_csv_file_has_names_and_labels_in_either_form_of_unicode(row, make_folder):
    data = make_folder({"a": 1, "b": 1})
    (data / "a" / "00.png").rename(data / f"{DECOMPOSED}.png")
    (data / "list.csv").write_text(f"path,label\n{row}\nb/00.png,b\n", encoding="utf-8")
    listed = open_source(DataSpec(data / "list.csv", holdout=0.0), verify=False)
    assert listed.splits["train"].names[0] == str(data / f"{DECOMPOSED}.png")
    assert listed.class_names == ("b", COMPOSED)


@pytest.mark.parametrize("twin", ["Cat", "cat\u200b", "c\uff41t", " cat"])
def test_classes_that_look_alike_are_named(twin, make_folder):
    source = open_source(DataSpec(make_folder({"cat": 2, twin: 2}), holdout=0.0), verify=False)
    first, second = sorted(["cat", twin])
    assert source.class_line.endswith(f"; {first!r} and {second!r} are taken as two classes")
    assert not source.notes


def test_recipe_json_has_the_content_of_the_tables(data):
    moved = "b (1)/x.png"  # Would be a path in a sentence.
    spec = DataSpec(data, split=SPLIT, labels={"a/01.png": "b", moved: "a"}, exclude=["a/00.png"])
    recipe = without_paths(json.loads(json.dumps({"data": spec.to_json()})))
    recipe["data"]["data"] = str(data)
    assert DataSpec.of_recipe(RunRecord.from_json(recipe)) == spec
