import keras
import numpy as np
import pytest

from by_hand import array
from keras_vit.layers import PoolingUnit, PostActivationUnit, StandardizedConv2D

RNG = np.random.RandomState(0)


def convolution(x, kernel, stride, before, after):
    """A convolution as a sum over the kernel's places, of float64 numbers."""
    x = np.pad(x, ((0, 0), (before, after), (before, after), (0, 0)))
    size = len(kernel)
    down, across = ((side - size) // stride + 1 for side in x.shape[1:3])
    return sum(
        x[:, i : i + stride * down : stride, j : j + stride * across : stride] @ kernel[i, j]
        for i in range(size)
        for j in range(size)
    )


def with_kernel(layer, scale=1.0):
    layer.build((None, None, None, 3))
    layer.kernel.assign(scale * RNG.standard_normal(layer.kernel.shape) + 0.3)
    return layer, array(layer.kernel).astype("float64")


FORMULAS = {
    "deviation": lambda w: (w - w.mean((0, 1, 2))) / (w.std((0, 1, 2)) + 1e-5),
    "variance": lambda w: (w - w.mean((0, 1, 2))) / np.sqrt(w.var((0, 1, 2)) + 1e-10),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("epsilon_in", FORMULAS)
def test_each_formula_is_that_of_its_code(epsilon_in):
    # At this scale both epsilons are as large as the deviation, so the formulas differ.
    layer, kernel = with_kernel(StandardizedConv2D(5, 3, epsilon_in=epsilon_in), scale=1e-5)
    x = RNG.standard_normal((1, 6, 7, 3))
    expected = convolution(x, FORMULAS[epsilon_in](kernel), 1, 1, 1)
    np.testing.assert_allclose(array(layer(x.astype("float32"))), expected, rtol=0.05, atol=0.05)
    other = convolution(x, FORMULAS["variance"](kernel / 1e5), 1, 1, 1)
    assert np.abs(expected - other).max() > 0.3


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("padding", "size", "before", "after"),
    [("same", 8, 2, 3), ("same", 9, 3, 3), (3, 8, 3, 3), (3, 9, 3, 3)],
)
def test_same_padding_puts_the_odd_zero_at_the_end(padding, size, before, after):
    layer, kernel = with_kernel(StandardizedConv2D(4, 7, strides=2, padding=padding))
    x = RNG.standard_normal((2, size, size, 3))
    expected = convolution(x, FORMULAS["deviation"](kernel), 2, before, after)
    np.testing.assert_allclose(array(layer(x.astype("float32"))), expected, atol=1e-4)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_does_not_round_the_statistics(policy):
    layer, kernel = with_kernel(StandardizedConv2D(4, 1, dtype=policy), scale=1e-3)
    assert layer.kernel.dtype == "float32"
    outputs = layer(np.eye(3, dtype="float32").reshape(1, 1, 3, 3))
    assert keras.backend.standardize_dtype(outputs.dtype) == layer.compute_dtype
    # The mean is 300 times the deviation: in half precision a few digits would be left.
    expected = FORMULAS["deviation"](kernel)[0, 0]
    np.testing.assert_allclose(
        array(keras.ops.cast(outputs, "float32"))[0, 0], expected, rtol=8e-3, atol=8e-3
    )


def test_a_post_activation_unit_starts_as_its_shortcut():
    x = np.abs(RNG.standard_normal((1, 5, 5, 128))).astype("float32")
    np.testing.assert_array_equal(array(PostActivationUnit(32)(x)), x)


def test_a_pooling_unit_starts_as_a_pool_of_the_channels_that_it_has():
    unit = PoolingUnit(64)
    unit.build((None, None, None, 32))
    kernels = [array(conv.kernel) for conv in (unit.conv_1, unit.conv_2)]
    for kernel in kernels:
        x = RNG.standard_normal((1, 5, 4, kernel.shape[2]))
        passed = convolution(x, kernel, 1, 1, 1)[..., : x.shape[-1]]
        np.testing.assert_array_equal(passed, x)
    assert 0.03 < kernels[0][..., 32:].std() < 0.09  # LeCun's: 1 / sqrt(9 * 32) = 0.059.
    assert not array(unit.norm_2.gamma).any()


def group_norm(x, gamma, beta, groups=8):
    parts = x.reshape(*x.shape[:3], groups, -1)
    mean, variance = (f(parts, axis=(1, 2, 4), keepdims=True) for f in (np.mean, np.var))
    return ((parts - mean) / np.sqrt(variance + 1e-6)).reshape(x.shape) * gamma + beta


@pytest.mark.any_backend
def test_a_pooling_unit_is_two_convolutions_with_a_pool_and_a_residual():
    unit = PoolingUnit(64)
    x = RNG.standard_normal((2, 5, 6, 3))
    unit.build(x.shape)
    weights = {}
    for weight in unit.weights:
        weight.assign(RNG.standard_normal(weight.shape))
        weights["/".join(weight.path.split("/")[-2:])] = array(weight).astype("float64")

    def convolved(x, index):
        return convolution(x, FORMULAS["deviation"](weights[f"conv_{index}/kernel"]), 1, 1, 1)

    def normalised(x, index):
        return group_norm(x, weights[f"norm_{index}/gamma"], weights[f"norm_{index}/beta"])

    full = np.pad(  # A part of a cell counts as one.
        convolved(x, 1), ((0, 0), (0, 1), (0, 0), (0, 0)), constant_values=-np.inf
    )
    pooled = full.reshape(2, 3, 2, 3, 2, 64).max(axis=(2, 4))
    pooled = np.maximum(normalised(pooled, 1), 0)
    expected = np.maximum(pooled + normalised(convolved(pooled, 2), 2), 0)
    np.testing.assert_allclose(array(unit(x.astype("float32"))), expected, atol=1e-3)
