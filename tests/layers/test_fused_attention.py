"""Attention in one kernel: which call gets it, and that it computes what the plain path does."""

import keras
import numpy as np
import pytest

from by_hand import array, randomized, tokens
from keras_vit.layers import (
    EncoderBlock,
    RelativeSelfAttention,
    SelfAttention,
    fused_attention as module,
)

BACKEND = keras.backend.backend()
on_jax = pytest.mark.skipif(BACKEND != "jax", reason="JAX's kernel")
on_torch = pytest.mark.skipif(BACKEND != "torch", reason="PyTorch's kernel")


def queries(dtype="bfloat16", length=197, units=64):
    return keras.ops.zeros((2, 3, length, units), dtype)


@pytest.fixture(autouse=True)
def _as_before():
    yield
    keras.config.enable_flash_attention()
    module._cudnn_is_right.cache_clear()


@pytest.fixture
def calls(monkeypatch):
    """A GPU of Hopper's kind whose kernel is the plain product; what it was called with."""
    seen = []

    def kernel(query, key, value):
        seen.append(tuple(query.shape))
        products = keras.ops.matmul(query, keras.ops.transpose(key, (0, 1, 3, 2)))
        return keras.ops.matmul(keras.ops.softmax(products), value)

    monkeypatch.setattr(module, "compute_capability", lambda: 9.0)
    monkeypatch.setattr(module, "_cudnn", kernel)
    monkeypatch.setattr(module, "_scaled_dot_product_attention", kernel)
    return seen


@pytest.mark.any_backend
def test_without_a_gpu_half_precision_keeps_the_plain_path():
    assert module.fused_attention(queries()) is None


@pytest.mark.any_backend
def test_single_precision_is_fused_on_pytorch_only():
    found = module.fused_attention(queries("float32"))
    assert (found is not None) == (BACKEND == "torch")


@pytest.mark.any_backend
def test_keras_own_switch_turns_it_off(calls):
    keras.config.disable_flash_attention()
    assert module.fused_attention(queries()) is None
    assert module.fused_attention(queries("float32")) is None


@pytest.mark.any_backend
@on_jax
@pytest.mark.parametrize(
    ("capability", "units", "dtype", "is_fused"),
    [
        (9.0, 64, "bfloat16", True),
        (8.0, 128, "float16", True),
        (9.0, 256, "bfloat16", True),
        (8.0, 256, "bfloat16", False),
        (9.0, 264, "bfloat16", False),
        (9.0, 12, "bfloat16", False),
        (7.5, 64, "float16", False),
        (None, 64, "bfloat16", False),
        (9.0, 64, "float32", False),
    ],
)
def test_the_kernel_is_taken_for_what_it_knows(
    calls, monkeypatch, capability, units, dtype, is_fused
):
    monkeypatch.setattr(module, "compute_capability", lambda: capability)
    found = module.fused_attention(queries(dtype, length=9, units=units))
    assert (found is not None) == is_fused


@pytest.mark.any_backend
@on_jax
def test_no_gpu_is_found_on_a_cpu():
    assert module.compute_capability() is None
    with keras.distribution.DataParallel().scope():
        assert module.compute_capability() is None


@pytest.mark.any_backend
@on_jax
def test_a_kernel_that_does_not_compile_is_named_once_and_left(calls, monkeypatch, caplog):
    def fails(query, key, value):
        raise RuntimeError("no plan for this shape\nand more")

    monkeypatch.setattr(module, "_cudnn", fails)
    for _ in range(2):
        assert module.fused_attention(queries()) is None
    assert [record.getMessage() for record in caplog.records] == [
        "cuDNN's attention is not used for 197 tokens of 3 heads of 64 units in bfloat16: "
        "RuntimeError: no plan for this shape"
    ]


@pytest.mark.any_backend
@on_jax
def test_a_kernel_with_another_gradient_is_left(calls, monkeypatch, caplog):
    import jax

    kernel = module._cudnn

    @jax.custom_vjp
    def wrong(query, key, value):
        return kernel(query, key, value)

    wrong.defvjp(lambda *inputs: (kernel(*inputs), inputs), lambda inputs, upstream: inputs)
    monkeypatch.setattr(module, "_cudnn", wrong)
    assert module.fused_attention(queries(length=9)) is None
    assert "its error is" in caplog.text


@pytest.mark.any_backend
@on_jax
def test_the_kernel_is_tried_outside_of_the_trace_under_way(calls):
    import jax

    def choose(x):
        assert module.fused_attention(x) is not None
        return x

    text = str(jax.make_jaxpr(choose)(queries(length=9)))
    assert "dot_general" not in text
    assert len(calls) == 2  # The answer, and the value with its gradient.


PLAIN = {
    "probabilities": (lambda: SelfAttention(2), {"return_attention": True}),
    "dropout": (lambda: SelfAttention(2, dropout_rate=0.5), {"training": True}),
    "relative positions": (lambda: RelativeSelfAttention(2, grid=(1, 5)), {}),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("name", PLAIN)
def test_what_needs_the_probabilities_keeps_the_plain_path(calls, name):
    make, arguments = PLAIN[name]
    dtype = "float32" if BACKEND == "torch" else "mixed_bfloat16"
    layer = make()
    layer = type(layer).from_config({**layer.get_config(), "dtype": dtype})
    randomized(layer, (None, 5, 16))(tokens(2, 5, 16), **arguments)
    assert not calls


@pytest.mark.any_backend
@pytest.mark.skipif(BACKEND == "tensorflow", reason="TensorFlow has one path")
@pytest.mark.parametrize("fields", [{}, {"dropout_rate": 0.5}, {"qk_norm": True}])
def test_a_block_asks_for_probabilities_only_where_somebody_wants_them(calls, fields):
    dtype = "float32" if BACKEND == "torch" else "mixed_bfloat16"
    block = randomized(EncoderBlock(2, 8, dtype=dtype, **fields), (None, 5, 16), 0.2)
    z = tokens(2, 5, 16)
    fused = array(block(z)).astype("float32")
    assert (2, 2, 5, 8) in calls
    calls.clear()
    plain, attention = block(z, return_attention=True)
    assert not calls
    np.testing.assert_allclose(array(attention).sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(fused, array(plain).astype("float32"), atol=0.05)  # bfloat16


def value_and_gradients(query, key, value, upstream):
    """The fused and the plain answer of PyTorch, each with its three gradients."""
    import torch

    for attend in (module._scaled_dot_product_attention, plain_attention):
        inputs = [torch.tensor(x, requires_grad=True) for x in (query, key, value)]
        answer = attend(*inputs)
        yield [answer, *torch.autograd.grad(answer, inputs, torch.tensor(upstream))]


def plain_attention(query, key, value):
    products = keras.ops.matmul(query, keras.ops.transpose(key, (0, 1, 3, 2)))
    return keras.ops.matmul(keras.ops.softmax(products), value)


@pytest.mark.any_backend
@on_torch
@pytest.mark.parametrize("length", [197, 65, 577, 256])
def test_pytorchs_kernel_has_the_numbers_of_the_plain_path(length):
    arrays = np.random.default_rng(0).normal(size=(4, 2, 3, length, 16)).astype("float32") / 2
    for fused, plain in zip(*value_and_gradients(*arrays), strict=True):
        np.testing.assert_allclose(array(fused), array(plain), atol=2e-6)  # float32


@pytest.mark.gpu
@on_jax
@pytest.mark.parametrize("length", [197, 65, 577, 256])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_cudnns_kernel_has_the_numbers_of_the_plain_path(length, dtype):
    if module.compute_capability() is None:
        pytest.skip("no GPU of NVIDIA")
    assert module._cudnn_is_right(dtype, 12, length, 64)
