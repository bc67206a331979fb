"""A model in Keras's own `fit` and files, on any backend, and what one of them does not run."""

import keras
import numpy as np
import pytest

import keras_vit
from makers import tiny_config

pytestmark = pytest.mark.any_backend


@pytest.fixture(scope="module")
def model():
    return keras_vit.build(tiny_config(dropout_rate=0.1), input_shape=(8, 8, 3), classes=2)


def test_a_model_is_fitted_saved_and_read(model, tmp_path):
    images = np.random.RandomState(0).standard_normal((8, 8, 8, 3)).astype("float32")
    labels = (images.mean(axis=(1, 2, 3)) > 0).astype("int32")
    model.compile("adam", "sparse_categorical_crossentropy")
    losses = model.fit(images, labels, batch_size=4, epochs=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    outputs = [each.predict(images, verbose=0) for each in (model, again)]
    np.testing.assert_array_equal(*outputs)
    np.testing.assert_allclose(outputs[0].sum(axis=1), 1, rtol=1e-6)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="of PyTorch")
def test_trainer_and_exports_say_on_which_backends_they_run(model, tmp_path):
    with pytest.raises(ValueError, match="must run on Keras's TensorFlow or JAX .*BACKEND=torch$"):
        keras_vit.training.Trainer(model)
    names, known = ("a", "b"), keras_vit.Preprocessing((8, 8))
    classifier = keras_vit.save_classifier(tmp_path / "pets", model, names, known)
    with pytest.raises(ValueError, match="written on Keras's TensorFlow backend, .*=torch$"):
        keras_vit.export.tflite(classifier, tmp_path / "pets.tflite")
    pixels = np.zeros((8, 8, 3), "uint8")
    assert keras_vit.load_classifier(tmp_path / "pets").predict(pixels)[0].error is None
