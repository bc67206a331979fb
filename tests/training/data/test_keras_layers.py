"""Keras's image layers as augmentations, drawn from the keys of images and steps."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.images.decoding import scale
from keras_vit.training import FineTuning
from keras_vit.training.data import TrainingBatches, open_source, training_batches
from keras_vit.training.data.augmentations import KeySeeds, make_layers
from keras_vit.training.data.examples import random_key
from makers import write_picture

SIZE = (8, 6)
OPTIONS = {"image_size": SIZE, "batch_size": 4, "seed": 7, "augmentation": "none"}
IMAGE_LAYERS = ("RandomErasing", "RandomGrayscale", "RandomColorJitter(hue_factor=0.5)")


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """Seven images with detail, of two classes."""
    root = tmp_path_factory.mktemp("noisy")
    rng = np.random.RandomState(0)
    for number in range(7):
        pixels = rng.randint(0, 256, (*SIZE, 3), dtype="uint8")
        write_picture(root / f"class {number % 2}" / f"{number}.png", pixels)
    return open_source(root, holdout=0, verify=False).splits["train"]


def batches(examples, count, **options):
    found = training_batches(examples, TrainingBatches(**{**OPTIONS, **options})).take(count)
    return list(found.as_numpy_iterator())


def test_an_image_is_what_keras_makes_of_it_with_its_key(noisy):
    """Keras's layer is called with its documented argument for seeds, image by image."""
    one = noisy.take([3])
    plain = batches(one, 1, value_range=(0, 255), layers=())[0][0]
    (found,) = batches(one, 1, layers=["RandomErasing(factor=1.0, scale=(0.1, 0.6))"])
    layer = keras.layers.RandomErasing(factor=1.0, scale=(0.1, 0.6))
    expected = []
    for epoch, image in enumerate(plain):
        seeds = KeySeeds(random_key(7, tf.constant(1), tf.constant(epoch), tf.constant(0)))
        drawn = layer.get_random_transformation(image[np.newaxis], seed=seeds)
        expected.append(scale(layer.transform_images(image[np.newaxis], drawn)[0], (-1, 1)))
    np.testing.assert_array_equal(found[0], expected)
    assert not np.array_equal(found[0], scale(plain, (-1, 1)))


def test_batches_depend_on_the_seed_alone(noisy):
    options = {"layers": (*IMAGE_LAYERS, "CutMix", "MixUp(0.5)"), "num_classes": 2}
    expected = batches(noisy, 4, **options)
    tf.random.set_seed(1)
    keras.utils.set_random_seed(2)
    rest = training_batches(noisy, TrainingBatches(**OPTIONS, start_step=2, **options))
    one_thread = tf.data.Options()
    one_thread.threading.private_threadpool_size = 1
    rest = list(rest.with_options(one_thread).take(2).as_numpy_iterator())
    parts = batches(noisy, 4, micro_batches=2, **options)
    micro = [tuple(map(np.concatenate, zip(*parts[i : i + 2], strict=True))) for i in (0, 2)]
    for found, same in ((rest, expected[2:]), (micro, expected[:2])):
        for arrays in zip(found, same, strict=True):
            for array, again in zip(*arrays, strict=True):
                np.testing.assert_array_equal(array, again)


def test_shards_of_a_batch_are_the_batch_and_another_seed_is_another_batch(noisy):
    whole, *shards, other = (
        # A shard would mix within itself; the layer of layers above takes long to trace.
        batches(noisy, 1, layers=IMAGE_LAYERS[:2], **options)[0][0]
        for options in ({}, {"shard": (0, 2)}, {"shard": (1, 2)}, {"seed": 8})
    )
    np.testing.assert_array_equal(np.concatenate(shards), whole)
    assert not np.array_equal(other, whole)


def test_the_labels_of_cutmix_are_the_shares_of_the_area(tmp_path):
    """A white and a black class: the mean of an image is its share of white."""
    for name, value in {"black": 0, "white": 255}.items():
        for number in range(4):
            write_picture(tmp_path / name / f"{number}.png", np.full((64, 64, 3), value, "uint8"))
    examples = open_source(tmp_path, holdout=0, verify=False).splits["train"]
    options = {"image_size": (64, 64), "value_range": (0, 1), "num_classes": 2, "batch_size": 8}
    found = batches(examples, 4, layers=("CutMix",), **options)
    images, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
    np.testing.assert_allclose(labels.sum(axis=1), 1, atol=1e-6)
    # Keras's share has fractions of pixels, its box whole ones: up to one of 64 on each side.
    np.testing.assert_allclose(labels[:, 1], images.mean(axis=(1, 2, 3)), atol=2 / 64)
    assert ((labels[:, 1] > 0.05) & (labels[:, 1] < 0.95)).mean() > 0.2


def test_layer_objects_are_written_to_json_and_made_again():
    layer = keras.layers.RandomZoom(0.3, fill_mode="constant")
    settings = FineTuning(layers=(layer, "CutMix"))
    again = FineTuning.from_json(json.loads(json.dumps(settings.to_json())))
    assert again == settings
    assert (
        FineTuning(layers=keras.layers.RandomZoom(0.3, fill_mode="constant")).layers
        == (
            settings.layers[:1]  # The layer's number in this process is left out.
        )
    )
    made, cut = make_layers(again.layers)
    assert {**made.get_config(), "name": layer.name} == layer.get_config()
    assert isinstance(cut, keras.layers.CutMix)


class Own(keras.layers.RandomGrayscale):
    """A layer that is not registered."""


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("RandomErase", "Received: RandomErase: Nearest: RandomErasing"),
        ("RandomRotation", r"RandomRotation: .*'factor'"),
        ("RandomErasing(2)", r"RandomErasing\(2\): .*in the range"),
        ("RandomErasing(open('x'))", "malformed"),
        ("RandomErasing(0.5", "never closed"),
        ("RandomColorJitter", "without a factor"),
        ("RandomCrop(4, 4)", "image's size"),
        ("RandomBrightness(0.1, value_range=(0, 1))", "pixels of 0 to 255"),
        ("AugMix", "for all images"),
        (keras.layers.Dense(2), "preprocessing layer"),
        (keras.layers.CutMix, "<class"),
        (Own(), "register"),
    ],
)
def test_layers_that_cannot_be_used_are_named(layer, message):
    with pytest.raises(ValueError, match=message) as error:
        make_layers([layer])
    assert len(str(error.value).splitlines()) == 1
