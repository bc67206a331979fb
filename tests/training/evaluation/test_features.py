import pathlib

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.description import Description
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import open_source
from keras_vit.training.evaluation import features, few_shot
from keras_vit.training.evaluation.predictions import EvaluatedModel, build_evaluated, weights_hash
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


def test_token_and_average_come_from_the_encoder(images):
    model = build()
    tokens = np.asarray(keras.Model(model.inputs, model.get_layer("encoder_norm").output)(images))
    assert tokens.shape == (2, 5, 8)
    token, average = (features.feature_model(model, name)(images) for name in ("token", "avg"))
    np.testing.assert_allclose(token, tokens[:, 0], atol=1e-6)
    np.testing.assert_allclose(average, tokens[:, 1:].mean(axis=1), atol=1e-6)


def test_a_model_without_a_class_token_averages_all_tokens(images):
    model = build(classifier="gap")
    tokens = np.asarray(keras.Model(model.inputs, model.get_layer("encoder_norm").output)(images))
    average = features.feature_model(model, "avg")(images)
    np.testing.assert_allclose(average, tokens.mean(axis=1), atol=1e-6)
    with pytest.raises(ValueError, match="token a class token"):
        features.feature_model(model, "token")


def test_a_model_without_a_head_gives_what_it_pools():
    pooled = build(include_top=False, pooling="avg")
    assert features.feature_model(pooled).output_shape == (None, 8)
    with pytest.raises(ValueError, match="pre_logits needs a head"):
        features.feature_model(build(include_top=False))


def test_other_models_have_pre_logits_only():
    inputs = keras.Input((8, 8, 3))
    model = keras.Model(inputs, keras.layers.Dense(2, name="predictions")(inputs[:, 0, 0]))
    assert features.feature_model(model).output_shape == (None, 3)
    with pytest.raises(ValueError, match="tokens of a Vision Transformer"):
        features.feature_model(model, "token")
    with pytest.raises(ValueError, match="must be one of"):
        features.feature_model(model, "logits")


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


def test_without_a_home_features_are_not_stored_and_a_line_says_so(monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "file" / "home"))
    assert features.default_cache() is None
    monkeypatch.delenv("KERAS_HOME")
    monkeypatch.setattr(pathlib.Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("none")))
    assert features.default_cache() is None
    assert capsys.readouterr().err.count("features are not stored (--cache DIR") == 2


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
    (part,) = report.parts
    assert part.accuracies[3] == {0: 1.0, 1: 1.0}
    assert (part.num_train, part.num_test, report.dim) == (9, 9, 8)
    (line,) = (line for line in str(report).splitlines() if line.startswith("    3  "))
    # The mean, then a column for each seed: 9 of 9 images.
    assert line.count("100.0% (70.1 to 100.0)") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "ViT-Ti/16"}, "needs weights"),
        ({"model": "nowhere/here"}, "No such folder or file: nowhere/here"),
        ({"model": "ViT-Tiny/16", "weights": "random"}, "Nearest: ViT-Ti/16"),
    ],
)
def test_a_wrong_model_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        build_evaluated(**arguments)
