"""Functions that XLA compiles in training: the values and gradients of TensorFlow's operations."""

import keras
import numpy as np
import pytest

from keras_vit import keras_private
from keras_vit.layers import MLP, GroupNorm, LayerNorm
from keras_vit.layers.fused import compiled_in_training

if keras.backend.backend() != "tensorflow":
    pytest.skip("other backends compile the whole step", allow_module_level=True)

import tensorflow as tf

LAYERS = {
    "tanh": lambda **kwargs: MLP(16, gelu="tanh", **kwargs),
    "exact": lambda **kwargs: MLP(16, gelu="exact", **kwargs),
    "norm": LayerNorm,
    "norm without scale": lambda **kwargs: LayerNorm(scale=False, **kwargs),
    "norm without shift": lambda **kwargs: LayerNorm(center=False, **kwargs),
    "norm without either": lambda **kwargs: LayerNorm(scale=False, center=False, **kwargs),
    "groups": lambda **kwargs: GroupNorm(groups=2, epsilon=1e-6, **kwargs),
    "groups without either": lambda **kwargs: GroupNorm(2, scale=False, center=False, **kwargs),
}
RNG = np.random.default_rng(0)


def input_shape(layer):
    return (5, 4, 8) if isinstance(layer, GroupNorm) else (5, 8)


def built(layer):
    layer.build((None, *input_shape(layer)))
    for variable in layer.trainable_variables:
        variable.assign(RNG.normal(0.5, 0.5, variable.shape))
    return layer


def differentiate(layer, tokens, training):
    variables = [variable.value for variable in layer.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(tokens)
        outputs = layer(tokens, training=training)
        loss = tf.reduce_sum(tf.cast(outputs, "float32") ** 3)
    return outputs, tape.gradient(loss, [tokens, *variables])


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("layer", LAYERS)
def test_values_and_gradients_are_those_that_are_not_compiled(layer, policy):
    layer = built(LAYERS[layer](dtype=policy))
    tokens = tf.constant(RNG.normal(1, 2, (3, *input_shape(layer))), "float32")
    outputs, gradients = differentiate(layer, tokens, training=True)
    expected_outputs, expected = differentiate(layer, tokens, training=False)
    assert len(gradients) == 1 + len(layer.trainable_variables)
    tolerance = 1e-5 if policy == "float32" else 0.05
    pairs = zip([outputs, *gradients], [expected_outputs, *expected], strict=True)
    for ours, theirs in pairs:
        assert ours.dtype == theirs.dtype
        scale = np.abs(theirs).max()
        np.testing.assert_allclose(ours, theirs, atol=tolerance * scale)


def test_half_precision_is_rounded_once():
    there_and_back = compiled_in_training(lambda x: (x + 300.0) - 300.0)
    x = tf.constant([1.5], "bfloat16")  # At 300 bfloat16 has steps of 2.
    assert there_and_back(x).dtype == "bfloat16"
    assert there_and_back(x)[0] == 1.5


@pytest.mark.parametrize("layer", ["tanh", "norm"])
def test_where_xla_cannot_compile_everything_is_tensorflows(layer, monkeypatch):
    def refuse(*args, **kwargs):
        raise tf.errors.NotFoundError(None, None, "no compiler for platform Host")

    with monkeypatch.context() as patched:
        patched.setattr(tf, "function", lambda *args, **kwargs: refuse)
        keras_private.xla_compiles.cache_clear()
        assert not keras_private.xla_compiles()
    layer = built(LAYERS[layer]())
    tokens = tf.constant(RNG.normal(1, 2, (3, 5, 8)), "float32")
    try:
        _, gradients = differentiate(layer, tokens, training=True)
    finally:
        keras_private.xla_compiles.cache_clear()
    _, expected = differentiate(layer, tokens, training=False)
    for ours, theirs in zip(gradients, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("layer", ["tanh", "norm", "groups"])
def test_only_training_is_compiled(layer):
    layer = built(LAYERS[layer]())

    def graph(training):
        function = tf.function(lambda tokens: differentiate(layer, tokens, training)[1])
        spec = tf.TensorSpec((None, *input_shape(layer)))
        return function.get_concrete_function(spec).graph.as_graph_def()

    def compiled(graph):
        return [node for node in graph.node if node.attr["_XlaMustCompile"].b]

    trained, plain = graph(True), graph(False)
    assert len(compiled(trained)) == 2  # Forward and backward.
    assert not compiled(plain)
    assert len(trained.node) < len(plain.node)
