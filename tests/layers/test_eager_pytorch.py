"""Calls of sublayers on PyTorch, beside the same with all of Keras's machinery around them."""

import cProfile
import pstats

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import keras_private
from keras_vit.layers import MLP, EncoderBlock, SelfAttention
from makers import tiny_config

pytestmark = [
    pytest.mark.any_backend,
    pytest.mark.skipif(keras.backend.backend() != "torch", reason="on PyTorch"),
]
IMAGES = np.random.default_rng(0).normal(size=(3, 8, 8, 3)).astype("float32")
TOKENS = np.random.default_rng(1).normal(size=(3, 5, 16)).astype("float32")


@pytest.fixture
def machinery(monkeypatch):
    """Calls every layer as Keras does."""
    return lambda: monkeypatch.setattr(keras_private, "needs_only_call", lambda *_: False)


@pytest.fixture
def called(monkeypatch):
    """The names of the layers of a block that Keras's machinery called."""
    names, call = [], keras.layers.Layer.__call__

    def recorded(layer, *args, **kwargs):
        names.append(layer.name)
        return call(layer, *args, **kwargs)

    monkeypatch.setattr(keras.layers.Layer, "__call__", recorded)
    return names


def made(dtype="float32", prepare=None, **fields):
    """Returns a model with random weights, which are the same for the same config."""
    keras.utils.set_random_seed(0)
    config = tiny_config(**{"depth": 2, "mlp_dim": 32, **fields})
    with_policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        model = keras_vit.build(config, input_shape=(8, 8, 3), classes=5)
    finally:
        keras.config.set_dtype_policy(with_policy)
    for number, weight in enumerate(model.trainable_weights):
        random = np.random.default_rng(number).normal(size=tuple(weight.shape))
        weight.assign(weight + 0.2 * random)
    if prepare:
        prepare(model)
    return model


def answers_and_gradients(model, training):
    """Returns the scores of the images, and the gradients by the paths of the weights."""
    model.zero_grad()
    scores = model(IMAGES, training=training)
    (scores**2).sum().backward()
    found = {"scores": scores.detach()}
    for weight in model.trainable_weights:
        if weight.value.grad is not None:
            found[weight.path] = weight.value.grad.clone()
    return {path: value.float().numpy() for path, value in found.items()}


def add_lora(model):
    mlp = model.get_layer("encoder_block_1").mlp
    mlp.dense_1.enable_lora(2)
    mlp.dense_1.lora_kernel_b.assign(keras.ops.ones_like(mlp.dense_1.lora_kernel_b))


def freeze(model):
    model.get_layer("encoder_block_0").trainable = False
    model.get_layer("encoder_block_1").attention.trainable = False


def quantize(model):
    model.get_layer("encoder_block_0").mlp.dense_2.quantize("int8")
    model.get_layer("encoder_block_1").attention.query.quantize("int8")


DROPOUT = {"dropout_rate": 0.2, "attention_dropout_rate": 0.3, "stochastic_depth_rate": 0.4}
CASES = {
    "plain": {},
    "bfloat16": {"dtype": "mixed_bfloat16"},
    "float16": {"dtype": "float16"},
    "dropout": DROPOUT,
    "remat": {"remat": True},
    "remat and dropout in bfloat16": {"dtype": "mixed_bfloat16", "remat": True, **DROPOUT},
    "LoRA": {"prepare": add_lora},
    "LoRA in bfloat16": {"prepare": add_lora, "dtype": "mixed_bfloat16"},
    "frozen": {"prepare": freeze},
    "quantised": {"prepare": quantize},
    "quantised in bfloat16": {"prepare": quantize, "dtype": "mixed_bfloat16"},
    "relative": {"position_embedding": "relative"},
    "rotary": {"rotary": 50.0, "qk_norm": True, "layer_scale": True, "gelu": "swiglu"},
    "map": {"classifier": "map"},
}


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_scores_and_gradients_are_those_of_the_whole_machinery(name, training, machinery):
    found = answers_and_gradients(made(**CASES[name]), training)
    machinery()
    expected = answers_and_gradients(made(**CASES[name]), training)
    assert found.keys() == expected.keys()
    assert len(found) > 3
    for path, value in expected.items():
        np.testing.assert_array_equal(found[path], value, err_msg=path)


def test_a_block_makes_a_quarter_of_the_calls_of_functions_that_keras_makes():
    block = EncoderBlock(2, 8)
    block(TOKENS)
    with cProfile.Profile() as profile:
        block(TOKENS)
    assert pstats.Stats(profile).total_calls < 12_677 / 4  # Counted before, with Keras 3.15.


def test_no_layer_of_a_block_passes_the_machinery(called):
    block = EncoderBlock(2, 8, dropout_rate=0.1, layer_scale=True, qk_norm=True, name="block")
    block(TOKENS)
    called.clear()
    block(TOKENS)
    block(TOKENS, training=True)
    assert called == ["block", "block"]


def test_hooks_of_pytorch_see_each_call():
    block, seen = EncoderBlock(2, 8), []
    block(TOKENS)
    parts = block._flatten_layers()
    for part in parts:
        part.register_forward_hook(lambda module, *_: seen.append(module))
    block(TOKENS)
    missing = [part.name for part in parts if part not in seen]
    # A kernel computes attention without its dropout; the rate of the other is 0.
    assert sorted(missing) == ["dropout", "stochastic_depth"]
    assert len(seen) == len(parts) - 2


@pytest.mark.parametrize("kind", ["forward_pre_hook", "full_backward_hook"])
def test_hooks_before_a_call_and_of_the_backward_pass_are_kept(kind):
    block, seen = EncoderBlock(2, 8), []
    block(TOKENS)
    getattr(block.mlp.dense_2, f"register_{kind}")(lambda *_: seen.append(kind))
    block(keras.ops.convert_to_tensor(TOKENS)).sum().backward()
    assert seen == [kind]


def test_hooks_of_all_modules_see_each_layer():
    from torch.nn.modules.module import register_module_forward_hook

    block, seen = EncoderBlock(2, 8), []
    block(TOKENS)
    handle = register_module_forward_hook(lambda module, *_: seen.append(module.name))
    block(TOKENS)
    handle.remove()
    block(TOKENS)
    assert seen.count("dense_1") == 1


class Scaled(MLP):
    """A user's MLP, with a loss and a look at `training`."""

    def call(self, tokens, training=False, seed=None):
        self.add_loss(keras.ops.mean(tokens**2))
        self.training_seen = training
        return 2 * super().call(tokens, training, seed)


class UserBlock(EncoderBlock):
    """A user's block, with another MLP."""

    def build(self, tokens_shape):
        super().build(tokens_shape)
        self.mlp = Scaled(8, name="scaled")


def test_a_subclass_of_a_user_is_called_by_keras(called):
    block = UserBlock(2, 8, name="block")
    block(TOKENS)
    called.clear()
    block(TOKENS, training=True)
    assert called == ["block", "scaled"]
    assert block.mlp.training_seen is True
    assert len(block.losses) == 1


class Noise(keras.layers.Layer):
    """A user's layer, whose parts learn from the call around them whether they train."""

    def build(self, _):
        self.inner = keras.layers.GaussianNoise(1.0)

    def call(self, inputs):
        return self.inner(inputs)


def test_a_replaced_layer_learns_training_from_the_block():
    block, inputs = EncoderBlock(2, 16), keras.ops.convert_to_tensor(TOKENS)
    block(inputs)
    block.mlp._tracker.unlock()
    block.mlp.dense_2 = Noise()
    np.testing.assert_array_equal(*(block(inputs).detach() for _ in range(2)))
    first, second = (block(inputs, training=True) for _ in range(2))
    assert (first - second).abs().max() > 0.01


def test_activity_regularizers_of_a_sublayer_give_losses():
    block = EncoderBlock(2, 8)
    block(TOKENS)
    block.mlp.dense_2.activity_regularizer = keras.regularizers.L2(0.1)
    block(TOKENS)
    assert len(block.losses) == 1


def test_masks_pass_the_layers_that_keep_them():
    mlp = MLP(8)
    rows = keras.ops.convert_to_tensor(TOKENS[0])
    mlp(rows)
    rows._keras_mask = mask = keras.ops.ones((5,), "bool")
    with pytest.warns(UserWarning, match="destroy the mask"):
        assert mlp(rows)._keras_mask is mask


def test_other_weights_of_a_stateless_call_are_used():
    block, tokens = EncoderBlock(2, 8), keras.ops.convert_to_tensor(TOKENS)
    expected = block(tokens)
    weights = [weight.value.clone() for weight in block.trainable_variables]
    for weight in block.trainable_variables:
        weight.assign(keras.ops.zeros_like(weight))
    assert (block(tokens) == tokens).all()
    found, _ = block.stateless_call(weights, [], tokens)
    np.testing.assert_array_equal(found.detach(), expected.detach())


def test_layers_compute_the_spec_of_their_outputs():
    tokens = keras.Input((5, 16))
    for layer in (EncoderBlock(2, 8), SelfAttention(2), MLP(8)):
        assert layer(tokens).shape == (None, 5, 16)
        assert keras.Model(tokens, layer(tokens))(TOKENS).shape == (3, 5, 16)


def test_a_block_within_keras_own_scope_computes_again_in_the_backward_pass(machinery):
    def gradients():
        with keras.RematScope(mode="full"):
            model = made()
        return answers_and_gradients(model, training=True)

    found = gradients()
    machinery()
    expected = gradients()
    cases = [*expected.items()]
    assert cases
    for path, value in cases:
        np.testing.assert_array_equal(found[path], value, err_msg=path)


def test_a_model_is_one_graph_to_pytorchs_compiler():
    import torch

    model, graphs = made(), []

    def count(graph, _):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(lambda images: model(images, training=False), backend=count)
    images = torch.from_numpy(IMAGES)
    np.testing.assert_allclose(compiled(images).detach(), model(images).detach(), atol=1e-6)
    assert len(graphs) == 1
