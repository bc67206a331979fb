"""Multi-label images, from the data to batches."""

import numpy as np
import pytest
from labelled_data import opened, refused

from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import (
    TrainingBatches,
    evaluation_batches,
    training_batches,
    write_records,
)
from keras_vit.training.data.parts import held_out

# Images of each set of labels, twice.
SETS = [("cat",), ("dog",), ("cat", "dog"), (), ("cat", "sea"), ("dog", "sea"), ("sea",)] * 2
HOT = [[int(name in names) for name in ("cat", "dog", "sea")] for names in SETS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, write_image):
    folder = tmp_path_factory.mktemp("several")
    for number in range(len(SETS)):
        write_image(folder / f"{number}.png", 10 * number)
    return folder


@pytest.fixture
def write_csv(folder):
    """A function that writes lines to a CSV file beside the images."""

    def write(*lines):
        path = folder / "labels.csv"
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    return write


def rows(cell):
    """A line for each image, with the text that `cell` gives for its labels."""
    return [f"{number}.png,{cell(names)}" for number, names in enumerate(SETS)]


@pytest.fixture
def semicolons(write_csv):
    return write_csv("path,label", *rows(lambda names: "; ".join(names)))


def test_semicolons_separate_the_labels_of_an_image(semicolons, write_csv):
    source = opened(semicolons, holdout=0)
    assert (source.task, source.class_names) == ("multilabel", ("cat", "dog", "sea"))
    labels = source.splits["train"].labels
    assert labels.dtype == "uint8"
    np.testing.assert_array_equal(labels, HOT)
    encoded = list(map(repr, source.splits["train"].encoded()))
    order = ("sea", "cat", "dog")  # A column of 0 and 1 for each class is the same.
    path = write_csv(
        f"path,{','.join(order)}",
        *rows(lambda names: ",".join(str(int(name in names)) for name in order)),
    )
    source = opened(path, holdout=0, label_column=",".join(order))
    assert list(map(repr, source.splits["train"].encoded())) == encoded


def test_the_setting_decides_where_every_image_has_one_label(write_csv, make_folder):
    path = write_csv("path,label", *[f"{n}.png,{'ab'[n % 2]}" for n in range(6)], "6.png,")
    refused(path, "--task multilabel .*row 8", holdout=0)
    labels = opened(path, holdout=0, task="multilabel").splits["train"].labels
    np.testing.assert_array_equal(labels, [[1, 0], [0, 1]] * 3 + [[0, 0]])
    source = opened(make_folder({"a": 3, "b": 2}), holdout=0, task="multilabel")
    np.testing.assert_array_equal(source.splits["train"].labels, [[1, 0]] * 3 + [[0, 1]] * 2)


def test_multi_label_data_are_refused_where_one_class_is_asked_for(write_csv):
    flags = rows(lambda names: ",".join(str(int(name in names)) for name in ("cat", "dog", "sea")))
    path = write_csv("path,cat,dog,sea", *flags)
    match = "multi-label: 8 images .* as .*2.png"
    refused(path, match, task="multiclass", label_column="cat,dog,sea")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("path,cat,cat", "0.png,1,0"), "each column once"),
        (("path,cat,dog", "0.png,1,maybe"), "0 or 1 .* in row 2"),
        (("path,cat,dog", "0.png,1"), "0 or 1 .* in row 2"),
        (("path,cat,dog", "0.png,1,0,1"), "row 2: .*quotes"),
        (("path,cat,dog;cow", "0.png,1,0", "1.png,1,1"), 'must not hold ";".*dog;cow'),
        (("path,cat,dog", "0.png,1,0", "1.png,1,0"), "two classes. Received: .* with 1 .cat"),
    ],
    ids=str,
)
def test_a_table_that_may_be_misread_is_refused(write_csv, lines, message):
    classes = lines[0].removeprefix("path,")
    refused(write_csv(*lines), message, holdout=0, label_column=classes)


def test_a_split_is_stratified_by_every_label():
    rng = np.random.default_rng(0)
    labels = (rng.random((2000, 8)) < np.geomspace(0.004, 0.5, 8)).astype("uint8")
    chosen = held_out(labels, 0.2, np.random.default_rng(3))
    counts, second = labels.sum(axis=0, dtype=int), labels[chosen].sum(axis=0, dtype=int)
    # Chance alone differs by sqrt(0.2 * 0.8 * n), up to 13 images.
    assert (np.abs(second - 0.2 * counts) <= 3).all()
    assert abs(chosen.sum() - 400) <= 12


def test_rare_labels_on_shared_images_are_in_both_parts():
    # A chain: each label on two images, each image with two labels.
    labels = np.eye(8, dtype="uint8") + np.roll(np.eye(8, dtype="uint8"), 1, axis=1)
    for seed in range(20):
        second = labels[held_out(labels, 0.5, np.random.default_rng(seed))].sum(axis=0)
        np.testing.assert_array_equal(second, 1)


def test_more_classes_move_the_labels_of_files_and_of_records(semicolons, tmp_path):
    source = opened(semicolons, holdout=0)
    write_records(source, tmp_path / "records")
    again = opened(tmp_path / "records", holdout=0)
    assert (again.task, again.class_names) == (source.task, source.class_names)
    wider = ("sea", "new", "cat", "dog")
    wanted = {tuple(hot): [hot[2], 0, hot[0], hot[1]] for hot in HOT}
    for data in (semicolons, tmp_path / "records"):
        narrow = opened(data, holdout=0)
        examples = narrow.with_classes(wider).splits["train"]
        expected = [wanted[tuple(row)] for row in narrow.splits["train"].labels.tolist()]
        np.testing.assert_array_equal(examples.labels, expected)
        assert examples.labels.dtype == "uint8"
        read = np.array([label for _, label in examples.encoded()])
        np.testing.assert_array_equal(read, expected)
        assert read.dtype == "uint8"


def test_batches_carry_the_labels_and_mixup_blends_them(semicolons):
    examples = opened(semicolons, holdout=0).splits["train"]
    preprocessing = Preprocessing((4, 4))
    batches = list(evaluation_batches(examples, preprocessing=preprocessing, batch_size=5))
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in batches]), HOT)
    options = {"image_size": (4, 4), "batch_size": 7, "seed": 0, "augmentation": "none"}
    _, labels = next(iter(training_batches(examples, TrainingBatches(**options))))
    options["num_classes"] = 3
    mixup = TrainingBatches(**options, mixup=0.5)
    _, mixed = next(iter(training_batches(examples, mixup)))
    labels, mixed = np.asarray(labels, "float32"), np.asarray(mixed)
    before = np.roll(labels, 1, axis=0)
    share = np.median(
        ((mixed - before) / np.where(labels == before, np.nan, labels - before))[labels != before]
    )
    np.testing.assert_allclose(mixed, share * labels + (1 - share) * before, atol=1e-6)
    assert 0.5 <= share < 1
    cutmix = TrainingBatches(**options, layers=("CutMix",))
    _, cut = next(iter(training_batches(examples, cutmix)))
    assert cut.dtype == "float32"
    np.testing.assert_allclose(np.clip(cut, 0, 1), cut, atol=1e-6)
    assert not np.array_equal(cut, labels)
