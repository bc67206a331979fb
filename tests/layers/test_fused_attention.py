"""Attention in one kernel: which call gets it, and that it computes what the plain path does."""

from types import SimpleNamespace

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


def gpu(capability):
    return SimpleNamespace(platform="gpu", compute_capability=capability)


def fused(dtype="bfloat16", length=197, units=64):
    return module.fused_attention(keras.ops.zeros((2, length, 3 * units), dtype), 3)


@pytest.fixture(autouse=True)
def _as_before():
    yield
    keras.config.enable_flash_attention()
    module._cudnn_is_right.cache_clear()


@pytest.fixture
def calls(monkeypatch):
    """A GPU of Hopper's kind whose kernel is the plain product; the shapes of its calls."""
    seen = []

    def kernel(query, key, value, padding=0):
        seen.append(tuple(query.shape))
        length = query.shape[2] - padding
        mixed = plain_attention(*(x[:, :, :length] for x in (query, key, value)))
        return keras.ops.pad(mixed, ((0, 0), (0, 0), (0, padding), (0, 0)))

    monkeypatch.setattr(module, "device_of_jax", lambda: gpu("9.0"))
    monkeypatch.setattr(module, "_cudnn", kernel)
    monkeypatch.setattr(module, "_OF_TORCH", module.FusedAttention(kernel))
    return seen


def plain_attention(query, key, value):
    products = keras.ops.matmul(query, keras.ops.transpose(key, (0, 1, 3, 2)))
    return keras.ops.matmul(keras.ops.softmax(products), value)


@pytest.mark.any_backend
def test_without_a_gpu_half_precision_keeps_the_plain_path():
    assert fused() is None


@pytest.mark.any_backend
def test_single_precision_is_fused_on_pytorch_only():
    found = fused("float32")
    assert (found is not None) == (BACKEND == "torch")


@pytest.mark.any_backend
def test_keras_own_switch_turns_it_off(calls):
    keras.config.disable_flash_attention()
    assert fused() is None
    assert fused("float32") is None


@pytest.mark.any_backend
@on_jax
@pytest.mark.parametrize(
    ("capability", "units", "dtype", "is_fused"),
    [
        ("9.0", 64, "bfloat16", True),
        ("8.0", 128, "float16", True),
        ("9.0", 256, "bfloat16", True),
        ("8.0", 256, "bfloat16", False),
        ("9.0", 264, "bfloat16", False),
        ("9.0", 12, "bfloat16", False),
        ("7.5", 64, "float16", False),
        ("gfx942", 64, "bfloat16", False),
        ("9.0", 64, "float32", False),
    ],
)
def test_the_kernel_is_taken_for_what_it_knows(
    calls, monkeypatch, capability, units, dtype, is_fused
):
    monkeypatch.setattr(module, "device_of_jax", lambda: gpu(capability))
    found = fused(dtype, length=9, units=units)
    assert (found is not None) == is_fused


@pytest.mark.any_backend
@on_jax
@pytest.mark.parametrize("flag", ["deterministic_ops", "exclude_nondeterministic_ops"])
def test_with_flags_for_the_same_bits_the_plain_path_stays(calls, monkeypatch, flag):
    monkeypatch.setenv("XLA_FLAGS", f"--xla_gpu_{flag}=true")
    assert fused() is None


@pytest.mark.any_backend
@on_jax
@pytest.mark.parametrize(
    ("length", "padding"), [(256, 0), (192, 0), (197, 1), (65, 1), (577, 1), (191, 3), (63, 3)]
)
def test_an_odd_length_is_padded_but_not_to_64_beyond_a_multiple_of_128(calls, length, padding):
    assert fused(length=length).padding == padding


@pytest.mark.any_backend
@on_jax
def test_no_gpu_is_found_on_a_cpu():
    assert module.compute_capability() is None
    with keras.distribution.DataParallel().scope():
        assert module.compute_capability() is None


@pytest.mark.any_backend
@on_jax
def test_a_kernel_that_does_not_compile_is_named_once_and_left(calls, monkeypatch, caplog):
    def fails(query, key, value, padding):
        raise RuntimeError("no plan for this shape\nand more")

    monkeypatch.setattr(module, "_cudnn", fails)
    for _ in range(2):
        assert fused() is None
    assert [record.getMessage() for record in caplog.records] == [
        "cuDNN's attention is not used for 197 tokens of 3 heads of 64 units in bfloat16: "
        "RuntimeError: no plan for this shape"
    ]


@pytest.mark.any_backend
@on_jax
def test_a_kernel_with_another_gradient_is_left(calls, monkeypatch, caplog):
    import jax

    kernel = module._cudnn

    def wrong(query, key, value, padding):
        attend = jax.custom_vjp(lambda *inputs: kernel(*inputs, padding))
        attend.defvjp(lambda *inputs: (attend(*inputs), inputs), lambda inputs, upstream: inputs)
        return attend(query, key, value)

    monkeypatch.setattr(module, "_cudnn", wrong)
    assert fused(length=9) is None
    assert "its errors are" in caplog.text


@pytest.mark.any_backend
@on_jax
def test_the_kernel_is_tried_outside_of_the_trace_under_way(calls):
    import jax

    def choose(x):
        assert module.fused_attention(x, 3) is not None
        return x

    text = str(jax.make_jaxpr(choose)(keras.ops.zeros((2, 9, 192), "bfloat16")))
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
@pytest.mark.parametrize(
    "fields", [{}, {"dropout_rate": 0.5}, {"qk_norm": True}, {"rotary": 100.0}]
)
def test_a_block_asks_for_probabilities_only_where_somebody_wants_them(calls, fields):
    dtype = "float32" if BACKEND == "torch" else "mixed_bfloat16"
    block = randomized(EncoderBlock(2, 8, dtype=dtype, **fields), (None, 5, 16), 0.2)
    z, patches = tokens(2, 5, 16), np.zeros((2, 2, 2, 16), "float32")
    fused = array(block(z, patches=patches)).astype("float32")
    assert (2, 2, 5 + (BACKEND == "jax"), 8) in calls
    calls.clear()
    plain, attention = block(z, return_attention=True, patches=patches)
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
    assert module._cudnn_is_right(dtype, 12, length, 64, length % 2)
