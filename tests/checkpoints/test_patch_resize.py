import numpy as np
import pytest
import tensorflow as tf

from keras_vit.checkpoints.resize import resize_patch_kernel

OLD, CHANNELS, DIM = (4, 5), 3, 6


def kernel():
    return np.random.RandomState(0).standard_normal((*OLD, CHANNELS, DIM)).astype("float32")


def patches(size, number=7):
    return np.random.RandomState(1).standard_normal((number, *size, CHANNELS)).astype("float32")


def products(x, weights):
    return np.einsum("nhwc,hwcd->nd", x, weights)


@pytest.mark.parametrize("size", [(4, 5), (8, 10), (5, 12), (4, 6), (16, 16)])
def test_a_resized_patch_has_the_embedding_that_it_had(size):
    x = patches(OLD)
    resized = tf.image.resize(x, size, method="bilinear").numpy()
    new = resize_patch_kernel(kernel(), size)
    np.testing.assert_allclose(products(resized, new), products(x, kernel()), atol=2e-5)


@pytest.mark.parametrize("size", [(2, 5), (3, 3), (7, 2)])
def test_to_fewer_pixels_it_is_the_nearest_in_least_squares(size):
    basis = np.eye(OLD[0] * OLD[1], dtype="float32").reshape(-1, *OLD, 1)
    matrix = tf.image.resize(basis, size, method="bilinear").numpy().reshape(len(basis), -1)
    flat = kernel().reshape(len(basis), -1)
    expected = np.linalg.lstsq(matrix.astype("float64"), flat, rcond=None)[0]
    new = resize_patch_kernel(kernel(), size)
    np.testing.assert_allclose(new.reshape(size[0] * size[1], -1), expected, atol=1e-5)


def test_the_size_that_it_has_changes_nothing():
    np.testing.assert_allclose(resize_patch_kernel(kernel(), OLD), kernel(), atol=1e-6)
