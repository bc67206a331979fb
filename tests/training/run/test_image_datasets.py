"""Photos as train, validation and test for Keras's fit."""

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit.training.data import DataSpec, open_source
from keras_vit.training.run.image_datasets import image_datasets
from keras_vit.training.settings import FineTuning
from makers import write_classes


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_classes(tmp_path_factory.mktemp("data") / "photos", 20, size=(24, 32))


@pytest.fixture(scope="module")
def datasets(photos):
    return image_datasets(str(photos), image_size=(16, 16), batch_size=8)


def test_the_parts_are_those_of_the_command(photos, datasets):
    source = open_source(str(photos), FineTuning().validation_share, split_seed=0)
    cases = [*source.splits.items()]
    assert cases
    for part, examples in cases:
        assert datasets.source.splits[part].names == examples.names


def test_the_images_are_those_of_keras_without_its_interpolation(photos, datasets):
    images, labels = next(iter(datasets.test))
    assert images.shape == (8, 16, 16, 3)
    assert images.dtype == "float32"
    first = np.asarray(Image.open(datasets.source.splits["test"].names[0]), "float32")
    np.testing.assert_allclose(np.mean(images[0], (0, 1)), first.mean((0, 1)), atol=3)
    assert datasets.test.class_names == datasets.class_names
    assert labels.numpy().tolist() == datasets.source.splits["test"].labels[:8].tolist()


def test_training_photos_come_once_an_epoch_in_another_order(datasets):
    epochs = [np.concatenate([images for images, _ in datasets.train]) for _ in range(2)]
    sums = [epoch.sum((1, 2, 3)) for epoch in epochs]
    assert len(sums[0]) == len(datasets.source.splits["train"])
    assert not np.array_equal(*sums)
    np.testing.assert_allclose(np.sort(sums[0]), np.sort(sums[1]))


def test_a_model_is_fitted_and_evaluated_with_its_references(datasets):
    train, validation, _ = datasets
    scale = keras.layers.Rescaling(1 / 127.5, -1)
    head = keras.layers.Dense(len(datasets.class_names), "softmax")
    model = keras.Sequential([scale, keras.layers.Flatten(), head])
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    model.fit(train, validation_data=validation, epochs=2, verbose=0)
    report = datasets.evaluate(model)
    assert report.count == len(datasets.source.splits["test"])
    assert [name.split(",")[0] for name, *_ in report.references][0].startswith("always")
    assert len(report.references) == 2
    expected = model.predict(datasets.test, verbose=0).argmax(axis=1)
    np.testing.assert_array_equal(report.given, expected)


def test_photos_without_a_test_part_are_not_evaluated(photos):
    datasets = image_datasets(DataSpec(str(photos), holdout=0.0), image_size=(16, 16))
    assert datasets.test is None
    with pytest.raises(ValueError, match="needs test photos"):
        datasets.evaluate(None)


def test_the_name_is_public():
    assert keras_vit.image_datasets is image_datasets


def test_a_number_is_the_size_of_squares(photos):
    datasets = image_datasets(photos, image_size=16)
    assert next(iter(datasets.train))[0].shape[1:] == (16, 16, 3)
    assert datasets.image_size == (16, 16)
