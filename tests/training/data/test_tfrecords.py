import shutil

import numpy as np
import pytest
import tensorflow as tf
from labelled_data import in_order, numbers, refused

from keras_vit.training.data import (
    TrainingBatches,
    open_source,
    tfrecords,
    training_batches,
    write_records,
)

OPTIONS = {"image_size": (8, 6), "batch_size": 4, "seed": 7, "augmentation": "none"}


@pytest.fixture(scope="module")
def folder(write_images, tmp_path_factory):
    """Images as files."""
    layout = {"train/a": 12, "train/b": 8, "test/a": 3, "test/b": 3}
    return write_images(tmp_path_factory.mktemp("images"), layout)


@pytest.fixture(scope="module")
def written(folder, tmp_path_factory):
    """The same images as records, in shards of three or four images."""
    records = tmp_path_factory.mktemp("records")
    write_records(open_source(folder), records, seed=1, shard_mebibytes=500 / 2**20)
    return records


@pytest.fixture
def copied(written, tmp_path):
    """A copy of the records that a test may damage."""
    return shutil.copytree(written, tmp_path / "records")


def test_records_hold_the_original_images_labels_and_names(folder, written):
    before, after = open_source(folder), open_source(f"tfrecords:{written}")
    assert after.class_names == before.class_names == ("a", "b")
    for split, count in (("train", 20), ("test", 6)):
        ours, theirs = after.splits[split], before.splits[split]
        assert len(ours) == count
        found = dict(zip(in_order(ours), zip(ours.names, ours.labels, strict=True), strict=True))
        expected = zip(in_order(theirs), zip(theirs.names, theirs.labels, strict=True), strict=True)
        for number, (name, label) in expected:
            assert name.endswith(found[number][0])
            assert found[number][0].startswith(f"{split}/")
            assert found[number][1] == label


def test_shards_are_numbered_and_a_sample_of_all_classes(written):
    files = sorted(path.name for path in written.glob("train-*"))
    # Known as records by the content of the folder.
    assert len(open_source(written).splits["train"]) == 20
    assert len(files) > 3
    assert files[0] == f"train-00000-of-{len(files):05d}.tfrecord"
    labels = open_source(written).splits["train"].labels
    assert len(set(labels[:8].tolist())) == 2


@pytest.mark.parametrize("block", [1e9, 6])
def test_every_epoch_has_each_example_once_and_goes_on_anywhere(written, monkeypatch, block):
    train = open_source(written).splits["train"]
    monkeypatch.setattr(tfrecords, "BUFFER_BYTES", block * train._records.num_bytes / 20)
    seen = numbers(training_batches(train, TrainingBatches(**OPTIONS)).take(15).as_numpy_iterator())
    epochs = [seen[start : start + 20] for start in range(0, 60, 20)]
    assert all(sorted(epoch) == list(range(20)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 3
    later = TrainingBatches(**OPTIONS, start_step=8)
    rest = training_batches(train, later).take(7).as_numpy_iterator()
    assert numbers(rest) == seen[32:]


def test_the_files_of_other_examples_are_not_opened(copied):
    train = open_source(copied).splits["train"]
    start, last = train.take(range(3)), train.take(range(17, 20))
    whole, few = in_order(train), train.take([1, 5, 6])
    assert in_order(few) == [whole[1], whole[5], whole[6]]
    assert few.take([0, 2]).names == [train.names[1], train.names[6]]
    np.testing.assert_array_equal(few.labels, train.labels[[1, 5, 6]])
    min(copied.glob("train-*")).unlink()
    assert len(in_order(last)) == 3
    with pytest.raises(tf.errors.NotFoundError):
        in_order(start)


def damage(records, how):
    shard = sorted(records.glob("train-*"))[1]
    if how == "missing":
        shard.unlink()
    elif how == "cut":
        shard.write_bytes(shard.read_bytes()[:-9])
    elif how == "no names":
        (records / "classes.txt").unlink()
    elif how == "too few names":
        (records / "classes.txt").write_text("a\n")
    elif how == "index":
        (records / "index.npz").write_bytes(b"PK")


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ("missing", "No such file .*train-00001-of-"),
        ("cut", r"train-00001-of-.*\d+ bytes"),
        ("no names", r"No such file .*classes\.txt"),
        ("too few names", "1 classes"),
        ("index", r"damaged or incomplete.*index\.npz"),
    ],
)
def test_damage_is_reported_on_opening(copied, how, match):
    damage(copied, how)
    refused(copied, match)
    refused(f"tfrecords:{copied.parent}", "keras-vit records .*index.npz")


@pytest.mark.parametrize("label", [-1, 3, np.nan, 0.5])
def test_a_label_outside_of_the_classes_is_refused(copied, label):
    with np.load(copied / "index.npz") as arrays:
        index = dict(arrays)
    labels = index["train/labels"].astype(type(label))
    labels[2] = label
    np.savez(copied / "index.npz", **(index | {"train/labels": labels}))
    with pytest.raises(ValueError, match="damaged.*2 classes"):
        open_source(copied)


@pytest.mark.parametrize("name", ["a\x0cb", "a\nb", "a\x85b"])
def test_a_class_name_must_be_one_line_of_classes_txt(make_folder, name):
    folder = make_folder({"photos/c": 2, "photos/d": 2})
    (folder / "photos" / "d").rename(folder / "photos" / name)
    with pytest.raises(ValueError, match="Class names .*one line"):
        write_records(open_source(folder / "photos", holdout=0), folder / "new")
    assert not (folder / "new").exists()


def test_a_write_that_fails_leaves_nothing(make_folder):
    folder = make_folder({"train/a": 2, "train/b": 2, "test/a": 2, "test/b": 3})
    source = open_source(folder)
    (folder / "test" / "b" / "02.png").unlink()
    with pytest.raises(tf.errors.NotFoundError):
        write_records(source, folder / "new")
    assert [path.name for path in sorted(folder.iterdir())] == ["test", "train"]
