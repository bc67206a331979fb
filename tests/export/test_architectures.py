"""Hybrids and BiT in TFLite beside Keras; docs/serving.md has the table of all architectures.

The conversion itself, without the command's separate process: that is tested with one model.
"""

import numpy as np
import pytest

import keras_vit
from keras_vit.classifier import Classifier
from keras_vit.configs import BiTConfig, ResNetStem, ViTConfig
from keras_vit.export import to_litert
from keras_vit.preprocessing import Preprocessing

interpreter = pytest.importorskip("ai_edge_litert.interpreter")

MODELS = {
    "hybrid": ViTConfig(1, 32, 1, 64, 2, resnet=ResNetStem((1,))),
    "bit": BiTConfig((1, 1, 1, 1)),
}


# Rounding alone in float32; with 8 bits that of weights, and of activations inside products.
# A BiT with random weights is too coarse for a limit there.
@pytest.mark.parametrize(
    ("name", "precision", "tolerance"),
    [("hybrid", "float32", 1e-4), ("hybrid", "dynamic_int8", 0.1), ("bit", "float32", 1e-4)],
)
def test_residual_networks_run_in_litert(name, precision, tolerance):
    model = keras_vit.build(MODELS[name], input_shape=(64, 64, 3), classes=3)
    rng = np.random.default_rng(0)
    head = model.get_layer("predictions").kernel
    head.assign(rng.normal(size=head.shape) / 4)
    classifier = Classifier(model, "abc", Preprocessing((64, 64)))
    row = to_litert.PRECISIONS[precision]
    content = to_litert._convert(model, classifier, 1, row)
    if row.quantize:
        content = to_litert._quantize(content, row, classifier, [], 1)
    to_litert.check_operations(content)
    run = interpreter.Interpreter(model_content=content).get_signature_runner("serve")
    images = rng.uniform(-1, 1, (4, 64, 64, 3)).astype("float32")
    answers = [run(images=image[None])["probabilities"][0] for image in images]
    np.testing.assert_allclose(answers, model(images), atol=tolerance)
