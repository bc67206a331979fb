"""Folders and CSV files of images, as files and in parts."""

import os
import pathlib
import re

import numpy as np
import pytest
from labelled_data import opened, refused

from keras_vit.training.data import DataSpec, open_source
from keras_vit.training.data.image_files import verify_files
from keras_vit.training.data.spec import check_output
from makers import encode

TWO_SPLITS = {"train/cat": 3, "train/dog": 4, "test/cat": 2, "test/dog": 1}


def all_names(source, *splits):
    return [name for split in splits or source.splits for name in source.splits[split].names]


@pytest.mark.parametrize(
    ("layout", "options", "counts"),
    [
        *[
            ({f"{part}/{name}": 1 for part in ("train", held_out) for name in "ab"}, {}, (2, 2))
            for held_out in ("val", "valid", "validation", "test")
        ],
        *[
            ({f"{p}/{c}": 1 for p in pair for c in "ab"}, {"folders": "parts"}, (2, 2))
            for pair in (("Training", "Testing"), ("TRAIN", "Holdout"), ("train", "eval"))
        ],
        ({f"{part}/{c}": 1 for part in ("train", "val", "test") for c in "ab"}, {}, (2, 2, 2)),
        ({"a": 20, "b": 10}, {}, (24, 6)),  # A fifth is held out.
        ({"a": 2, "b": 1}, {"holdout": 0}, (3,)),
        ({"a": 1, "b": 1}, {}, (2,)),  # No image to hold out.
    ],
    ids=str,
)
def test_the_parts_of_a_folder(make_folder, layout, options, counts):
    splits = opened(make_folder(layout), **options).splits
    names = ("train", "test") if len(counts) < 3 else ("train", "validation", "test")
    found = {name: len(part) for name, part in splits.items()}
    assert found == dict(zip(names, counts, strict=False))


def test_suffixes_of_any_case_count_and_other_and_hidden_files_do_not(make_folder, write_image):
    folder = make_folder({"a": 2, "b": 2})
    for name in ("x.PNG", "x.JPG", "x.Jpeg", "x.bmp", "x.GIF", "x.webp", "deep/er/x.png"):
        write_image(folder / "a" / name)
    hidden = (".x.png", ".cache/x.png", "._00.png", "../__MACOSX/a/x.png", "../.git/x.png")
    for name in hidden:
        write_image(folder / "a" / name)
    for name in ("a/Thumbs.db", "a/notes.txt", "readme.md"):
        (folder / name).write_text("no image")
    source = opened(folder, holdout=0)
    assert np.bincount(source.splits["train"].labels).tolist() == [9, 2]
    assert (source.skipped, source.notes) == ([], ("folders in a class belong to it: a/deep",))


def test_damaged_files_are_skipped_counted_and_named_or_stop(make_folder):
    folder = make_folder({"a": 6, "b": 4})
    whole = (folder / "a" / "00.png").read_bytes()
    (folder / "a" / "01.png").write_bytes(b"")
    (folder / "a" / "05.png").write_bytes(whole[:-20])
    (folder / "b" / "03.png").write_text("not an image")
    source = opened(folder, holdout=0, verify=True)
    assert len(source.splits["train"]) == 7
    assert dict(source.skipped) == {
        str(folder / "a" / "01.png"): "The file is empty.",
        str(folder / "a" / "05.png"): "The file is damaged.",
        str(folder / "b" / "03.png"): "An image must be JPEG, PNG, BMP, GIF, WebP, TIFF, AVIF or "
        "HEIC.",
    }
    assert not {path for path, _ in source.skipped} & set(all_names(source))
    refused(folder, r"a/01\.png .*is empty\.", verify=True, strict=True)
    assert len(opened(folder, holdout=0).splits["train"]) == 10  # Not looked at.


def test_examples_are_excluded_by_their_path(make_folder):
    folder = make_folder({"a": 2, "b": 2})
    whole = str(folder / "b" / "01.png")
    source = opened(folder, exclude=["./a/00.png", whole], holdout=0)
    assert [os.path.relpath(name, folder) for name in all_names(source)] == ["a/01.png", "b/00.png"]
    refused(folder, "Excluded images .* without 0.png", exclude=["0.png"])


@pytest.mark.parametrize(
    ("layout", "match"),
    [
        ({}, "images for each class"),
        ({".": 1}, "images for each class"),
        ({"cat": 3}, r"two classes.*, with 1 \(cat\)"),
        ({**TWO_SPLITS, "train/ant": 2}, "every class.*test without ant"),
        ({**TWO_SPLITS, "bird": 1}, "bird must .*--folders classes.*bird"),
    ],
    ids=str,
)
def test_a_folder_without_classes_of_all_parts(make_folder, layout, match):
    refused(make_folder(layout), match)


def test_data_that_are_no_images(make_folder):
    folder = make_folder({"a": 1, "b": 1})
    refused(folder / "missing", "missing; .*no such")
    (folder / "images.zip").write_text("")
    refused(folder / "images.zip", r"a table \(\.csv")
    refused(folder / "images.zip", r"a table \(\.csv", data_dir="x")
    refused(folder, "holdout must be", holdout=1)
    refused(folder, "data_dir goes with", data_dir="x")
    for label in "ab":
        (folder / label / "00.png").write_bytes(b"")
    refused(folder, r"none; .*skipped 2 files.*a/00\.png", verify=True)
    for label in "ab":
        (folder / label / "00.png").rename(folder / label / "x.txt")
    refused(folder, "images in the data.*, none")


def test_a_class_of_one_image_is_trained_on_and_a_line_says_that_it_is_not_tested(make_folder):
    source = opened(make_folder({"a": 2, "b": 1}))
    assert sorted(source.splits["train"].labels.tolist()) == [0, 1]
    assert source.splits["test"].labels.tolist() == [0]
    assert source.notes == ("not tested, as there is a single image: b",)


def test_an_output_in_the_folder_of_the_data_is_refused(make_folder):
    folder = make_folder({"cat": 2, "dog": 2})
    for output in (".", "new", "cat/new"):
        with pytest.raises(ValueError, match="outside of"):
            check_output(folder / output, folder)
    check_output(f"{folder}-run", folder)
    check_output(folder / "new", folder / "labels.csv")
    check_output("photos/new", "tfds:photos")


def test_a_link_into_a_folder_whose_name_begins_alike_leads_out(make_folder):
    folder = make_folder({"cat": 2, "dog": 2})
    outside = folder.with_name(f"{folder.name}2")
    outside.mkdir()
    photo = (folder / "cat" / "00.png").rename(outside / "00.png")
    (folder / "cat" / "00.png").symlink_to(photo)
    refused(folder, f"--follow-symlinks.* Received: .* {photo}")


def write_csv(folder, text):
    (folder / "labels.csv").write_text(text, encoding="utf-8-sig")
    return folder / "labels.csv"


def test_a_csv_file_lists_paths_labels_and_splits(make_folder):
    folder = make_folder({"x": 4})
    path = write_csv(
        folder,
        f'label,path\n"big, cat",x/00.png\ndog,x/01.png\ndog,{folder}/x/02.png\ndog,x/03.png\n',
    )
    source = opened(path, holdout=0)
    assert source.class_names == ("big, cat", "dog")
    assert source.splits["train"].labels.tolist() == [0, 1, 1, 1]
    moved = write_csv(folder / "x", "path,label\n00.png,a\n01.png,b\n")
    assert len(opened(moved, holdout=0).splits["train"]) == 2
    assert len(opened(path, data_dir=folder, holdout=0).splits["train"]) == 4
    rows = "x/00.png,1,train\nx/01.png,10,train\nx/02.png,10,val\nx/03.png,1,val\n"
    source = opened(write_csv(folder, f"path,label,split\n{rows}"))
    assert source.class_names == ("1", "10")
    assert source.splits["test"].labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "columns path,label"),
        ("path,label\n", "columns path,label .* rows"),
        ("where,breed\nx/00.png,a\n", "--path-column .*--label-column .*: where, breed, "),
        ("path,label\nx/00.png,a\nx/01.png,\n", "a label .* in row 3"),
        ("path,label\nx/00.png,a\nx/01.png\n", "a label .* in row 3"),
        ("path,label,split\nx/00.png,a,day\n", "split .* train, .* in row 2: .*day"),
        ("path,label\nx/00.png,a\nx/00.png,b\n", "once.* in row 3"),
        ("path,label\nx/00.png,a\nx/99.png,b\n", r"row 3: no such file: .*x/99\.png"),
    ],
)
def test_a_csv_file_with_a_mistake(make_folder, text, match):
    refused(write_csv(make_folder({"x": 2}), text), match)


@pytest.mark.parametrize("label", ["a", "b"])
@pytest.mark.parametrize("again", ["{folder}/x/00.png", "y/../x/00.png", "x//00.png", "link.png"])
def test_a_table_lists_a_file_once_by_whatever_path(make_folder, again, label):
    folder = make_folder({"x": 2, "y": 2})
    (folder / "link.png").symlink_to("x/00.png")
    rows = f"x/00.png,a\nx/01.png,b\n{again.format(folder=folder)},{label}\n"
    refused(write_csv(folder, f"path,label\n{rows}"), "file once")


@pytest.mark.parametrize("what", ["file", "class", "split"])
def test_links_out_of_the_folder_are_followed_only_on_request(what, make_folder, tmp_path_factory):
    folder = make_folder(TWO_SPLITS)
    place = folder / {"file": "train/cat/00.png", "class": "train/cat", "split": "train"}[what]
    outside = tmp_path_factory.mktemp("elsewhere") / place.name
    place.rename(outside)
    place.symlink_to(outside)
    refused(folder, f"--follow-symlinks.* Received: {place}.*{outside}")
    assert len(opened(folder, follow_symlinks=True).splits["train"]) == 7
    assert open_source(DataSpec(folder, follow_symlinks=True), verify=False).class_names == (
        "cat",
        "dog",
    )


def test_links_within_the_folder_and_to_it_are_followed(make_folder, tmp_path_factory):
    folder = make_folder(TWO_SPLITS)
    (folder / "train" / "cat" / "again.png").symlink_to(folder / "train" / "cat" / "00.png")
    link = tmp_path_factory.mktemp("elsewhere") / "link"
    link.symlink_to(folder)
    assert len(opened(link).splits["train"]) == 8
    rows = f"{folder}/train/cat/00.png,cat\n{folder}/train/dog/00.png,dog\n"
    assert (
        len(opened(write_csv(link.parent, f"path,label\n{rows}"), holdout=0).splits["train"]) == 2
    )
    (link.parent / "link.png").symlink_to(folder / "train" / "cat" / "00.png")
    refused(write_csv(link.parent, f"path,label\n{rows}link.png,cat\n"), "--follow-symlinks")


def test_names_that_are_no_utf_8_are_left_out_and_named_or_stop(make_folder):
    folder = make_folder({**TWO_SPLITS, "train/emu": 1})
    (folder / "train" / "cat" / "00.png").rename(folder / "train" / "cat" / "caf\udce9.png")
    (folder / "train" / "emu").rename(folder / "train" / "caf\udce9")
    source = opened(folder)
    assert (len(source.splits["train"]), source.class_names) == (6, ("cat", "dog"))
    assert [path[-12:] for path, _ in source.skipped] == ["udce9/00.png", "caf\\udce9.png"[-12:]]
    assert {reason for _, reason in source.skipped} == {"The name is not UTF-8."}
    refused(folder, "caf.* not UTF-8", strict=True)
    paths = [str(file) for file in sorted((folder / "train" / "cat").iterdir())]
    assert verify_files(paths).reasons == {2: "The name is not UTF-8."}


def test_the_lines_for_hugging_face_datasets_write_a_folder(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    page = pathlib.Path(__file__).parents[3] / "docs" / "data.md"
    (lines,) = re.findall(r"```python\n([^`]*datasets\.load_dataset[^`]*)```", page.read_text())
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    )
    encoded = [encode(np.full((4, 4, 3), number, "uint8")) for number in (10, 20, 30)]
    rows = {"image": [{"bytes": content, "path": None} for content in encoded], "label": [0, 1, 0]}
    data = datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows, features)})
    monkeypatch.setattr(datasets, "load_dataset", lambda name: data)
    monkeypatch.chdir(tmp_path)
    exec(lines, {})
    found = {
        path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in tmp_path.rglob("*.jpg")
    }
    names = ("cat/0.jpg", "dog/1.jpg", "cat/2.jpg")
    assert found == {f"photos/train/{name}": row for name, row in zip(names, encoded, strict=True)}
