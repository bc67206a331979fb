import numpy as np

from keras_vit import inspection
from makers import tiny_config

TINY = tiny_config(depth=2)


def test_head_maps_are_the_class_tokens_rows(random_model, random_images):
    model, batch = random_model(TINY), random_images()
    found = inspection.head_maps(model, batch, batch_size=1)
    assert found.shape == (2, 2, 2, 2, 3)
    expected = inspection.attention_maps(model, batch)[1][:, :, 0, 1:].reshape(2, 2, 2, 3)
    np.testing.assert_allclose(found[:, 1], expected, atol=1e-6)
