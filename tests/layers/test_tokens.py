import keras
import numpy as np
import pytest

from keras_vit.layers import PatchEmbedding

pytestmark = pytest.mark.any_backend


def both(patch_size, channels=3, dim=5):
    """An embedding and Keras's convolution with the same weights."""
    embedding = PatchEmbedding(dim, patch_size)
    convolution = keras.layers.Conv2D(dim, patch_size, patch_size)
    for layer in (embedding, convolution):
        layer.build((None, None, None, channels))
    bias = np.linspace(-1, 1, dim).astype("float32")
    embedding.set_weights([embedding.get_weights()[0], bias])
    convolution.set_weights(embedding.get_weights())
    return embedding, convolution


@pytest.mark.parametrize(
    ("patch_size", "image_shape"),
    [((4, 4), (16, 16, 3)), ((2, 3), (8, 12, 1)), ((4, 4), (18, 11, 3)), ((1, 1), (3, 2, 6))],
)
def test_a_patch_embedding_is_a_convolution_without_overlap(patch_size, image_shape):
    embedding, convolution = both(patch_size, image_shape[-1])
    images = np.random.default_rng(0).normal(size=(2, *image_shape)).astype("float32")
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(embedding(images)),
        keras.ops.convert_to_numpy(convolution(images)),
        atol=1e-5,
    )


def test_the_size_of_the_image_may_be_unknown():
    embedding, convolution = both((4, 4))
    inputs = keras.Input((None, None, 3))
    model = keras.Model(inputs, embedding(inputs))
    assert model.output_shape == (None, None, None, 5)
    images = np.random.default_rng(1).normal(size=(2, 9, 13, 3)).astype("float32")
    np.testing.assert_allclose(
        model.predict(images, verbose=0),
        keras.ops.convert_to_numpy(convolution(images)),
        atol=1e-5,
    )
