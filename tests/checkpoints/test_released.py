import pathlib
import shutil

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.catalogue import RELEASED, classifier_folder
from keras_vit.training.recipes import find_recipe

FOLDER = RELEASED["cifar10"].folder
NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


@pytest.fixture(scope="module")
def classifier():
    return keras_vit.load_classifier("cifar10")


def test_the_released_classifier_is_small_and_whole(classifier):
    assert classifier.class_names == tuple(NAMES)
    assert classifier.preprocessing.image_size == (32, 32)
    assert classifier.model.count_params() == 1_007_626
    assert sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) < 5_000_000


def test_its_accuracy_on_its_samples_is_that_of_its_recipe(classifier):
    samples = sorted((FOLDER / "samples").iterdir())
    top = [prediction.top[0][0] for prediction in classifier.predict(samples, top=1)]
    # An evenly spread choice of the test images, which are in the order of their classes.
    labels = [NAMES[index * len(NAMES) // len(samples)] for index in range(len(samples))]
    right = np.mean([a == b for a, b in zip(top, labels, strict=True)])
    # Three standard deviations of a share of so few images.
    spread = 3 * np.sqrt(0.25 / len(samples))
    assert abs(right - classifier.recipe["test"]["top_1"]) < spread


def test_its_settings_are_those_of_the_named_recipe(classifier):
    recipe = find_recipe(f"{classifier.recipe['model']} CIFAR-10")
    for name, value in recipe.settings.items():
        if name != "evaluate_every":  # It changes no number.
            saved = classifier.recipe["settings"][name] or 0
            assert (tuple(saved) if isinstance(value, tuple) else saved) == value, name


def test_weights_by_name_are_those_of_the_classifier(classifier):
    model = keras_vit.build("ViT-Mini/4", weights="cifar10")
    assert model.input_shape == (None, 32, 32, 3)
    assert model.output_shape == (None, 10)
    images = np.random.default_rng(0).uniform(-1, 1, (2, 32, 32, 3)).astype("float32")
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(model(images)),
        keras.ops.convert_to_numpy(classifier.model(images)),
    )


def test_other_classes_and_sizes_are_a_transfer():
    model = keras_vit.build("ViT-Mini/4", weights="cifar10", classes=3, input_shape=(48, 40, 3))
    assert not keras.ops.convert_to_numpy(model.get_layer("predictions").kernel).any()
    assert model.get_layer("position_embedding").grid == (12, 10)
    features = keras_vit.ViTMini4(weights="cifar10", include_top=False, pooling="token")
    assert features.output_shape == (None, 128)


def test_the_weights_are_of_one_model():
    with pytest.raises(ValueError, match=r"are of ViT-Mini/4\. Received: ViT-Ti/16"):
        keras_vit.build("ViT-Ti/16", weights="cifar10", classes=10)


def test_a_folder_of_that_name_goes_first(tmp_path, monkeypatch):
    assert classifier_folder("cifar10") == FOLDER
    monkeypatch.chdir(tmp_path)
    shutil.copytree(FOLDER, "cifar10")
    assert classifier_folder("cifar10") == pathlib.Path("cifar10")
    assert classifier_folder("runs/cifar10") == pathlib.Path("runs/cifar10")
