import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.description import Description
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import open_source
from keras_vit.training.evaluation import embeddings, features, few_shot
from keras_vit.training.evaluation.predictions import EvaluatedModel, weights_hash
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
    found = features.feature_model(model)(images)
    assert found.shape == (2, 5)
    head = model.get_layer("predictions")
    np.testing.assert_allclose(head(found), model(images), atol=1e-6)


@pytest.mark.parametrize("classifier", ["token", "gap"])
def test_token_and_average_come_from_the_encoder(images, classifier):
    model = build(classifier=classifier)
    tokens = np.asarray(keras.Model(model.inputs, model.get_layer("encoder_norm").output)(images))
    average = features.feature_model(model, "avg")(images)
    patches = tokens[:, 1:] if classifier == "token" else tokens
    np.testing.assert_allclose(average, patches.mean(axis=1), atol=1e-6)
    if classifier == "token":
        found = features.feature_model(model, "token")(images)
        np.testing.assert_allclose(found, tokens[:, 0], atol=1e-6)
    else:
        with pytest.raises(ValueError, match="token a class token"):
            features.feature_model(model, "token")


def test_features_are_computed_once_for_the_same_content(folder, tmp_path):
    model, examples = build(), open_source(folder).splits["train"]
    given = {"preprocessing": PREPROCESSING, "cache": tmp_path / "cache"}
    first = features.extract(model, examples, **given, batch_size=2)
    moved = tmp_path / "moved"
    folder.joinpath("train").rename(moved)
    again = features.extract(build(), open_source(moved, holdout=0).splits["train"], **given)
    assert (first.cached, again.cached) == (False, True)
    np.testing.assert_array_equal(first.values, again.values)
    np.testing.assert_array_equal(first.labels, np.repeat([0, 1, 2], 3))


def test_without_a_home_features_are_not_stored(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "file" / "home"))
    assert features.default_cache() is None


def test_a_folder_for_features_is_tried_before_they_are_computed(folder, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(features, "predictions_of", None)
    given = {"preprocessing": PREPROCESSING, "cache": tmp_path / "file" / "cache"}
    with pytest.raises(OSError, match="file"):
        features.extract(build(), open_source(folder).splits["train"], **given)


def test_other_weights_images_or_preprocessing_are_other_features(folder):
    model, source = build(), open_source(folder)
    train, test = source.splits["train"], source.splits["test"]
    other = build()
    other.get_layer("encoder_norm").gamma.assign_add(np.eye(8, dtype="float32")[0] * 1e-3)
    keys = {
        features._key(m, e, p, f)
        for m, e, p, f in (
            (model, train, PREPROCESSING, "pre_logits"),
            (model, train, PREPROCESSING, "avg"),
            (model, test, PREPROCESSING, "pre_logits"),
            (model, train, Preprocessing((8, 8), "resize_central_crop"), "pre_logits"),
            (other, train, PREPROCESSING, "pre_logits"),
        )
    }
    assert len(keys) == 5
    assert weights_hash(model) != weights_hash(other)


def test_few_shot_evaluation_is_exact_on_separable_images(folder):
    model = EvaluatedModel(build(), Description(preprocessing=PREPROCESSING), "tiny", "random")
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


def test_an_image_is_nearest_to_itself_and_the_first_of_equals_wins():
    numbers, cosines = embeddings.nearest([[1, 0], [0, 2], [0, 1]], [[0, 5.0]], 2)
    assert numbers.tolist() == [[1, 2]]
    assert cosines.tolist() == [[1.0, 1.0]]


def test_wrong_features_are_refused():
    with pytest.raises(ValueError, match="same size. Received: 6 and 5"):
        embeddings.nearest(TRAIN, TEST[:, :5], 1)
    with pytest.raises(ValueError, match="count must be from 1 to 40"):
        embeddings.nearest(TRAIN, TEST, 41)
    with pytest.raises(ValueError, match="shape"):
        embeddings.nearest(TRAIN[0], TEST, 1)
