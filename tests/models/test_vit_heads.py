import dataclasses

import keras
import numpy as np
import pytest

import keras_vit
from by_hand import array
from keras_vit import configs
from keras_vit.models.rebuild import feature_model
from makers import tiny_config

SMALL = tiny_config(width=8, mlp_dim=12)
SHAPE = (8, 13, 3)  # A grid of 2 x 3, and a rest that is cut off.


def test_training_with_a_teacher_takes_the_logits_of_both_heads():
    model = keras_vit.build(SMALL, input_shape=SHAPE, classes=5, classifier="token+distillation")
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(0.5 * rng.normal(size=weight.shape))
    names = ("class_token", "distillation_token")
    student = keras.Model(model.input, [model.get_layer(f"{n}_head").output for n in names])
    images = rng.normal(size=(2, *SHAPE)).astype("float32")
    one, other = student(images, training=True)
    mean = keras.ops.softmax((one + other) / 2)
    trained = model(images, training=True)  # One output in training too.
    np.testing.assert_allclose(array(trained), array(mean), atol=1e-6)
    tokens = keras.Model(model.input, model.get_layer("encoder_norm").output)(images)
    np.testing.assert_array_equal(array(feature_model(model)(images)), array(tokens)[:, 0])


@pytest.mark.parametrize(
    ("config", "heads"),
    [
        (SMALL, ["predictions"]),
        (
            dataclasses.replace(SMALL, classifier="token+distillation"),
            ["class_token_head", "distillation_token_head"],
        ),
        (keras_vit.configs.BiTConfig((1,), 0.5), ["predictions"]),
    ],
)
def test_the_head_starts_at_zero_with_the_bias_that_is_asked_for(config, heads):
    model = keras_vit.build(config, input_shape=SHAPE, classes=5, head_bias=-10.0)
    for name in heads:
        np.testing.assert_array_equal(array(model.get_layer(name).kernel), 0)
        np.testing.assert_array_equal(array(model.get_layer(name).bias), -10)


def test_vit_b_of_figure_4_halves_every_hidden_dimension():
    for patch in (16, 32):
        small, base = (configs.MODELS[f"ViT-{size}/{patch}"] for size in "bB")
        assert (2 * small.width, 2 * small.mlp_dim) == (base.width, base.mlp_dim)
        assert (small.depth, small.num_heads) == (base.depth, base.num_heads)
        assert configs.layer_name(f"ViT-b/{patch}") == f"vit_half_b{patch}"


def test_the_attention_pooling_has_the_epsilon_of_the_config():
    config = dataclasses.replace(SMALL, classifier="map", norm_epsilon=0.3)
    keras.utils.set_random_seed(0)
    pooling = keras_vit.build(config, input_shape=SHAPE, classes=5).get_layer("map_head")
    tokens = np.random.RandomState(0).normal(size=(2, 1, config.width)).astype("float32")
    weights = {
        weight.path.removeprefix("map_head/"): np.array(weight) for weight in pooling.weights
    }
    # With one token its attention is 1, so that the pooling is its value and the MLP.
    value = np.einsum("bnd,dke->bnke", tokens, weights["value/kernel"]) + weights["value/bias"]
    x = np.einsum("bnke,ked->bd", value, weights["out/kernel"]) + weights["out/bias"]
    centred = x - x.mean(axis=-1, keepdims=True)
    y = centred / np.sqrt(x.var(axis=-1, keepdims=True) + 0.3)
    y = y @ weights["mlp/dense_1/kernel"] + weights["mlp/dense_1/bias"]
    y = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
    expected = x + y @ weights["mlp/dense_2/kernel"] + weights["mlp/dense_2/bias"]
    found = keras.ops.convert_to_numpy(pooling(tokens))
    np.testing.assert_allclose(found, expected, atol=1e-5)
