"""Named outputs of an export in addition to the probabilities."""

import numpy as np
import pytest

import keras_vit.export
from keras_vit.export import saved_model
from keras_vit.export.onnx import ONNX
from keras_vit.inspection import attention_rollout
from keras_vit.models.rebuild import feature_model


@pytest.fixture(scope="module")
def images(classifier):
    return np.random.default_rng(0).uniform(-1, 1, (3, 32, 24, 3)).astype("float32")


def check(classifier, images, found):
    features = feature_model(classifier.model).predict_on_batch(images)
    np.testing.assert_allclose(found["features"], features, atol=1e-4)  # float32, depth 2
    rollout = attention_rollout(classifier.model, images)
    np.testing.assert_allclose(found["attention"], rollout, atol=1e-5)
    expected = classifier.model.predict_on_batch(images)
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)


def test_a_saved_model_has_features_and_attention(classifier, images, tmp_path):
    import tensorflow as tf

    saved_model(classifier, tmp_path / "1", outputs=("features", "attention"))
    serve = tf.saved_model.load(tmp_path / "1").signatures["serve"]
    check(classifier, images, {k: v.numpy() for k, v in serve(images=images).items()})


def test_an_onnx_file_has_features_and_attention(classifier, images, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    path = tmp_path / "m.onnx"
    keras_vit.export.onnx(classifier, path, input="float", outputs=("features,attention",))
    session = runtime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(names, {"images": images}), strict=True))
    assert set(found) == {"probabilities", "valid", "features", "attention"}
    check(classifier, images, found)


def test_an_unknown_output_is_refused():
    with pytest.raises(ValueError, match="outputs must be of features, attention"):
        ONNX(outputs=("logits",))
