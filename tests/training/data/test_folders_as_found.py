"""Folders with links, what systems put into them, archives and tables beside the images."""

import json
import os
import tarfile

import pytest
from labelled_data import opened as opened_with, refused

from keras_vit.images.listing import image_files
from keras_vit.training.data.image_files import ARCHIVE, NO_CLASS, NO_ROW


def opened(data, **options):
    return opened_with(data, **{"holdout": 0, **options})


def counts(source):
    """The number of images of each class in each part."""
    return {
        part: {
            name: int((examples.labels == number).sum())
            for number, name in enumerate(source.class_names)
        }
        for part, examples in source.splits.items()
    }


# Linked folders


@pytest.fixture
def linked(make_folder, tmp_path_factory, write_images):
    """Two classes of two images, with a link in one to a folder of three images elsewhere."""
    folder = make_folder({"cat": 2, "dog": 2})
    more = write_images(tmp_path_factory.mktemp("elsewhere"), {"more": 2, "more/deep": 1}) / "more"
    (folder / "cat" / "more").symlink_to(more)
    return folder


def test_a_linked_folder_in_a_class_is_read_on_request(linked):
    source = opened(linked, follow_symlinks=True)
    assert counts(source) == {"train": {"cat": 5, "dog": 2}}
    walked = [name for _, _, names in os.walk(linked / "cat", followlinks=True) for name in names]
    assert len(walked) == 5


def test_a_linked_folder_in_a_class_is_refused_by_name_without_the_request(linked):
    match = f"must not be links; --follow-symlinks .* Received: {linked}/cat/more, which is .*/more"
    refused(linked, match)
    refused(linked, match, labelled=False)


def test_a_linked_folder_to_the_same_data_is_refused_too(make_folder):
    folder = make_folder({"cat": 2, "dog": 2})
    (folder / "cat" / "more").symlink_to(folder / "dog")
    refused(folder, "must not be links")
    assert counts(opened(folder, follow_symlinks=True))["train"] == {"cat": 4, "dog": 2}


@pytest.mark.parametrize("target", [".", "..", "../..", "deep"])
def test_links_that_lead_back_are_read_once(linked, target):
    (linked / "cat" / "deep").mkdir()
    (linked / "cat" / "deep" / "loop").symlink_to(target)
    os.symlink(target, linked / "loop")
    source = opened(linked, follow_symlinks=True)
    assert counts(source)["train"] == {"cat": 5, "dog": 2}


def test_links_that_lead_to_each_other_end(linked):
    (linked / "cat" / "dogs").symlink_to(linked / "dog")
    (linked / "dog" / "cats").symlink_to(linked / "cat")
    found = opened(linked, follow_symlinks=True).splits["train"].names
    real = {os.path.realpath(path) for path in found}
    assert (len(real), len(found)) == (7, 14)  # Each class has the images of both.


def test_predict_lists_the_images_of_linked_folders(linked):
    (linked / "dog" / "loop").symlink_to(linked)
    assert len(image_files(linked)) == 7


# What systems and people put beside photos

SYSTEM = (
    "@eaDir",
    "@Recycle",
    "#recycle",
    "#snapshot",
    "$RECYCLE.BIN",
    "System Volume Information",
    "lost+found",
    "__MACOSX",
    ".@__thumb",
    ".Trash-1000",
)


@pytest.mark.parametrize("name", SYSTEM)
def test_folders_of_the_system_are_neither_classes_nor_photos(make_folder, name):
    folder = make_folder({"cat": 2, "dog": 2})
    make_folder({name: 1, f"cat/{name}": 1, f"cat/deep/{name}/x.jpg": 1, f"cat/{name.upper()}": 1})
    source = opened(folder)
    assert counts(source) == {"train": {"cat": 2, "dog": 2}}
    assert (source.notes, source.skipped) == ((), [])
    assert len(image_files(folder)) == 4


def test_a_photo_beside_train_and_test_is_counted_and_named(make_folder):
    folder = make_folder({**{f"{part}/{c}": 1 for part in ("train", "test") for c in "ab"}, ".": 1})
    assert opened(folder).skipped == [(str(folder / "00.png"), NO_CLASS)]
    assert opened(folder, labelled=False).skipped == [(str(folder / "00.png"), NO_CLASS)]


@pytest.mark.parametrize("place", [".", "cat", "cat/deep"])
def test_an_archive_among_the_photos_is_named(make_folder, place):
    folder = make_folder({"cat": 2, "dog": 2, "cat/deep": 1})
    tarfile.open(folder / place / "more.tar.gz", "w:gz").close()
    path = os.path.normpath(folder / place / "more.tar.gz")
    assert opened(folder).skipped == [(path, ARCHIVE)]


def test_a_folder_of_an_archive_only_says_that_it_must_be_unpacked(tmp_path):
    (tmp_path / "photos.zip").write_bytes(b"PK")
    refused(tmp_path, "must hold a folder of images for each class.*/photos.zip must be unpacked")
    refused(tmp_path / "photos.zip", r"must be a table .*, and an archive be unpacked")


# Tables in the folder


@pytest.mark.parametrize("place", [".", "images"])
@pytest.mark.parametrize("table", ["my labels.csv", "annotations/instances.json"])
def test_a_folder_of_photos_with_a_table_names_the_line_that_reads_it(make_folder, place, table):
    folder = make_folder({place: 2})
    (folder / table).parent.mkdir(exist_ok=True)
    (folder / table).write_text("path,label\n00.png,cat\n01.png,dog\n")
    refused(folder, f"must hold a folder of images .*; --data {folder}/{table} reads a table")


def metadata(folder, rows, name):
    """Writes rows of a path and a label as Hugging Face's ImageFolder reads them."""
    if name.endswith(".csv"):
        text = "file_name,label\n" + "".join(f"{path},{label}\n" for path, label in rows)
    else:
        pairs = [dict(zip(("file_name", "label"), row, strict=True)) for row in rows]
        text = "".join(f"{json.dumps(pair)}\n" for pair in pairs)
    (folder / name).write_text(text)


LABELS = [("00.png", "cat"), ("01.png", "dog")]


@pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl"])
@pytest.mark.parametrize("place", [".", "images", "a/b"])
def test_metadata_beside_photos_have_the_labels(make_folder, name, place):
    folder = make_folder({place: 3})
    metadata(folder, [(f"{place}/{path}", label) for path, label in LABELS], name)
    source = opened(folder)
    assert counts(source) == {"train": {"cat": 1, "dog": 1}}
    assert source.notes[-1] == f"the labels come from {folder / name}"
    left = os.path.normpath(folder / place / "02.png")
    assert [(os.path.normpath(p), r) for p, r in source.skipped] == [(left, NO_ROW)]


@pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl"])
@pytest.mark.parametrize("at", ["parts", "root"])
def test_metadata_of_parts_have_the_labels(make_folder, name, at):
    folder = make_folder({"train": 2, "validation": 2})
    for part in ("train", "validation") if at == "parts" else ():
        metadata(folder / part, LABELS, name)
    if at == "root":
        rows = [(f"{part}/{p}", label) for part in ("train", "validation") for p, label in LABELS]
        metadata(folder, rows, name)
    assert counts(opened(folder)) == {part: {"cat": 1, "dog": 1} for part in ("train", "test")}


def test_an_image_that_two_tables_list_is_refused(make_folder):
    folder = make_folder({"train": 2, "test": 2})
    metadata(folder / "train", LABELS, "metadata.csv")
    metadata(folder, [("train/00.png", "cat"), ("test/00.png", "dog")], "metadata.csv")
    refused(folder, "Tables in a folder must list each image once")


def test_an_image_beside_the_parts_that_a_table_lists_is_trained_on(make_folder):
    folder = make_folder({"train": 2, "test": 2, ".": 1})
    rows = [(f"{part}/{path}", label) for part in ("train", "test") for path, label in LABELS]
    metadata(folder, [("00.png", "cat"), *rows], "metadata.csv")
    assert counts(opened(folder)) == {"train": {"cat": 2, "dog": 1}, "test": {"cat": 1, "dog": 1}}


def test_a_multi_label_export_of_roboflow_is_read_from_its_folder(make_folder):
    folder = make_folder({"train": 3, "valid": 2, "test": 2})
    for part, rows in {
        "train": ["00.png, 1, 0", "01.png, 1, 1", "02.png, 0, 0"],
        "valid": ["00.png, 1, 0", "01.png, 0, 1"],
        "test": ["00.png, 0, 1", "01.png, 1, 1"],
    }.items():
        (folder / part / "_classes.csv").write_text("\n".join(["filename, cat, dog", *rows]))
    source = opened(folder)
    assert (source.task, source.class_names) == ("multilabel", ("cat", "dog"))
    found = {part: examples.labels.tolist() for part, examples in source.splits.items()}
    assert found == {
        "train": [[1, 0], [1, 1], [0, 0]],
        "validation": [[1, 0], [0, 1]],
        "test": [[0, 1], [1, 1]],
    }


def test_one_table_of_several_labels_makes_all_parts_multi_label(make_folder):
    folder = make_folder({"train": 2, "test": 2})
    metadata(folder / "train", [("00.png", ["cat", "dog"]), ("01.png", ["dog"])], "metadata.jsonl")
    metadata(folder / "test", LABELS, "metadata.jsonl")
    found = opened(folder).splits
    assert found["train"].labels.tolist() == [[1, 1], [0, 1]]
    assert found["test"].labels.tolist() == [[1, 0], [0, 1]]


def test_folders_have_the_labels_before_metadata_with_a_line(make_folder):
    folder = make_folder({"cat": 2, "dog": 2})
    metadata(folder, [("cat/00.png", "puma")], "metadata.csv")
    source = opened(folder)
    assert source.class_names == ("cat", "dog")
    line = f"the labels are the folders; --data {folder}/metadata.csv reads the table"
    assert source.notes == (line,)
