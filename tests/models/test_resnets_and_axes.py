"""BiT, hybrids and axial models: their grids, their units, and what depends on what."""

import re

import keras
import numpy as np
import pytest

import keras_vit
from by_hand import array
from keras_vit.configs import (
    AxialConfig,
    AxialResNetConfig,
    BiTConfig,
    PoolingStem,
    ResNetStem,
    ViTConfig,
)
from keras_vit.opening import open_model

HYBRID = ViTConfig(1, 32, 2, 48, 2, resnet=ResNetStem((1, 2, 1), width_factor=0.5))
ROTATED = {"position_embedding": "none", "rotary": 100.0}
# Models whose positions depend on the size of the image, for patches of 56 pixels.
OF_FREE_SIZE = {
    "learned_2d": ViTConfig(
        56, 8, 3, 12, 2,
        position_embedding="learned_2d", position_embedding_at="every_block_shared",
    ),
    "relative": ViTConfig(56, 8, 3, 12, 2, position_embedding="relative"),
    "none": ViTConfig(56, 8, 3, 12, 2, position_embedding="none"),
    "rotary": ViTConfig(56, 8, 2, 12, 2, **ROTATED),
    "hybrid": HYBRID,
    "axial resnet": AxialResNetConfig((1, 1), 0.5, num_heads=4),
}  # fmt: skip
AXIAL = AxialConfig(4, 8, 1, 12, 2)
VARIANTS = {
    "gap": {},
    "token": {"classifier": "token"},
    "relative, token, registers": {
        "classifier": "token",
        "num_registers": 2,
        "position_embedding": "relative",
    },
}


def images(*size):
    return np.random.RandomState(1).standard_normal((2, *size, 3)).astype("float32")


def randomised(model):
    rng = np.random.RandomState(0)
    for weight in model.weights:
        weight.assign(0.3 * rng.standard_normal(weight.shape))
    return model


@pytest.mark.parametrize("name", OF_FREE_SIZE)
def test_a_model_of_free_size_is_that_of_the_default_size_on_it(name):
    free, fixed = (
        keras_vit.build(OF_FREE_SIZE[name], include_top=False, input_shape=(*size, 3))
        for size in ((None, None), (224, 224))
    )
    randomised(fixed)
    free.set_weights(fixed.get_weights())
    x = images(224, 224)[:1]
    expected = array(fixed(x))
    np.testing.assert_allclose(array(free(x)), expected, atol=1e-4 * np.abs(expected).max())
    config, size = OF_FREE_SIZE[name], (112, 170)
    grid = config.grid(size) if isinstance(config, ViTConfig) else (14, 22)
    assert tuple(free(x[:, :112, :170]).shape) == (1, *grid, expected.shape[-1])


@pytest.mark.any_backend
def test_a_zero_counts_at_the_border_of_the_pool_of_bit():
    keras.utils.set_random_seed(0)
    model = keras_vit.build(BiTConfig((1,), 0.5), input_shape=(8, 8, 3), include_top=False)
    pooled = keras.Model(model.input, model.get_layer("root_pool").output)
    # Where all of a border window is negative, the greatest value is the zero outside.
    corner = array(pooled(images(8, 8)))[:, 0, 0]
    assert corner.min() == 0 < corner.max()


def test_bit_models_have_the_units_of_their_names():
    bits = [pair for pair in keras_vit.configs.MODELS.items() if pair[0].startswith("BiT")]
    for name, config in bits:
        layers, width = re.fullmatch(r"BiT-R(\d+)x(\d)", name).groups()
        assert 3 * sum(config.num_blocks) + 2 == int(layers), name
        assert config.width_factor == int(width), name


def test_patches_are_those_of_the_feature_map_whatever_the_size():
    size = (97, 65)  # Neither is a multiple of the stride, 16: parts of a cell count.
    model = keras_vit.build(HYBRID, input_shape=(*size, 3), include_top=False)
    assert model.output_shape == (None, 7, 5, 32)
    assert HYBRID.grid(size) == (7, 5)


def test_the_smallest_image_gives_one_patch_and_a_smaller_one_is_refused():
    config = ViTConfig(8, 32, 1, 48, 2, resnet=ResNetStem((), width_factor=0.5))
    assert config.min_image_size == (29, 29)
    model = keras_vit.build(config, input_shape=(29, 29, 3), include_top=False)
    assert model.output_shape[1:3] == (1, 1)
    with pytest.raises(ValueError, match="29x29 pixels"):
        keras_vit.build(config, input_shape=(29, 28, 3))


def test_a_pooling_stem_keeps_the_resolution_of_small_images(tmp_path):
    config = ViTConfig(1, 32, 1, 48, 2, classifier="gap", resnet=PoolingStem((32, 64)))
    model = keras_vit.build(config, input_shape=(29, 32, 3), classes=3)
    assert model.get_layer("root_relu").output.shape == (None, 29, 32, 32)
    assert model.get_layer("patch_embedding").output.shape[1:3] == config.grid((29, 32)) == (8, 8)
    keras_vit.save_checkpoint(model, tmp_path / "weights.npz")
    assert open_model(tmp_path / "weights.npz").description.config == config


@pytest.mark.parametrize("name", VARIANTS)
def test_a_pixel_changes_the_tokens_of_its_row_alone_and_then_all(name):
    # The rest of the division by the patch is cut off.
    model = randomised(keras_vit.build(AXIAL, input_shape=(14, 17, 3), **VARIANTS[name]))
    prefix = keras_vit.describe(model).config.num_prefix_tokens
    names = ("join_rows_0", "join_columns_0")
    steps = keras.Model(model.input, [model.get_layer(name).output for name in names])
    before = images(14, 17)
    changed = before.copy()
    changed[:, 5, 9] += 1  # In the patch of row 1 and column 2.
    rows, columns = (
        np.abs(array(one) - array(other)).max(-1) > 0
        for one, other in zip(steps(changed), steps(before), strict=True)
    )
    expected = np.zeros((3, 4), bool)
    expected[1] = True
    np.testing.assert_array_equal(rows[0, prefix:].reshape(3, 4), expected)
    assert rows[:, :prefix].all()
    assert columns.all()


def test_axial_resnet_has_attention_for_the_3x3_convolutions():
    model = keras_vit.build(OF_FREE_SIZE["axial resnet"], classes=5, input_shape=(33, 41, 3))
    kernels = {weight.shape[:2] for weight in model.weights if len(weight.shape) == 4}
    assert kernels == {(7, 7), (1, 1)}
    assert model.get_layer("block_1_unit_1").output.shape == (None, 9, 11, 128)
    assert model.get_layer("block_2_unit_1").output.shape == (None, 5, 6, 256)
