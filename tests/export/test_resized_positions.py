"""Exports of models whose positions are resized by each rule."""

import keras
import numpy as np
import pytest

import keras_vit
import keras_vit.export
from keras_vit.checkpoints.resize import resize_positions
from keras_vit.configs.position_resize import RULES
from keras_vit.configs.recognition import config_of
from keras_vit.export.formats.artefacts import open_export
from keras_vit.predictor import Predictor
from keras_vit.preprocessing import Preprocessing
from makers import copy_weights, tiny_config

SMALL, LARGE, PATCH = (32, 24), (48, 40), 8
FIRST = "bicubic_torch"  # By default.
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


def classifier_of(model, size):
    return Predictor(model, ("a", "b", "c"), Preprocessing(size))


@pytest.mark.parametrize("kind", [*NAMES, pytest.param("html", marks=pytest.mark.slow)])
def test_exports_of_a_resized_model_have_the_rule_of_the_model(kind, models, tmp_path, request):
    small, expected = models
    options = {"input": "float"} if kind in ("tflite", "onnx", "openvino") else {}
    images = IMAGES
    if kind == "html":  # In Chromium.
        pytest.importorskip("playwright", reason='pip install -e ".[web]"')
        options, images = {"runtime": request.getfixturevalue("runtime")}, PIXELS
    path = tmp_path / NAMES.get(kind, "a.html")
    resized = keras_vit.build(config_of(small), input_shape=(*LARGE, 3), classes=3)
    copy_weights(small, resized)
    classifier = classifier_of(resized, LARGE)
    getattr(keras_vit.export, kind)(classifier, path, **options)
    signature = open_export(path).signatures()["serve"]
    answers = [signature.probabilities(images[index : index + 1]) for index in range(2)]
    np.testing.assert_allclose(np.concatenate(answers), expected, atol=1e-5)
