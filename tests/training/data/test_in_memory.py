"""Arrays give the batches of the same images in files."""

import io
import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.description.run_record import RunRecord
from keras_vit.training.data import DataSpec, TrainingBatches, open_source, training_batches
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


def of(examples):
    """Returns the pixels as Pillow reads them, and the labels, in order."""
    images, labels = zip(*examples.encoded(), strict=True)
    return [np.asarray(Image.open(io.BytesIO(image))) for image in images], np.array(labels)


def test_arrays_give_the_batches_of_the_same_files(arrays, folder):
    files = open_source(folder, seed=3)
    held = open_source(arrays, class_names=CLASSES, seed=3)
    assert held.class_names == files.class_names
    given = TrainingBatches(image_size=(8, 6), batch_size=4, seed=7)
    first, second = (
        training_batches(source.splits["train"], given).take(9)
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


@pytest.mark.parametrize("channels", [(), (1,)])
def test_grey_images_have_one_channel_or_none(arrays, channels):
    grey, labels = arrays[0][..., 0], arrays[1]
    images = grey.reshape(*grey.shape, *channels)
    found, of_images = of(open_source((images, labels), holdout=0).splits["train"])
    np.testing.assert_array_equal(found, grey)
    np.testing.assert_array_equal(of_images, labels)


@pytest.mark.parametrize(
    ("labels", "names", "numbers"),
    [
        ([[1], [0], [1], [2]], ("0", "1", "2"), [1, 0, 1, 2]),  # As in keras.datasets.cifar10.
        (["b", "a", "b", "10"], ("10", "a", "b"), [2, 1, 2, 0]),
        ([b"2", b"10", b"2", b"10"], ("2", "10"), [0, 1, 0, 1]),
        ([True, False, True, False], ("0", "1"), [1, 0, 1, 0]),
        ([[1, 1], [0, 0], [0, 1], [0, 1]], ("0", "1"), [[1, 1], [0, 0], [0, 1], [0, 1]]),
    ],
)
def test_labels_are_numbers_or_names_or_columns_of_zeros_and_ones(labels, names, numbers):
    images = np.zeros((4, 2, 2), "uint8")
    source = open_source((images, labels), holdout=0)
    assert source.class_names == names
    assert source.splits["train"].labels.tolist() == numbers
    np.testing.assert_array_equal(of(source.splits["train"])[1], numbers)


def test_a_mapping_has_the_splits(arrays):
    images, labels = arrays
    data = {"train": arrays, "val": (images[:4], labels[:4]), "test": arrays}
    source = open_source(data, exclude=["test/2"], class_names=CLASSES)
    assert {split: len(part) for split, part in source.splits.items()} == {
        "train": 21,
        "validation": 4,
        "test": 20,
    }
    assert source.splits["test"].names[1:3] == ["test/1", "test/3"]
    assert open_source({"train": arrays, "val": arrays}).splits.keys() == {"train", "test"}


def test_a_spec_of_arrays_is_written_by_name_and_needs_them_again(arrays):
    spec = DataSpec(arrays, class_names=CLASSES, split_seed=1)
    recipe = json.loads(json.dumps({"data": spec.to_json(), "settings": {"seed": 7}}))
    assert recipe["data"]["data"] == spec.name
    assert recipe["data"]["class_names"] == list(CLASSES)
    again = DataSpec.of_recipe(RunRecord.from_json(recipe), DataSpec(arrays))
    assert open_source(again).splits["test"].names == open_source(spec).splits["test"].names
    with pytest.raises(ValueError, match="passed again .* memory:"):
        open_source(DataSpec.of_recipe(RunRecord.from_json(recipe)))
    with pytest.raises(ValueError, match="run's, memory:.* memory:"):
        DataSpec.of_recipe(RunRecord.from_json(recipe), DataSpec((arrays[0][1:], arrays[1][1:])))


IMAGES, LABELS = np.zeros((4, 2, 2, 3), "uint8"), [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ((IMAGES / 255, LABELS), {}, "range .*float64"),
        ((IMAGES.transpose(0, 3, 1, 2), LABELS), {}, r"of shape \(4, 3, 2, 2\)"),
        ((IMAGES[:0], np.zeros(0, int)), {}, "0 images"),
        (([IMAGES[0], IMAGES[0, :1]], [0, 1]), {}, "inhomogeneous shape"),
        ((IMAGES, LABELS[:3]), {}, "4 images, 3 labels"),
        ((IMAGES, [0.0, 1.0, 0.0, 1.0]), {}, "class numbers.*float64"),
        ((IMAGES, [-1, 1, 0, 1]), {}, "class numbers.*int64"),
        ((IMAGES, [[0, 2], [1, 0]] * 2), {}, r"zeros and ones.*\(4, 2\)"),
        ((IMAGES, ["a", "", "b", "b"]), {}, "<U1"),
        ((IMAGES, LABELS), {"class_names": ["a"]}, "Received: a; labels 1"),
        ((IMAGES, LABELS), {"class_names": ["a", "a"]}, "different name.*: a, a"),
        ((IMAGES, list("abac")), {"class_names": "ab"}, "Received: a, b; labels c"),
        ("photos", {"class_names": "ab"}, "class_names .*: photos"),
        (IMAGES, {}, r"\(images, labels\).*ndarray"),
        ({}, {}, "an empty mapping"),
        ({"all": (IMAGES, LABELS)}, {}, "each once.*'all'"),
        ({"val": (IMAGES, LABELS), "dev": (IMAGES, LABELS)}, {}, "each once.*'dev'"),
        ({"train": (IMAGES, LABELS), "test": (IMAGES, list("abab"))}, {}, "same kind"),
        (
            "memory:0123456789abcdef",
            {},
            "passed again .*memory:0123456789abcdef",
        ),
    ],
)
def test_other_data_are_refused_in_one_line(data, options, message):
    with pytest.raises(ValueError, match=message) as error:
        open_source(data, **options)
    assert "\n" not in str(error.value)


def test_labels_may_be_texts_of_numpys_own_type():
    labels = np.array(["b", "a", "b", "a"], np.dtypes.StringDType())
    source = open_source((IMAGES, labels), holdout=0)
    assert source.class_names == ("a", "b")
    assert source.splits["train"].labels.tolist() == [1, 0, 1, 0]


def test_a_frame_is_refused_with_how_to_pass_it():
    class DataFrame:
        pass

    with pytest.raises(ValueError, match="to_csv.*DataFrame"):
        open_source(DataFrame())


def test_a_tf_data_set_is_refused_with_what_to_give():
    with pytest.raises(ValueError, match="the folder that it was made from.*_RangeDataset"):
        open_source(tf.data.Dataset.range(3))
