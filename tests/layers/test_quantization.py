"""`model.quantize` on layers with dense sublayers, and its files."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.hdf5 import read_model
from keras_vit.configs import AxialResNetConfig
from makers import tiny_config

AXIAL_RESNET = AxialResNetConfig((1, 2), width_factor=0.5, num_heads=2)

pytestmark = [
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="one backend is enough"),
    pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method"),
]

CONFIGS = {
    "token": keras_vit.ViTConfig(8, 16, 2, 32, 2),
    "map": tiny_config(patch_size=8, mlp_dim=32, classifier="map", gelu="exact"),
    "relative": tiny_config(patch_size=8, mlp_dim=32, position_embedding="relative"),
    "swiglu": tiny_config(patch_size=8, mlp_dim=32, gelu="swiglu"),
    "Axial-ResNet": AXIAL_RESNET,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_a_quantised_model_is_read_from_its_file(name, tmp_path):
    keras.utils.set_random_seed(0)
    model = keras_vit.build(CONFIGS[name], input_shape=(16, 16, 3), classes=3)
    for number, weight in enumerate(model.weights):
        random = np.random.RandomState(number).standard_normal(weight.shape)
        weight.assign(weight + 0.2 * random)
    images = np.random.RandomState(0).uniform(-1, 1, (4, 16, 16, 3)).astype("float32")
    before = model.predict(images, verbose=0)
    model.quantize("int8")
    expected = model.predict(images, verbose=0)
    np.testing.assert_allclose(model(images), expected, atol=1e-6)
    assert 0 < np.abs(expected - before).max() < 0.1
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = read_model(path)
    np.testing.assert_array_equal(loaded.predict(images, verbose=0), expected)
    assert len(loaded.weights) == len(model.weights)
    if name == "token":
        mlp = loaded.get_layer("encoder_block_0").mlp
        assert mlp.dense_1.kernel.dtype == mlp.dense_2.kernel.dtype == "int8"


def test_keras_cannot_read_its_own_quantised_attention(tmp_path):
    """Where it can, and keeps it frozen, `CompositeLayer` can go."""
    inputs = keras.Input((5, 8))
    model = keras.Model(inputs, keras.layers.MultiHeadAttention(2, 3)(inputs, inputs))
    model.layers[-1].trainable = False
    model.save(tmp_path / "model.keras")
    assert keras.saving.load_model(tmp_path / "model.keras").trainable_variables
    model.quantize("int8")
    model.save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="could not be loaded"):
        keras.saving.load_model(tmp_path / "model.keras")
