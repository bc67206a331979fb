"""Models under every dtype policy of Keras, and under every `floatx`."""

import contextlib
import functools

import keras
import numpy as np
import pytest

import keras_vit
from by_hand import array
from keras_vit.configs import AxialConfig, BiTConfig, ResNetStem
from makers import tiny_config

# The shares of the largest score of float32.
TOLERANCES = {"float16": 5e-3, "bfloat16": 5e-2}
OF_SLOW_TESTS = {"float64": 1e-5, "mixed_float16": 5e-3, "mixed_bfloat16": 5e-2}
POLICIES = [
    *TOLERANCES.items(),
    *(pytest.param(*row, marks=pytest.mark.slow) for row in OF_SLOW_TESTS.items()),
]
CONFIGS = {
    "ViT": tiny_config(),
    "rotary, registers, LayerScale": tiny_config(
        position_embedding="none", rotary=100.0, num_registers=2, layer_scale=True, qk_norm=True
    ),
    "relative, MAP": tiny_config(position_embedding="relative", classifier="map"),
    "hybrid": tiny_config(patch_size=1, resnet=ResNetStem((1,), 0.5)),
    "BiT": BiTConfig((1, 1), 0.5),
    "Axial": AxialConfig(4, 16, 1, 16, 2),
}


@contextlib.contextmanager
def under(policy):
    """`policy` for all layers, and for `floatx` where it is a dtype."""
    keras.config.set_floatx("float32" if policy.startswith("mixed") else policy)
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")


def built(name):
    options = {"classes": 3, "input_shape": (16, 16, 3), "classifier_activation": None}
    return keras_vit.build(CONFIGS[name], **options)


@functools.cache
def weights_and_scores(name):
    """Random weights, and the scores that a model in float32 gives with them."""
    model, rng = built(name), np.random.RandomState(0)
    weights = [0.1 * rng.standard_normal(array.shape) for array in model.get_weights()]
    model.set_weights(weights)
    return weights, array(model(images()))


def images():
    return np.random.RandomState(1).standard_normal((2, 16, 16, 3)).astype("float32")


@pytest.mark.parametrize(("policy", "tolerance"), POLICIES)
@pytest.mark.parametrize("name", CONFIGS)
def test_scores_are_those_of_float32(name, policy, tolerance):
    weights, expected = weights_and_scores(name)
    with under(policy):
        model = built(name)
        model.set_weights(weights)
        scores = array(model(images()))
    np.testing.assert_allclose(scores, expected, atol=tolerance * np.abs(expected).max())
    assert scores.dtype == "float32"


@pytest.mark.parametrize("policy", TOLERANCES)
def test_a_step_with_lora_keeps_the_weights_finite(policy):
    with under(policy):
        model = built("ViT")
        model.get_layer("encoder_block_0").attention.query.enable_lora(2)
        before = model.get_weights()
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(images(), np.array([0, 1]), verbose=0)
    changed = [not np.array_equal(*pair) for pair in zip(before, model.get_weights(), strict=True)]
    assert any(changed)
    assert all(np.isfinite(weight.astype("float32")).all() for weight in model.get_weights())
