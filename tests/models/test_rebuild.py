import keras
import numpy as np
import pytest

import keras_vit
from by_hand import array
from keras_vit.models.rebuild import (
    computes_in_float32,
    feature_model,
    inference_model,
    merged_weights,
)

WIDE_IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 48, 40, 3)).astype("float32")
SIZES = {"patch_size": 8, "width": 16, "depth": 2, "mlp_dim": 16, "num_heads": 2}


def build(image_size=(32, 24), classes=3, **fields):
    """Returns a model with a random head."""
    keras.utils.set_random_seed(0)
    config = keras_vit.ViTConfig(**{**SIZES, **fields})
    model = keras_vit.build(config, classes=classes, input_shape=(*image_size, 3))
    kernel = model.get_layer("predictions").kernel
    kernel.assign(np.random.default_rng(0).normal(size=kernel.shape))
    return model


@pytest.fixture
def mixed():
    keras.config.set_dtype_policy("mixed_float16")
    yield build((16, 16))
    keras.config.set_dtype_policy("float32")


def test_an_inference_model_has_neither_dropout_nor_remat(mixed):
    model = build((16, 16), dropout_rate=0.1, stochastic_depth_rate=0.1, remat=True)
    result = inference_model(model)
    block = result.get_layer("encoder_block_1")
    assert (block.dropout_rate, block.stochastic_depth_rate, block.remat) == (0, 0, False)
    assert computes_in_float32(result)
    assert keras.config.dtype_policy().name == "mixed_float16"
    for old, new in zip(model.get_weights()[-2:], result.get_weights()[-2:], strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("feature", ["avg", "token"])
def test_features_of_tokens_need_their_normalisation(feature):
    model = build(classifier="gap", final_norm="pooled", unread_class_token=True)
    with pytest.raises(ValueError, match='final_norm="tokens"'):
        feature_model(model, feature)


@pytest.fixture
def with_lora():
    """A model with low-rank additions of another scale than 1, to more than query and value."""
    model = build((16, 16))
    block, head = model.get_layer("encoder_block_0"), model.get_layer("predictions")
    parts = (block.attention.query, block.attention.key, block.mlp.dense_1, block.mlp.dense_2, head)
    for number, layer in enumerate(parts):
        layer.enable_lora(2, lora_alpha=6)
        values = np.random.RandomState(number).normal(0, 0.3, layer.lora_kernel_b.shape)
        layer.lora_kernel_b.assign(values)
    return model


def test_every_low_rank_addition_is_merged_at_its_scale(with_lora):
    images = np.random.RandomState(0).uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
    expected = array(with_lora(images))
    np.testing.assert_allclose(array(inference_model(with_lora)(images)), expected, atol=1e-6)
    weights = {w.path: array(w) for w in with_lora.get_layer("predictions").weights}
    product = weights["predictions/lora_kernel_a"] @ weights["predictions/lora_kernel_b"]
    kernel = weights["predictions/kernel"] + 6 / 2 * product
    np.testing.assert_allclose(merged_weights(with_lora)["predictions/kernel"], kernel, atol=1e-6)


def test_quantised_weights_are_not_merged():
    model = build((16, 16))
    model.get_layer("predictions").quantize("int8")
    with pytest.raises(ValueError, match="quantised.*predictions is int8"):
        merged_weights(model)
