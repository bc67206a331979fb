"""Hybrids and BiT in TFLite and ONNX compared with Keras; docs/serving.md has the table of all.

The conversion itself, without the command's separate process: that is tested with one model.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.classifier import Classifier
from keras_vit.configs import BiTConfig, ResNetStem, ViTConfig
from keras_vit.export import saved_model
from keras_vit.export.exported_model import exported_model
from keras_vit.export.formats import INTEGER_PRECISIONS
from keras_vit.export.onnx import keep_padding
from keras_vit.export.tflite import convert, finished, quantize
from keras_vit.preprocessing import Preprocessing

interpreter = pytest.importorskip("ai_edge_litert.interpreter")

MODELS = {
    "hybrid": ViTConfig(1, 32, 1, 64, 2, resnet=ResNetStem((1,))),
    "bit": BiTConfig((1, 1, 1, 1)),
    "rotary": ViTConfig(16, 32, 2, 64, 2, position_embedding="none", rotary=100.0, num_registers=2),
}


# Rounding alone in float32; with 8 bits also of weights, and of activations inside
# products.
# A BiT with random weights is too coarse for a limit there.
@pytest.mark.parametrize(
    ("name", "precision", "tolerance"),
    [
        pytest.param("hybrid", "float32", 1e-4, marks=pytest.mark.slow),
        ("hybrid", "dynamic_int8", 0.1),
        pytest.param("bit", "float32", 1e-4, marks=pytest.mark.slow),
        ("rotary", "float32", 1e-5),
        pytest.param("rotary", "dynamic_int8", 0.1, marks=pytest.mark.slow),
    ],
)
def test_other_architectures_run_in_litert(name, precision, tolerance):
    model = keras_vit.build(MODELS[name], input_shape=(64, 64, 3), classes=3)
    rng = np.random.default_rng(0)
    head = model.get_layer("predictions").kernel
    head.assign(rng.normal(size=head.shape) / 4)
    exported = exported_model(model, Preprocessing((64, 64)))
    content = convert(exported, 1, precision)
    if precision in INTEGER_PRECISIONS:
        content = quantize(content, precision, None, 1)
    run = interpreter.Interpreter(model_content=finished(content)).get_signature_runner("serve")
    images = rng.uniform(-1, 1, (4, 64, 64, 3)).astype("float32")
    answers = [run(images=image[None])["probabilities"][0] for image in images]
    np.testing.assert_allclose(answers, model(images), atol=tolerance)


@pytest.mark.slow
def test_a_model_with_later_features_becomes_a_saved_model(tmp_path):
    config = ViTConfig(
        (8, 8),
        32,
        2,
        48,
        4,
        classifier="gap",
        gelu="swiglu",
        num_registers=2,
        embedding_norm=True,
        final_norm="pooled",
        layer_scale=True,
        qk_norm=True,
        unread_class_token=True,
    )
    model = keras_vit.build(config, input_shape=(24, 32, 3), classes=3)
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape) / 4)
    classifier = Classifier(model, ("a", "b", "c"), Preprocessing((24, 32)))
    paths = [tmp_path / f"{index}.png" for index in range(4)]
    for path in paths:
        keras.utils.save_img(path, rng.uniform(0, 255, (24, 32, 3)), scale=False)
    saved_model(classifier, tmp_path / "model", top=2, check_images=paths)
    serve = tf.saved_model.load(tmp_path / "model").signatures["serve"]
    images = rng.uniform(-1, 1, (2, 24, 32, 3)).astype("float32")
    probabilities = serve(images=tf.constant(images))["probabilities"]
    np.testing.assert_allclose(probabilities, model(images), atol=1e-5)


def test_a_padding_with_zeros_stays_before_the_max_pool_in_onnx(tmp_path):
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    inputs = keras.Input((6, 6, 2))
    x = keras.layers.Conv2D(3, 1, bias_initializer=keras.initializers.Constant(-5.0))(inputs)
    x = keras.layers.MaxPooling2D(3, 2)(keras.layers.ZeroPadding2D(1)(x))
    model = keras.Model(inputs, keras.layers.Conv2D(3, 1)(x))
    images = np.random.default_rng(0).uniform(-1, 1, (2, 6, 6, 2)).astype("float32")
    expected = model.predict(images, verbose=0)
    model.export(tmp_path / "model.onnx", format="onnx", verbose=False)
    content = onnx.load(tmp_path / "model.onnx")

    def answer():
        session = runtime.InferenceSession(content.SerializeToString())
        return session.run(None, {session.get_inputs()[0].name: images})[0]

    # Mended in 1.32; `keep_padding` can go once no older version is in use.
    mended = tuple(map(int, runtime.__version__.split(".")[:2])) >= (1, 32)
    assert (np.abs(answer() - expected).max() < 1e-5) == mended
    keep_padding(content.graph)
    onnx.checker.check_model(content)
    np.testing.assert_allclose(answer(), expected, atol=1e-5)
