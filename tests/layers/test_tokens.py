import keras
import numpy as np
import pytest

from by_hand import array, randomized, tokens
from keras_vit.layers import PatchEmbedding

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize(
    ("patch_size", "image_shape"),
    [((4, 4), (16, 16, 3)), ((2, 3), (8, 12, 1)), ((4, 4), (18, 11, 3)), ((1, 1), (3, 2, 6))],
)
def test_a_patch_embedding_is_a_convolution_without_overlap(patch_size, image_shape):
    channels, images = image_shape[-1], tokens(2, *image_shape)
    embedding = randomized(PatchEmbedding(5, patch_size), (None, None, None, channels))
    convolution = keras.layers.Conv2D(5, patch_size, patch_size)
    convolution.build((None, None, None, channels))
    convolution.set_weights(embedding.get_weights())
    expected = array(convolution(images))
    np.testing.assert_allclose(array(embedding(images)), expected, atol=1e-5)
    inputs = keras.Input((None, None, channels))
    model = keras.Model(inputs, embedding(inputs))
    assert model.output_shape == (None, None, None, 5)
    np.testing.assert_allclose(model.predict(images, verbose=0), expected, atol=1e-5)
