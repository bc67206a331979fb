"""Prediction where TensorFlow lists an accelerator but has no XLA for the device that computes."""

import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit import keras_private
from keras_vit.models.outputs import predict_batch
from keras_vit.training import Trainer
from makers import tiny_config

IMAGES = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")


def tiny_model():
    keras.utils.set_random_seed(0)
    return keras_vit.build(tiny_config(), classes=3, input_shape=(8, 8, 3))


@pytest.fixture
def accelerator_listed(monkeypatch):
    listed = [types.SimpleNamespace(device_type=kind) for kind in ("CPU", "TPU")]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: listed)


@pytest.fixture
def no_xla(accelerator_listed, monkeypatch):
    monkeypatch.setattr(keras_private, "xla_compiles", lambda: False)


def test_without_xla_nothing_is_compiled_and_the_model_stays_as_it_was(no_xla, monkeypatch):
    model, compiled = tiny_model(), []
    make = model.make_predict_function
    monkeypatch.setattr(
        model, "make_predict_function", lambda: (compiled.append(model.jit_compile), make())
    )
    expected = keras.ops.convert_to_numpy(model(IMAGES))
    outputs = predict_batch(model, IMAGES)
    assert isinstance(outputs, np.ndarray)
    np.testing.assert_allclose(outputs, expected, atol=1e-6)
    assert compiled == [False]
    assert model.jit_compile


def test_with_xla_it_is_kerass_choice(accelerator_listed):
    model = tiny_model()
    predict_batch(model, IMAGES)
    assert model.jit_compile


def test_the_trainer_compiles_where_it_can(accelerator_listed, monkeypatch):
    trainer = Trainer(tiny_model())
    trainer.compile("sgd", "sparse_categorical_crossentropy")
    assert trainer.jit_compile
    monkeypatch.setattr(keras_private, "xla_compiles", lambda: False)
    trainer.compile("sgd", "sparse_categorical_crossentropy")
    assert not trainer.jit_compile
    trainer.compile("sgd", "sparse_categorical_crossentropy", jit_compile=True)
    assert trainer.jit_compile


def test_keras_still_compiles_wherever_an_accelerator_is_listed(no_xla):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    assert model.jit_compile, (
        "Keras has mended it, remove the exception in keras_vit.models.outputs.predict_batch"
    )
