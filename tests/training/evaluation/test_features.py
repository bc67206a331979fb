import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.description import Description
from keras_vit.models.rebuild import feature_model
from keras_vit.predictor import Predictor
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import open_source
from keras_vit.training.evaluation import embeddings, few_shot
from keras_vit.training.evaluation.predictions import weights_hash
from makers import tiny_config, write_classes

TINY = tiny_config(width=8)
PREPROCESSING = Preprocessing((8, 8))


def build(**changes):
    keras.utils.set_random_seed(0)
    return keras_vit.build(TINY, input_shape=(8, 8, 3), classes=3, **changes)


@pytest.fixture
def folder(tmp_path):
    """Six images each of three classes that differ in colour, half of them to test."""
    colors = {"class 0": (200, 50, 50), "class 1": (50, 200, 50), "class 2": (50, 50, 200)}
    return write_classes(tmp_path, {"train": 3, "test": 3}, colors, size=(9, 9), noise=30)


@pytest.fixture
def images():
    return np.random.default_rng(0).uniform(-1, 1, (2, 8, 8, 3)).astype("float32")


def test_pre_logits_are_what_the_head_reads(images):
    model = build(representation_size=5, classifier_activation=None)
    for layer in model.layers:
        if layer.name == "predictions":
            layer.kernel.assign(np.random.default_rng(0).normal(size=layer.kernel.shape))
    found = feature_model(model)(images)
    assert found.shape == (2, 5)
    head = model.get_layer("predictions")
    np.testing.assert_allclose(head(found), model(images), atol=1e-6)


@pytest.mark.parametrize("classifier", ["token", "gap"])
def test_token_and_average_come_from_the_encoder(images, classifier):
    model = build(classifier=classifier)
    tokens = np.asarray(keras.Model(model.inputs, model.get_layer("encoder_norm").output)(images))
    average = feature_model(model, "avg")(images)
    patches = tokens[:, 1:] if classifier == "token" else tokens
    np.testing.assert_allclose(average, patches.mean(axis=1), atol=1e-6)
    if classifier == "token":
        found = feature_model(model, "token")(images)
        np.testing.assert_allclose(found, tokens[:, 0], atol=1e-6)
    else:
        with pytest.raises(ValueError, match="a class token"):
            feature_model(model, "token")


def test_other_weights_have_another_hash():
    model, other = build(), build()
    assert weights_hash(model) == weights_hash(other)
    other.get_layer("encoder_norm").gamma.assign_add(np.eye(8, dtype="float32")[0] * 1e-3)
    assert weights_hash(model) != weights_hash(other)


def test_few_shot_evaluation_is_exact_on_separable_images(folder):
    model = Predictor.of(build(), Description(preprocessing=PREPROCESSING))
    report = few_shot.evaluate(model, open_source(folder), shots=(1, 3), seeds=(0, 1), l2=1.0)
    assert report.accuracies[3] == {0: 1.0, 1: 1.0}
    assert (report.num_train, report.num_test, report.dim) == (9, 9, 8)
    (line,) = (line for line in str(report).splitlines() if line.startswith("3  "))
    # The mean, then a column for each seed: 9 of 9 images.
    assert line.count("100.0% (70.1 to 100.0)") == 3


RNG = np.random.default_rng(0)
TRAIN, TEST = RNG.normal(size=(40, 6)), RNG.normal(size=(25, 6))


def test_neighbours_are_in_the_order_of_the_cosine(monkeypatch):
    monkeypatch.setattr(embeddings, "_SIMILARITIES", 3 * len(TRAIN))  # Three queries at once.
    numbers, cosines = embeddings.nearest(TRAIN, TEST, 40)
    for query, row, values in zip(TEST, numbers, cosines, strict=True):
        angles = [query @ t / np.linalg.norm(query) / np.linalg.norm(t) for t in TRAIN]
        np.testing.assert_allclose(values, sorted(angles, reverse=True), atol=1e-6)
        np.testing.assert_allclose(np.array(angles)[row], values, atol=1e-6)
