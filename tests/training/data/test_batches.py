import sys

import numpy as np
import pytest
import tensorflow as tf
from labelled_data import numbers

from keras_vit.images.decoding import apply_preprocessing
from keras_vit.images.transcoding import read_image
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import (
    TrainingBatches,
    evaluation_batches,
    open_source,
    training_batches,
)
from makers import write_picture

OPTIONS = {"image_size": (8, 6), "batch_size": 4, "seed": 7}


@pytest.fixture(scope="module")
def examples(write_images, tmp_path_factory):
    """Ten images; the number of each is its grey value."""
    folder = write_images(tmp_path_factory.mktemp("images"), {"a": 7, "b": 3})
    return open_source(folder, holdout=0, verify=False).splits["train"]


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """Seven images with detail, as JPEG, so that crops and flips differ."""
    root = tmp_path_factory.mktemp("noisy")
    rng = np.random.RandomState(0)
    for number in range(7):
        pixels = rng.randint(0, 256, (40, 30 + number, 3), dtype="uint8")
        write_picture(root / f"class {number % 2}" / f"{number}.jpg", pixels)
    return open_source(root, holdout=0, verify=False).splits["train"]


@pytest.fixture(scope="module")
def expected(noisy):
    """Nine batches of the noisy images."""
    return batches(noisy, 9)


def batches(examples, count, **options):
    found = training_batches(examples, TrainingBatches(**{**OPTIONS, **options})).take(count)
    return [(images, labels) for images, labels in found.as_numpy_iterator()]


def test_every_epoch_has_each_labelled_example_once_in_its_own_order(examples):
    found = batches(examples, 10)
    for images, labels in found:
        assert (images.shape, images.dtype, labels.dtype) == ((4, 8, 6, 3), "float32", "int32")
        assert labels.tolist() == [int(number >= 7) for number in numbers([(images, 0)])]
    seen = [n for images, _ in found for n in numbers([(images, 0)])]
    epochs = [seen[start : start + 10] for start in range(0, 40, 10)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_no_function_of_a_pipeline_is_rewritten_by_autograph(noisy):
    def rewritten():
        return {name for name in sys.modules if name.startswith("__autograph_generated_file")}

    before = rewritten()
    options = {"mixup": 0.5, "num_classes": 2, "augmentation": "medium1", "shard": (0, 2)}
    assert len(batches(noisy, 1, **options)) == 1
    preprocessing = Preprocessing((8, 6))
    for _ in evaluation_batches(noisy, preprocessing=preprocessing, batch_size=4):
        pass
    assert len(list(noisy.encoded())) == 7
    assert rewritten() == before
    tf.data.Dataset.range(1).map(lambda number: number + 1)
    assert rewritten() > before  # Else `unconverted` can leave.


def test_data_may_be_fewer_than_a_batch(examples):
    ((images, _),) = batches(examples.take([0, 8]), 1, batch_size=5)
    assert sorted(numbers([(images, 0)])) in ([0, 0, 0, 8, 8], [0, 0, 8, 8, 8])


def test_training_goes_on_from_any_step_as_if_it_had_not_stopped(noisy, expected):
    for start in (1, 7):
        rest = batches(noisy, 9 - start, start_step=start)
        for (images, labels), (again, labels_again) in zip(expected[start:], rest, strict=True):
            np.testing.assert_array_equal(images, again)
            np.testing.assert_array_equal(labels, labels_again)


def test_mixup_goes_on_from_any_step_with_the_shares_of_that_step(noisy):
    options = {"mixup": 0.5, "num_classes": 2}
    whole = batches(noisy, 5, **options)
    rest = batches(noisy, 3, start_step=2, **options)
    for (images, labels), (again, labels_again) in zip(whole[2:], rest, strict=True):
        np.testing.assert_array_equal(images, again)
        np.testing.assert_array_equal(labels, labels_again)


def test_mixup_draws_another_share_in_each_step(noisy):
    found = batches(noisy, 5, mixup=0.5, num_classes=2)
    shares = [labels.max() if labels.max() < 1 else labels.min() for _, labels in found]
    assert len({round(float(share), 6) for share in shares}) > 1


def test_batches_do_not_depend_on_anything_but_the_seed(noisy, expected):
    tf.random.set_seed(1)
    serial = training_batches(noisy, TrainingBatches(**OPTIONS))
    options = tf.data.Options()
    options.threading.max_intra_op_parallelism = 1
    options.threading.private_threadpool_size = 1
    options.autotune.enabled = False
    serial = serial.with_options(options).take(6)
    for (images, labels), (again, labels_again) in zip(expected[:6], serial, strict=True):
        np.testing.assert_array_equal(images, again)
        np.testing.assert_array_equal(labels, labels_again)
    other = batches(noisy, 1, seed=8)
    assert not np.array_equal(expected[0][0], other[0][0])


def test_an_image_is_augmented_anew_in_every_epoch(noisy):
    one = noisy.take([3])
    images = np.concatenate([images for images, _ in batches(one, 3)])
    assert len({image.tobytes() for image in images}) == 12


def test_shards_are_the_parts_of_every_batch(noisy, expected):
    shards = [batches(noisy, 5, shard=(part, 2)) for part in range(2)]
    for step, batch in enumerate(expected[:5]):
        for index, whole in enumerate(batch):
            joined = np.concatenate([shard[step][index] for shard in shards])
            np.testing.assert_array_equal(joined, whole)


def test_evaluation_has_each_example_once_in_order(examples):
    preprocessing = Preprocessing((8, 6))
    dataset = evaluation_batches(examples, preprocessing=preprocessing, batch_size=4)
    found = list(dataset.as_numpy_iterator())
    assert [len(labels) for _, labels in found] == [4, 4, 2]
    assert dataset.cardinality() == 3
    assert [n for images, _ in found for n in numbers([(images, 0)])] == list(range(10))
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in found]), examples.labels)


def test_evaluations_with_the_same_arguments_share_a_pipeline(examples):
    images = examples.take(range(4))
    given = {"preprocessing": Preprocessing((8, 6)), "batch_size": 3}
    first = evaluation_batches(images, **given)
    assert evaluation_batches(images, **given) is first
    assert len(list(evaluation_batches(images, **given | {"batch_size": 4}))) == 1
    ((_, labels),) = evaluation_batches(images.take([3]), **given)
    assert labels.numpy().tolist() == [images.labels[3]]


@pytest.mark.parametrize("evaluation", ["resize", "resize_small_central_crop"])
def test_evaluation_preprocesses_as_prediction_does(noisy, evaluation):
    preprocessing = Preprocessing((9, 12), evaluation, (0, 1))
    dataset = evaluation_batches(noisy, preprocessing=preprocessing, batch_size=7)
    ((images, _),) = dataset.as_numpy_iterator()
    for image, path in zip(images, noisy.names, strict=True):
        np.testing.assert_array_equal(image, apply_preprocessing(read_image(path), preprocessing))


@pytest.mark.parametrize("options", [{"mixup": 0.5, "num_classes": 2}, {}], ids=str)
@pytest.mark.parametrize("count", [2, 4])
def test_micro_batches_of_a_step_are_the_batch_of_the_step(noisy, options, count):
    for start in (0, 2):
        whole = batches(noisy, 3, start_step=start, **options)
        parts = batches(noisy, 3 * count, start_step=start, micro_batches=count, **options)
        for step, expected in enumerate(whole):
            of_step = parts[count * step : count * (step + 1)]
            for part, array in zip(zip(*of_step, strict=True), expected, strict=True):
                assert {len(rows) for rows in part} == {4 // count}
                np.testing.assert_array_equal(np.concatenate(part), array)
    found = training_batches(noisy, TrainingBatches(**OPTIONS, micro_batches=count, **options))
    assert found.element_spec[0].shape == (4 // count, 8, 6, 3)
    assert found.cardinality() == tf.data.INFINITE_CARDINALITY


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"augmentation": "autoaugment"}, "augmentation .*'inception_crop'"),
        ({"augmentation": "medium1"}, "num_classes must be given"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"start_step": -1}, "start_step=-1"),
        ({"shard": (2, 2)}, r"shard=\(2, 2\)"),
        ({"shard": (0, 3)}, r"shard=\(0, 3\)"),
        ({"micro_batches": 0}, "micro_batches=0"),
        ({"shard": (0, 2), "micro_batches": 4}, "micro_batches=4"),
    ],
)
def test_wrong_numbers_are_refused(examples, wrong, match):
    with pytest.raises(ValueError, match=match):
        training_batches(examples, TrainingBatches(**{**OPTIONS, **wrong}))
    with pytest.raises(ValueError, match="one example"):
        training_batches(examples.take([]), TrainingBatches(**OPTIONS))
