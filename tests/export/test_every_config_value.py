"""Every GELU, norm and pooling of a config, in every format, compared with Keras.

The models stand side by side in one, so that each format is written once. In OpenVINO and in the
formats for browsers the model is the one of the ONNX file.
"""

import dataclasses
from typing import get_args

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.classifier import Classifier
from keras_vit.configs import BiTConfig, ResNetStem, ViTConfig
from keras_vit.configs.blocks import Gelu
from keras_vit.configs.vit_configs import FinalNorm, HeadInput, PositionKind
from keras_vit.export.exported_model import exported_model
from keras_vit.export.formats import import_export_package
from keras_vit.export.onnx import OPSET, onnx_content
from keras_vit.export.openvino import openvino_core
from keras_vit.export.saved_model import SavedModel
from keras_vit.export.tflite import convert, finished
from keras_vit.preprocessing import Preprocessing

SIZE = (16, 24)
CLASSES = 3
ATOL = 2e-5  # Float32, depth 1 and a random head.

BASE = ViTConfig(patch_size=8, width=16, depth=1, mlp_dim=16, num_heads=2)
CONFIGS = {
    "tanh": BASE,
    "exact": dataclasses.replace(BASE, gelu="exact", classifier="gap", final_norm="pooled"),
    "quick": dataclasses.replace(
        BASE, gelu="quick", classifier="max", final_norm="none", position_embedding="learned_2d"
    ),
    "relu": dataclasses.replace(BASE, gelu="relu", classifier="map", position_embedding="relative"),
    "swiglu": dataclasses.replace(
        BASE, gelu="swiglu", classifier="token+gap", embedding_norm=True, qk_norm=True
    ),
    "distilled": dataclasses.replace(
        BASE,
        gelu="exact",
        classifier="token+distillation",
        layer_scale=True,
    ),
    "exact map": dataclasses.replace(
        BASE, gelu="exact", classifier="map", rotary=100.0, position_embedding="none"
    ),
    "hybrid": dataclasses.replace(BASE, patch_size=1, resnet=ResNetStem((1,), 0.5, "variance")),
    "bit": BiTConfig((1,), 0.5),
}


@pytest.mark.parametrize(
    ("field", "kind"),
    {
        "gelu": Gelu,
        "classifier": HeadInput,
        "final_norm": FinalNorm,
        "position_embedding": PositionKind,
    }.items(),
)
def test_every_value_is_in_one_of_the_configs(field, kind):
    assert {getattr(config, field, None) for config in CONFIGS.values()} >= set(get_args(kind))


@pytest.mark.parametrize("field", ["embedding_norm", "layer_scale", "qk_norm"])
def test_every_norm_and_scale_is_in_one_of_the_configs(field):
    assert any(getattr(config, field, False) for config in CONFIGS.values())


@pytest.fixture(scope="module")
def classifier():
    """All models side by side, with random weights; each has `CLASSES` of the probabilities."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    images = keras.Input((*SIZE, 3))
    parts = []
    for index, config in enumerate(CONFIGS.values()):
        part = keras_vit.build(
            config, input_shape=(*SIZE, 3), classes=CLASSES, name=f"part_{index}"
        )
        for weight in part.trainable_weights:
            weight.assign_add(rng.normal(size=weight.shape) / 4)
        parts.append(part(images))
    model = keras.Model(images, keras.layers.Concatenate()(parts))
    names = tuple(f"class {index}" for index in range(CLASSES * len(CONFIGS)))
    return Classifier(model, names, Preprocessing(SIZE))


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(1).uniform(-1, 1, (2, *SIZE, 3)).astype("float32")


@pytest.fixture(scope="module")
def expected(classifier, images):
    probabilities = classifier.model.predict(images, verbose=0)
    assert np.ptp(probabilities, axis=0).min() > 1e-4  # Each model reads the image.
    return probabilities


def check(received, expected):
    for index, name in enumerate(CONFIGS):
        part = slice(CLASSES * index, CLASSES * (index + 1))
        np.testing.assert_allclose(
            received[:, part], expected[:, part], rtol=0, atol=ATOL, err_msg=name
        )


def test_a_saved_model_has_every_value(classifier, images, expected, tmp_path):
    SavedModel(top=1).write(tmp_path, classifier, [])
    serve = tf.saved_model.load(tmp_path).signatures["serve"]
    check(serve(images=tf.constant(images))["probabilities"].numpy(), expected)


def test_a_tflite_file_has_every_value(classifier, images, expected):
    interpreter = import_export_package("ai_edge_litert.interpreter")
    exported = exported_model(classifier.model, classifier.preprocessing)
    content = finished(convert(exported, 1, "float32"))
    run = interpreter.Interpreter(model_content=content).get_signature_runner("serve")
    answers = [run(images=image[np.newaxis])["probabilities"][0] for image in images]
    check(np.array(answers), expected)


@pytest.fixture(scope="module")
def onnx_bytes(classifier):
    return onnx_content(classifier, OPSET, "float").SerializeToString()


def test_an_onnx_file_has_every_value(onnx_bytes, images, expected):
    session = import_export_package("onnxruntime").InferenceSession(
        onnx_bytes, providers=["CPUExecutionProvider"]
    )
    check(session.run(["probabilities"], {"images": images})[0], expected)


def test_an_openvino_model_has_every_value(onnx_bytes, images, expected):
    model = openvino_core().read_model(onnx_bytes)
    compiled = openvino_core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    check(compiled({"images": images})["probabilities"], expected)
