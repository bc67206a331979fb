"""Hybrids and rotary positions with 8 bits in TFLite, a padding in ONNX, beside Keras."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.configs import ResNetStem, ViTConfig
from keras_vit.export.exported_model import exported_model
from keras_vit.export.onnx import keep_padding
from keras_vit.export.tflite import convert, finished, quantize
from keras_vit.preprocessing import Preprocessing

interpreter = pytest.importorskip("ai_edge_litert.interpreter")

MODELS = {
    "hybrid": ViTConfig(1, 32, 1, 64, 2, resnet=ResNetStem((1,))),
    "rotary": ViTConfig(16, 32, 2, 64, 2, position_embedding="none", rotary=100.0, num_registers=2),
}


# In float32 test_every_config_value.py has all; a BiT with random weights is too coarse here.
@pytest.mark.parametrize("name", ["hybrid", pytest.param("rotary", marks=pytest.mark.slow)])
def test_other_architectures_run_in_litert_with_8_bits(name):
    model = keras_vit.build(MODELS[name], input_shape=(64, 64, 3), classes=3)
    rng = np.random.default_rng(0)
    head = model.get_layer("predictions").kernel
    head.assign(rng.normal(size=head.shape) / 4)
    exported = exported_model(model, Preprocessing((64, 64)))
    content = quantize(convert(exported, 1, "dynamic_int8"), "dynamic_int8", None, 1)
    run = interpreter.Interpreter(model_content=finished(content)).get_signature_runner("serve")
    images = rng.uniform(-1, 1, (4, 64, 64, 3)).astype("float32")
    answers = [run(images=image[None])["probabilities"][0] for image in images]
    np.testing.assert_allclose(answers, model(images), atol=0.1)


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
