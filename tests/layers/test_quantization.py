"""`model.quantize` on layers with dense sublayers, and its files."""

import copy

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.classifier_folder import read_model
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


QUANTIZERS = keras.quantizers
WAYS = {
    "int8, weights only": QUANTIZERS.Int8QuantizationConfig(activation_quantizer=None),
    "int4 in blocks": QUANTIZERS.Int4QuantizationConfig(block_size=6),
    "int4 by channel": QUANTIZERS.Int4QuantizationConfig(block_size=-1),
    "float8": QUANTIZERS.Float8QuantizationConfig(),
}


def one_block(**options):
    """A model of one block, and one of Keras's own dense layers behind it."""
    keras.utils.set_random_seed(0)
    tokens = keras.Input((3, 16))
    outputs = keras_vit.layers.EncoderBlock(num_heads=2, mlp_dim=24, **options)(tokens)
    return keras.Model(tokens, keras.layers.Dense(4)(outputs))


@pytest.mark.parametrize("how", ["file", "copy"])
@pytest.mark.parametrize("way", WAYS)
def test_a_copy_is_quantised_in_the_same_way(way, how, tmp_path):
    model = one_block()
    model.quantize(config=WAYS[way])
    tokens = np.random.RandomState(0).normal(size=(2, 3, 16)).astype("float32")
    expected = keras.ops.convert_to_numpy(model(tokens))
    if how == "file":
        model.save(tmp_path / "model.keras")
        read = read_model(tmp_path / "model.keras")
    else:
        read = copy.deepcopy(model)
    # As of Keras's own dense layer alone.
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(read(tokens)), expected)


def test_a_policy_that_quantises_is_read_from_a_file(tmp_path):
    model = one_block(dtype="int8_from_float32")
    model.save(tmp_path / "model.keras")
    read = read_model(tmp_path / "model.keras")
    assert len(model.weights)
    for weight, other in zip(model.weights, read.weights, strict=True):
        np.testing.assert_array_equal(weight, other)


def test_quantising_for_language_models_is_refused_before_anything_changes():
    model = keras_vit.build(tiny_config(patch_size=8), input_shape=(16, 16, 3), classes=3)
    config = QUANTIZERS.GPTQConfig(dataset=["text"], tokenizer=lambda text: text)
    with pytest.raises(ValueError, match=r"one of \('int8', 'int4', 'float8'\).*'gptq'"):
        model.quantize(config=config)
    assert not [layer for layer in model.layers if layer.quantization_mode]


def test_a_clone_of_frozen_blocks_is_frozen():
    model = keras_vit.build(
        tiny_config(patch_size=8, classifier="map"), input_shape=(16, 16, 3), classes=3
    )
    for layer in model.layers:
        layer.trainable = layer.name == "predictions"
    clone = keras.models.clone_model(model)
    assert len(clone.trainable_weights) == len(model.trainable_weights) == 2


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
