"""Examples: parts of them, draws, the weights of their classes, and a mix of two data sets."""

import collections

import numpy as np
import pytest

from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import (
    TrainingBatches,
    evaluation_batches,
    open_source,
    training_batches,
    write_records,
)
from keras_vit.training.data.examples import MixedExamples, balanced_class_weight
from keras_vit.training.data.image_files import FileExamples
from keras_vit.training.data.parts import Drawing, draw


def numbered(labels):
    return FileExamples([str(number) for number in range(len(labels))], np.array(labels))


def test_a_split_takes_its_share_of_every_class():
    labels = [0] * 50 + [1] * 10 + [2] * 2 + [3]
    rest, part = draw(numbered(labels), 0.1, "test", Drawing((), 0))
    assert np.bincount(part.labels, minlength=4).tolist() == [5, 1, 1, 0]
    assert sorted(rest.names + part.names, key=int) == [str(n) for n in range(63)]
    assert part.names != draw(numbered(labels), 0.1, "test", Drawing((), 1))[1].names


LABELS = np.array([0] * 6 + [1] * 3 + [2])
NAMES = ("cat", "dog", "sea")


def test_balanced_weights_are_those_of_scikit_learn():
    weighting = pytest.importorskip("sklearn.utils.class_weight")
    expected = weighting.compute_class_weight("balanced", classes=np.arange(3), y=LABELS)
    found = balanced_class_weight(LABELS, NAMES)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert np.mean(np.array(found)[LABELS]) == pytest.approx(1)
    with pytest.raises(ValueError, match="training image.*none of sea"):
        balanced_class_weight(LABELS[:-1], NAMES)


def test_balanced_multi_label_weights_make_both_answers_weigh_the_same():
    labels = np.array([[1, 0], [1, 1], [1, 0], [0, 1], [1, 0]], "uint8")
    assert balanced_class_weight(labels, NAMES[:2]) == pytest.approx((1 / 4, 3 / 2))
    with pytest.raises(ValueError, match="every image.*: dog"):
        balanced_class_weight(np.array([[1, 1], [0, 1]], "uint8"), NAMES[:2])


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
    found = labels(training_batches(mixed, TrainingBatches(**OPTIONS)), 40)
    is_second = found >= 2
    assert is_second.sum() == 60  # 60 of 200.
    ends = np.cumsum(is_second)
    np.testing.assert_array_equal(ends, np.floor(np.arange(1, 201) * SHARE + 1e-9))
    # Each data set has its own epochs.
    assert collections.Counter(found[~is_second][:135]) == {0: 75, 1: 60}
    assert collections.Counter(found[is_second]) == {2: 30, 3: 30}


def test_examples_do_not_depend_on_batches_and_start(mixed):
    whole = training_batches(mixed, TrainingBatches(**OPTIONS)).take(12)
    images = np.concatenate([batch for batch, _ in whole.as_numpy_iterator()])
    later = training_batches(mixed, TrainingBatches(**OPTIONS, start_step=7)).take(5)
    again = np.concatenate([batch for batch, _ in later.as_numpy_iterator()])
    np.testing.assert_array_equal(images[35:], again)
    other = training_batches(mixed, TrainingBatches(**{**OPTIONS, "batch_size": 12})).take(5)
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


def test_a_share_of_a_class_is_rounded():
    # 1.7, 0.6, 0.2 and 0.1 images; at least one of a class of two, and none of a class of one.
    labels = [0] * 17 + [1] * 6 + [2] * 2 + [3]
    _, part = draw(numbered(labels), 0.1, "test", Drawing((), 0))
    assert np.bincount(part.labels, minlength=4).tolist() == [2, 1, 1, 0]


def test_the_drawn_images_of_a_seed_stay_the_same():
    labels = [0] * 17 + [1] * 6 + [2] * 2 + [3]
    _, part = draw(numbered(labels), 0.1, "test", Drawing((), 0))
    assert part.names == ["2", "10", "17", "24"]
