"""Examples of two data sets in one, for training and evaluation."""

import collections

import numpy as np
import pytest

from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import evaluation_batches, open_source, training_batches, write_records
from keras_vit.training.data.mixed import MixedExamples
from keras_vit.training.data.parts import draw

SHARE = 0.3
OPTIONS = {"image_size": (4, 4), "batch_size": 5, "seed": 7}


@pytest.fixture(scope="module")
def parts(write_images, tmp_path_factory):
    """Nine images in files, classes 0 and 1, and four in records, classes 2 and 3."""
    new, old, records = (tmp_path_factory.mktemp(name) for name in ("new", "old", "records"))
    first = open_source(write_images(new, {"a": 5, "b": 4}), holdout=0, verify=False)
    second = open_source(write_images(old, {"c": 2, "d": 2}), holdout=0, verify=False)
    write_records(second, records)
    second = open_source(records, holdout=0)
    names = ("a", "b", "c", "d")
    return [source.with_classes(names).splits["train"] for source in (first, second)]


@pytest.fixture(scope="module")
def mixed(parts):
    return MixedExamples(*parts, SHARE)


def labels(batches, count):
    return np.concatenate([of_batch for _, of_batch in batches.take(count).as_numpy_iterator()])


def test_the_second_has_its_share_of_any_run_of_examples(mixed):
    found = labels(training_batches(mixed, **OPTIONS), 40)
    is_second = found >= 2
    assert is_second.sum() == 60  # 60 of 200.
    ends = np.cumsum(is_second)
    np.testing.assert_array_equal(ends, np.floor(np.arange(1, 201) * SHARE + 1e-9))
    # Each data set has its own epochs.
    assert collections.Counter(found[~is_second][:135]) == {0: 75, 1: 60}
    assert collections.Counter(found[is_second]) == {2: 30, 3: 30}


def test_examples_do_not_depend_on_batches_and_start(mixed):
    whole = training_batches(mixed, **OPTIONS).take(12)
    images = np.concatenate([batch for batch, _ in whole.as_numpy_iterator()])
    later = training_batches(mixed, **OPTIONS, start_step=7).take(5)
    again = np.concatenate([batch for batch, _ in later.as_numpy_iterator()])
    np.testing.assert_array_equal(images[35:], again)
    other = training_batches(mixed, **{**OPTIONS, "batch_size": 12}).take(5)
    np.testing.assert_array_equal(
        images, np.concatenate([batch for batch, _ in other.as_numpy_iterator()])
    )


def test_in_evaluation_every_example_occurs_once(parts, mixed):
    batches = evaluation_batches(mixed, preprocessing=Preprocessing((4, 4)), batch_size=4)
    assert (
        labels(batches, 4).tolist()
        == mixed.labels.tolist()
        == [0] * 5 + [1] * 4 + [*parts[1].labels]
    )
    assert list(mixed.names) == [*parts[0].names, *parts[1].names]
    assert len(mixed) == 13


def test_parts_are_of_both(parts, mixed):
    few = mixed.take([1, 8, 9, 12])
    assert few.labels.tolist() == [0, 1, parts[1].labels[0], parts[1].labels[3]]
    assert [label for _, label in few.encoded()] == few.labels.tolist()
    assert mixed.take([2, 3]).names == parts[0].names[2:4]
    assert mixed.take([11]).names == parts[1].names[2:3]
    rest, held_out = draw(mixed, 0.5, 0, "test", None)
    assert sorted([*rest.names, *held_out.names]) == sorted(mixed.names)
    double = mixed.repeated(np.full(13, 2))
    assert double.labels.tolist() == np.repeat(mixed.labels, 2).tolist()
