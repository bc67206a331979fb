"""Exports of models whose positions are resized by each rule."""

import itertools

import keras
import numpy as np
import pytest
from npm_packages import installed

import keras_vit
import keras_vit.export
from keras_vit.checkpoints.resize import resize_positions
from keras_vit.classifier_folder import save_classifier
from keras_vit.configs.position_resize import RULES
from keras_vit.export.artefacts import open_export
from keras_vit.export.html import VERSION
from keras_vit.models.rebuild import resized_model
from keras_vit.preprocessing import Preprocessing
from makers import tiny_config

SMALL, LARGE, PATCH = (32, 24), (48, 40), 8
FIRST = "bicubic_dinov2"  # By default; it has all parts of a rule but antialiasing.
OTHERS = [rule for rule in RULES if rule != FIRST]
NAMES = {"tflite": "a.tflite", "onnx": "a.onnx", "openvino": "a", "saved_model": "b"}
PIXELS = np.random.default_rng(2).integers(0, 256, (2, *LARGE, 3), dtype="uint8")
IMAGES = (PIXELS / 127.5 - 1).astype("float32")


def grid(size):
    return tuple(side // PATCH for side in size)


SLOW = [pytest.param(rule, marks=pytest.mark.slow) for rule in OTHERS]


@pytest.fixture(scope="module", params=[FIRST, *SLOW])
def models(request):
    """A model of a rule, and one of larger images whose positions NumPy or Pillow resized."""
    keras.utils.set_random_seed(0)
    config = tiny_config(patch_size=PATCH, position_resize=request.param)
    small, large = (
        keras_vit.build(config, input_shape=(*size, 3), classes=3) for size in (SMALL, LARGE)
    )
    for name in ("position_embedding", "predictions"):
        for weight in small.get_layer(name).weights:
            weight.assign(np.random.default_rng(1).normal(size=weight.shape))
    for layer in large.layers:
        if layer.name != "position_embedding":
            layer.set_weights(small.get_layer(layer.name).get_weights())
    table = np.asarray(small.get_layer("position_embedding").embedding)[0]
    resized = resize_positions(table[1:], grid(SMALL), grid(LARGE), request.param)
    table = np.concatenate([table[:1], resized.reshape(-1, table.shape[1])])
    large.get_layer("position_embedding").embedding.assign(table[np.newaxis])
    return small, large.predict_on_batch(IMAGES)


def saved(model, size, folder):
    rng = np.random.default_rng(0)
    classifier = save_classifier(folder, model, ("a", "b", "c"), Preprocessing(size))
    (folder / "samples").mkdir()
    for number in range(3):
        pixels = rng.integers(0, 256, (40, 50, 3), dtype="uint8")
        keras.utils.save_img(folder / "samples" / f"{number}.png", pixels, scale=False)
    return classifier


def test_a_saved_model_of_further_sizes_has_the_rule_of_the_model(models, tmp_path):
    small, expected = models
    classifier = saved(small, SMALL, tmp_path / "classifier")
    keras_vit.export.saved_model(classifier.folder, tmp_path / "1", image_sizes=[LARGE])
    signature = open_export(tmp_path / "1").signatures()["serve_48x40"]
    np.testing.assert_allclose(signature.probabilities(IMAGES), expected, atol=1e-5)


@pytest.mark.parametrize("kind", NAMES)
def test_exports_of_a_resized_model_have_the_rule_of_the_model(kind, models, tmp_path):
    small, expected = models
    classifier = saved(resized_model(small, LARGE), LARGE, tmp_path / "classifier")
    options = {} if kind == "saved_model" else {"input": "float"}
    getattr(keras_vit.export, kind)(classifier.folder, tmp_path / NAMES[kind], **options)
    signature = open_export(tmp_path / NAMES[kind]).signatures()["serve"]
    answers = [signature.probabilities(IMAGES[index : index + 1]) for index in range(2)]
    np.testing.assert_allclose(np.concatenate(answers), expected, atol=1e-5)


@pytest.mark.slow
def test_the_page_of_a_resized_model_has_the_rule_of_the_model(models, tmp_path, tmp_path_factory):
    pytest.importorskip("playwright", reason='pip install -e ".[web]"')
    package = f"onnxruntime-web@{VERSION}"
    runtime = installed("ONNXRUNTIME_WEB", package, tmp_path_factory, "onnxruntime-web/dist")
    small, expected = models
    classifier = saved(resized_model(small, LARGE), LARGE, tmp_path / "classifier")
    keras_vit.export.html(classifier.folder, tmp_path / "a.html", runtime=runtime)
    signature = open_export(tmp_path / "a.html").signatures()["serve"]  # In Chromium.
    np.testing.assert_allclose(signature.probabilities(PIXELS), expected, atol=1e-5)


def test_rules_differ():
    table = np.random.default_rng(0).normal(size=(30, 4)).astype("float32")
    smaller = [resize_positions(table, grid(LARGE), grid(SMALL), rule) for rule in RULES]
    pairs = itertools.combinations(smaller, 2)
    assert min(np.abs(one - other).max() for one, other in pairs) > 0.01
