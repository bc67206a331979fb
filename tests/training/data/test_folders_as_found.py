"""Folders with links, what systems put into them, archives and tables beside the images."""

import os
import tarfile

import pytest
from labelled_data import opened as opened_with, refused

from keras_vit.images.listing import image_files
from keras_vit.training.data.class_folders import ARCHIVE, NO_CLASS


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
    match = f"--follow-symlinks .* Received: {linked}/cat/more, .*/more"
    refused(linked, match)
    refused(linked, match, labelled=False)


def test_a_linked_folder_to_the_same_data_is_refused_too(make_folder):
    folder = make_folder({"cat": 2, "dog": 2})
    (folder / "cat" / "more").symlink_to(folder / "dog")
    refused(folder, "be links")
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
    refused(tmp_path, "images for each class.*/photos.zip")
    refused(tmp_path / "photos.zip", "a table .*archive")


# Tables in the folder


@pytest.mark.parametrize("place", [".", "images"])
@pytest.mark.parametrize("table", ["my labels.csv", "annotations/metadata.jsonl"])
def test_a_folder_of_photos_with_a_table_names_the_line_that_reads_it(make_folder, place, table):
    folder = make_folder({place: 2})
    (folder / table).parent.mkdir(exist_ok=True)
    (folder / table).write_text("path,label\n00.png,cat\n01.png,dog\n")
    refused(folder, f"--data {folder}/{table}")
