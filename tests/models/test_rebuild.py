import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.load import LoadOptions
from keras_vit.export.exported_model import computes_in_float32, float32_model
from keras_vit.models.rebuild import (
    copy_weights,
    feature_model,
    inference_model,
    resized_model,
)

IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
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


@pytest.mark.parametrize("nested", [False, True])
def test_a_float32_model_has_the_weights_of_the_mixed_one(mixed, nested):
    if nested:
        mixed = keras.Sequential([keras.Input((16, 16, 3)), mixed])
    result = float32_model(mixed)
    assert float32_model(result) is result
    assert not computes_in_float32(mixed)
    assert computes_in_float32(result)
    for old, new in zip(mixed.get_weights(), result.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    difference = result.predict(IMAGES, verbose=0) - mixed.predict(IMAGES, verbose=0)
    assert 0 < np.abs(difference).max() < 1e-2  # Float16 keeps 11 bits.


@pytest.mark.parametrize("fields", [{}, {"num_registers": 2}, {"classifier": "map"}])
def test_another_image_size_gives_what_loading_at_that_size_gives(fields, tmp_path):
    model = build(**fields)
    model.save_weights(tmp_path / "model.weights.h5")
    loaded = build((48, 40), **fields)
    keras_vit.load_checkpoint(loaded, tmp_path / "model.weights.h5")
    result = resized_model(model, (48, 40))
    np.testing.assert_allclose(
        result.predict(WIDE_IMAGES, verbose=0), loaded.predict(WIDE_IMAGES, verbose=0), atol=1e-6
    )
    shared = {id(variable) for variable in result.weights} & set(map(id, model.weights))
    assert len(shared) == len(model.weights) - 1
    with pytest.raises(ValueError, match="learned_1d.*Received: other"):
        resized_model(keras.Sequential([keras.Input((8, 8, 3))], name="other"), (16, 16))


ROTARY = {
    "position_embedding": "none",
    "rotary": 100.0,
}


def test_rotary_positions_of_another_image_size_share_all_weights():
    model, larger = build(**ROTARY), build((48, 40), **ROTARY)
    result = resized_model(model, (48, 40))
    assert {id(variable) for variable in result.weights} == set(map(id, model.weights))
    assert not copy_weights(model, larger).resized
    expected = larger.predict(WIDE_IMAGES, verbose=0)
    np.testing.assert_allclose(result.predict(WIDE_IMAGES, verbose=0), expected, atol=1e-6)
    assert np.abs(expected - expected.mean()).max() > 1e-2


def test_rotary_models_are_rebuilt_in_float32_and_for_inference():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        mixed = build((16, 16), **ROTARY, dropout_rate=0.1)
    finally:
        keras.config.set_dtype_policy("float32")
    answers = mixed.predict(IMAGES, verbose=0)
    for result in (float32_model(mixed), inference_model(mixed)):
        difference = result.predict(IMAGES, verbose=0) - answers
        assert 0 < np.abs(difference).max() < 5e-2  # bfloat16 keeps 8 bits.


def test_copied_weights_are_those_that_loading_a_file_gives(tmp_path):
    source, target, loaded = build(), build((48, 40), classes=5), build((48, 40), classes=5)
    source.save_weights(tmp_path / "source.weights.h5")
    before = target.get_weights()
    with pytest.raises(ValueError, match="predictions/kernel"):
        copy_weights(source, target)
    for old, new in zip(before, target.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    report = copy_weights(source, target, LoadOptions(("predictions/*",)))
    keras_vit.load_checkpoint(
        loaded, tmp_path / "source.weights.h5", skip=("predictions/*",), position_grid=(4, 3)
    )
    assert report.resized == {"position_embedding/embedding": ((4, 3), (6, 5))}
    for ours, expected in zip(target.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, expected)


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
    with pytest.raises(ValueError, match='tokens of a Vision .*final_norm="tokens"'):
        feature_model(model, feature)
