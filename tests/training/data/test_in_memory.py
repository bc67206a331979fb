"""Arrays, `tf.data.Dataset`s and data frames give the batches of the same images in files."""

import io
import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.training.data import (
    DataSpec,
    open_source,
    training_batches,
)
from makers import write_picture

CLASSES = ("cat", "dog")
COUNTS = (13, 8)
SHAPE = (11, 14)


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (sum(COUNTS), *SHAPE, 3), "uint8")
    return images, np.repeat([0, 1], COUNTS)


@pytest.fixture(scope="module")
def folder(arrays, tmp_path_factory):
    """The same images in files, in the order of the arrays."""
    root = tmp_path_factory.mktemp("photos")
    for number, (pixels, label) in enumerate(zip(*arrays, strict=True)):
        write_picture(root / CLASSES[label] / f"{number:02}.png", pixels)
    return root


def pairs_of(arrays):
    return tf.data.Dataset.from_tensor_slices(arrays)


def of(examples):
    """Returns the pixels as Pillow reads them, and the labels, in order."""
    images, labels = zip(*examples.encoded(), strict=True)
    return [np.asarray(Image.open(io.BytesIO(image))) for image in images], np.array(labels)


def epoch_of(examples, epoch):
    """Returns bytes of the encoded image and label of each example of an epoch, in its order."""
    elements = examples.shuffled(7, epoch * len(examples)).take(len(examples))
    elements = elements.map(lambda handle, *_: examples.read(handle))
    return [(image, int(label)) for image, label in elements.as_numpy_iterator()]


def test_arrays_give_the_batches_of_the_same_files(arrays, folder):
    files = open_source(folder, seed=3)
    held = open_source(arrays, class_names=CLASSES, seed=3)
    assert held.class_names == files.class_names
    first, second = (
        training_batches(source.splits["train"], image_size=(8, 6), batch_size=4, seed=7).take(9)
        for source in (held, files)  # Two epochs and a little.
    )
    for one, other in zip(first.as_numpy_iterator(), second.as_numpy_iterator(), strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])
    # Names are places in the arrays.
    places = [int(name) for name in held.splits["test"].names]
    images, labels = of(held.splits["test"])
    np.testing.assert_array_equal(images, arrays[0][places])
    np.testing.assert_array_equal(labels, arrays[1][places])


@pytest.mark.parametrize("batch", [None, 4])
def test_a_dataset_gives_every_image_of_the_arrays_once_an_epoch(arrays, batch):
    pairs = pairs_of(arrays) if batch is None else pairs_of(arrays).batch(batch)
    held = open_source(arrays, seed=3).splits
    found = open_source(pairs, seed=3).splits
    for split in ("train", "test"):
        np.testing.assert_array_equal(of(found[split])[0], of(held[split])[0])
        np.testing.assert_array_equal(of(found[split])[1], held[split].labels)
        assert found[split].labels.dtype == held[split].labels.dtype == np.int32
    first, second = epoch_of(found["train"], 0), epoch_of(found["train"], 1)
    assert sorted(first) == sorted(second) == sorted(epoch_of(held["train"], 0))
    assert first != second


def test_a_frame_gives_the_batches_of_its_files(folder, monkeypatch):
    pandas = pytest.importorskip("pandas")
    files = open_source(folder, seed=3)
    rows = [
        (f"{name}/{path.name}", name)
        for name in CLASSES
        for path in sorted((folder / name).iterdir())
    ]
    frame = pandas.DataFrame(rows, columns=["path", "label"])
    for options in ({"data_dir": folder}, {}):
        monkeypatch.chdir(folder)
        found = open_source(frame, seed=3, **options)
        assert found.class_names == CLASSES
        names = [str(folder / name) for name in found.splits["train"].names]
        assert names == files.splits["train"].names
        assert found.splits["train"].labels.tolist() == files.splits["train"].labels.tolist()
    # Columns of classes, with pandas's own types and missing values.
    frame = frame.assign(cat=frame.label == "cat", furry=1.0, split=["train", "test", "val"] * 7)
    several = open_source(frame.drop(columns="label"), data_dir=folder)
    assert several.task == "multilabel"
    assert several.class_names == ("cat", "furry")
    assert {split: len(part) for split, part in several.splits.items()} == dict.fromkeys(
        ("train", "validation", "test"), 7
    )
    frame.loc[3, "split"] = None
    with pytest.raises(ValueError, match=r"Each row of the DataFrame .* Received in row 3: "):
        open_source(frame[["path", "label", "split"]], data_dir=folder)
    assert DataSpec(frame).name != DataSpec(frame.drop(columns="split")).name


@pytest.mark.parametrize("channels", [(), (1,)])
def test_grey_images_have_one_channel_or_none(arrays, channels):
    grey, labels = arrays[0][..., 0], arrays[1]
    images = grey.reshape(*grey.shape, *channels)
    for data in ((images, labels), pairs_of((images, labels)), pairs_of((images, labels)).batch(5)):
        found, of_images = of(open_source(data, holdout=0).splits["train"])
        np.testing.assert_array_equal(found, grey)
        np.testing.assert_array_equal(of_images, labels)


@pytest.mark.parametrize(
    ("labels", "names", "numbers"),
    [
        ([[1], [0], [1], [2]], ("0", "1", "2"), [1, 0, 1, 2]),  # As in keras.datasets.cifar10.
        (["b", "a", "b", "10"], ("10", "a", "b"), [2, 1, 2, 0]),
        ([b"2", b"10", b"2", b"10"], ("2", "10"), [0, 1, 0, 1]),
        ([True, False, True, False], ("0", "1"), [1, 0, 1, 0]),
    ],
)
def test_labels_are_numbers_or_names(labels, names, numbers):
    images = np.zeros((4, 2, 2), "uint8")
    for data in ((images, labels), pairs_of((images, np.array(labels)))):
        source = open_source(data, holdout=0)
        assert source.class_names == names
        assert source.splits["train"].labels.tolist() == numbers


def test_columns_of_zeros_and_ones_are_multi_label():
    flags = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 1]])
    images = np.zeros((3, 2, 2, 3), "uint8")
    for data in ((images, flags), pairs_of((images, flags)), pairs_of((images, flags)).batch(2)):
        source = open_source(data, class_names="abc", holdout=0)
        assert source.task == "multilabel"
        np.testing.assert_array_equal(source.splits["train"].labels, flags)
        np.testing.assert_array_equal(of(source.splits["train"])[1], flags)


def test_a_mapping_has_the_splits(arrays):
    images, labels = arrays
    data = {"train": pairs_of(arrays), "val": (images[:4], labels[:4]), "test": arrays}
    source = open_source(data, exclude=["test/2"], class_names=CLASSES)
    assert {split: len(part) for split, part in source.splits.items()} == {
        "train": 21,
        "validation": 4,
        "test": 20,
    }
    assert source.splits["test"].names[1:3] == ["test/1", "test/3"]
    assert open_source({"train": arrays, "val": arrays}).splits.keys() == {"train", "test"}


def test_a_dataset_may_have_images_of_different_sizes():
    def pairs():
        for number in range(6):
            yield np.full((2 + number, 3, 3), number, "uint8"), number % 2

    spec = tf.TensorSpec((None, None, 3), tf.uint8), tf.TensorSpec((), tf.int64)
    dataset = tf.data.Dataset.from_generator(pairs, output_signature=spec)
    train = open_source(dataset, holdout=0).splits["train"]
    images, labels = of(train)
    assert [(image.shape, image.max()) for image in images] == [
        ((2 + number, 3, 3), number) for number in range(6)
    ]
    assert len(set(epoch_of(train, 0))) == 6


def test_a_dataset_in_another_order_each_time_is_read_once(arrays):
    """A second pass would mix images that are held out with images that are trained on."""
    train = open_source(pairs_of(arrays).shuffle(21), holdout=0).splits["train"]
    label_of = {image.tobytes(): label for image, label in zip(*arrays, strict=True)}
    for image, label in zip(*of(train), strict=True):
        assert label_of[image.tobytes()] == label
    for epoch in (0, 1):
        assert sorted(epoch_of(train, epoch)) == sorted(train.encoded())


def test_the_name_of_the_data_is_a_hash_of_images_labels_and_order(arrays):
    images, labels = arrays
    name = DataSpec(arrays).name
    assert name.startswith("memory:")
    assert len(name) == len("memory:") + 16
    assert DataSpec(pairs_of(arrays).batch(4)).name == DataSpec(pairs_of(arrays)).name == name
    assert DataSpec((images.copy(), labels.astype("int8")), holdout=0.5).name == name
    changed = images.copy()
    changed[3, 2, 1, 0] ^= 1
    others = [(changed, labels), (images, 1 - labels), (images[::-1], labels[::-1])]
    others += [{"train": arrays}, (images.reshape(21, 14, 11, 3), labels), (images, labels == 1)]
    names = {DataSpec(other).name for other in others}
    assert len(names | {name}) == 6  # Numbers and booleans are the same labels.


def test_a_spec_of_arrays_is_written_by_name_and_needs_them_again(arrays):
    spec = DataSpec(arrays, class_names=CLASSES, split_seed=1)
    recipe = json.loads(json.dumps({"data": spec.to_json(), "settings": {"seed": 7}}))
    assert recipe["data"]["data"] == spec.name
    assert recipe["data"]["class_names"] == list(CLASSES)
    again = DataSpec.from_recipe_json(recipe, DataSpec(arrays))
    assert again.open().splits["test"].names == spec.open().splits["test"].names
    with pytest.raises(ValueError, match="must pass them again. Received: memory:"):
        DataSpec.from_recipe_json(recipe).open()
    with pytest.raises(ValueError, match="must match the run's, memory:.* Received: memory:"):
        DataSpec.from_recipe_json(recipe, DataSpec((arrays[0][1:], arrays[1][1:])))


IMAGES, LABELS = np.zeros((4, 2, 2, 3), "uint8"), [0, 1, 0, 1]
ENDLESS = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).repeat()


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ((IMAGES / 255, LABELS), {}, "range is not known. Received: float64"),
        (pairs_of(((IMAGES / 255), LABELS)), {}, "range is not known. Received: float64"),
        ((IMAGES.astype("int32"), LABELS), {}, "arrays of uint8.*Received: int32"),
        ((IMAGES.transpose(0, 3, 1, 2), LABELS), {}, r"of shape \(4, 3, 2, 2\)"),
        ((IMAGES[:0], np.zeros(0, int)), {}, "at least one. Received: 0 images"),
        (([IMAGES[0], IMAGES[0, :1]], [0, 1]), {}, "of one shape"),
        ((IMAGES, LABELS[:3]), {}, "same number.* Received: 4 images, 3 labels"),
        ((IMAGES, [0.0, 1.0, 0.0, 1.0]), {}, "class numbers.* Received: float64"),
        ((IMAGES, [-1, 1, 0, 1]), {}, "class numbers.* Received: int64"),
        (
            (IMAGES, [[0, 2], [1, 0]] * 2),
            {},
            r"zeros and ones.* of shape \(4, 2\)",
        ),
        ((IMAGES, ["a", "", "b", "b"]), {}, "or names.* Received: <U1"),
        ((IMAGES, [0, 0, 0, 0]), {}, "at least two classes. Received: the arrays, with 1"),
        ((IMAGES, LABELS), {"class_names": ["a"]}, "must be of the classes a .*Received: 1"),
        (
            (IMAGES, LABELS),
            {"class_names": ["a", "a"]},
            "a different name.*Received: a, a",
        ),
        (
            (IMAGES, list("abac")),
            {"class_names": "ab"},
            "of the classes a, b .*Received: c",
        ),
        ("photos", {"class_names": "ab"}, "class_names go with arrays.* Received: photos"),
        (IMAGES, {}, r"must be a path, a pair \(images, labels\).* Received: ndarray"),
        ({}, {}, "an empty mapping"),
        (
            {"all": (IMAGES, LABELS)},
            {},
            "train, validation, calibration or test, each once. Received: 'all'",
        ),
        ({"val": (IMAGES, LABELS), "dev": (IMAGES, LABELS)}, {}, "each once. Received: 'dev'"),
        ({"train": (IMAGES, LABELS), "test": (IMAGES, list("abab"))}, {}, "of the same kind"),
        (ENDLESS, {}, "must have an end"),
        (ENDLESS.take(0), {}, r"Received: float64 of shape \(0,\)"),
        (tf.data.Dataset.from_tensor_slices(IMAGES), {}, "must be of pairs .image, label."),
        ("memory:0123456789abcdef", {}, "must pass them again. Received: memory:0123456789abcdef"),
    ],
)
def test_other_data_are_refused_in_one_line(data, options, message):
    with pytest.raises(ValueError, match=message) as error:
        open_source(data, **options)
    assert "\n" not in str(error.value)


def test_data_without_a_training_part_are_refused(arrays):
    with pytest.raises(ValueError, match="images to train with. Received: only test"):
        DataSpec({"test": arrays}).open(0.1)
