"""Maps of several depths, as `features_only` of timm gives them."""

import keras
import numpy as np
import pytest

import keras_vit

IMAGES = np.random.default_rng(0).random((2, 32, 48, 3), "float32")


@pytest.fixture(scope="module")
def model():
    return keras_vit.build(
        "ViT-Ti/16", input_shape=(32, 48, 3), classes=5, depth=4, width=24, num_heads=3, mlp_dim=32
    )


def test_maps_are_the_patch_tokens_of_their_blocks_in_rows(model):
    maps = keras_vit.features(model, at=(0, 3))(IMAGES)
    assert [tuple(each.shape) for each in maps] == [(2, 2, 3, 24)] * 2
    tokens = keras.Model(model.input, model.get_layer("encoder_block_3").output)(IMAGES)
    rows = np.reshape(keras.ops.convert_to_numpy(tokens)[:, 1:], (2, 2, 3, 24))
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(maps[1]), rows)


def test_a_number_gives_one_map(model):
    assert keras_vit.features(model, at=2).output_shape == (None, 2, 3, 24)


def test_the_map_behind_the_last_block_is_include_top_false_before_its_normalization(model):
    whole = keras_vit.build("ViT-Ti/16", input_shape=(32, 48, 3), include_top=False,
                            depth=4, width=24, num_heads=3, mlp_dim=32)  # fmt: skip
    last = keras_vit.features(whole, at=3)(IMAGES)
    normalized = whole.get_layer("encoder_norm")(last)
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(normalized), keras.ops.convert_to_numpy(whole(IMAGES)), atol=1e-5
    )


def test_a_name_of_a_packaged_classifier_has_maps():
    assert keras_vit.features("cifar10", at=0).output_shape == (None, 4, 4, 256)


@pytest.mark.parametrize("at", [4, -1, (), (0, 9)])
def test_blocks_that_are_not_there_are_refused(model, at):
    with pytest.raises(ValueError, match="from 0 to 3"):
        keras_vit.features(model, at=at)


def test_a_resnet_has_no_blocks():
    resnet = keras_vit.build(keras_vit.configs.BiTConfig((1, 1)), input_shape=(32, 32, 3))
    with pytest.raises(ValueError, match="encoder blocks"):
        keras_vit.features(resnet, at=0)
