"""Checkpoints of models that differ from the published ones in kind or in size."""

import dataclasses
import itertools

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.resize import adapt_input_channels
from keras_vit.configs import AxialConfig, AxialResNetConfig, ViTConfig
from keras_vit.layers.positions import resize_offsets

SMALL = ViTConfig(4, 8, 2, 12, 2)


def array(tensor):
    return keras.ops.convert_to_numpy(tensor)


def built(config=SMALL, size=(8, 12), channels=3, seed=None):
    model = keras_vit.build(config, input_shape=(*size, channels), classes=5)
    rng = np.random.RandomState(seed)
    for weight in model.weights if seed is not None else ():
        weight.assign(rng.standard_normal(weight.shape))
    return model


def weight(model, path):
    return next(array(weight) for weight in model.weights if weight.path == path)


CONFIGS = {
    "learned_2d": dataclasses.replace(SMALL, position_embedding="learned_2d"),
    "every block": dataclasses.replace(SMALL, position_embedding_at="every_block"),
    "learned_2d, every block, registers": dataclasses.replace(
        SMALL, position_embedding="learned_2d", position_embedding_at="every_block",
        num_registers=2,
    ),
    "relative": dataclasses.replace(SMALL, position_embedding="relative"),
    "distillation": dataclasses.replace(SMALL, classifier="token+distillation"),
    "map": dataclasses.replace(SMALL, classifier="map"),
    "axial, relative": AxialConfig(4, 8, 1, 12, 2, position_embedding="relative"),
    "axial resnet": AxialResNetConfig((1,), 0.5, num_heads=4),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CONFIGS))
def test_every_variant_is_saved_and_loaded_by_name(name, tmp_path):
    model, again = built(CONFIGS[name], seed=0), built(CONFIGS[name])
    model.save_weights(tmp_path / "model.weights.h5")
    keras_vit.load_checkpoint(again, tmp_path / "model.weights.h5")
    for mine, theirs in itertools.zip_longest(model.weights, again.weights):
        np.testing.assert_array_equal(array(mine), array(theirs), err_msg=mine.path)


def test_relative_positions_go_to_another_grid(tmp_path):
    config, path = CONFIGS["relative"], tmp_path / "model.weights.h5"
    model, larger = built(config, seed=0), built(config, size=(16, 20))
    model.save_weights(path)
    report = keras_vit.load_checkpoint(larger, path)
    table = "encoder_block_1/attention/offset_embedding"
    assert report.resized[table] == ((2, 3), (4, 5))
    expected = array(resize_offsets(weight(model, table), (2, 3), (4, 5)))
    np.testing.assert_array_equal(weight(larger, table), expected)
    with pytest.raises(ValueError, match='with position_resize="official" only, not "bicubic"'):
        keras_vit.load_checkpoint(larger, path, position_resize="bicubic")


def test_variants_without_published_weights_have_no_official_names(tmp_path):
    for name in ("learned_2d", "relative", "distillation", "axial, relative", "axial resnet"):
        with pytest.raises(
            ValueError, match="must (have a name for every variable|match the model); save_weights"
        ):
            keras_vit.save_checkpoint(built(CONFIGS[name]), tmp_path / "model.npz")


def test_relative_positions_of_a_grid_with_as_many_patches_are_resized_too(tmp_path):
    config = CONFIGS["relative"]
    built(config, seed=0).save_weights(tmp_path / "model.weights.h5")
    report = keras_vit.load_checkpoint(built(config, size=(12, 8)), tmp_path / "model.weights.h5")
    assert report.resized["encoder_block_0/attention/offset_embedding"] == ((2, 3), (3, 2))


def test_keras_itself_refuses_relative_positions_of_another_grid(tmp_path):
    config = CONFIGS["relative"]
    built(config).save_weights(tmp_path / "model.weights.h5")
    with pytest.raises(ValueError, match="positions of the weights must match the model"):
        built(config, size=(12, 8)).load_weights(tmp_path / "model.weights.h5")


def test_positions_along_lines_go_to_other_lengths(tmp_path):
    config = CONFIGS["axial, relative"]
    model, larger = built(config, seed=0), built(config, size=(20, 16))
    model.save_weights(tmp_path / "model.weights.h5")
    keras_vit.load_checkpoint(larger, tmp_path / "model.weights.h5")
    for axis, old, new in (("row", 3, 4), ("column", 2, 5)):
        path = f"{axis}_block_0/attention/offset_embedding"
        expected = array(resize_offsets(weight(model, path), (1, old), (1, new)))
        np.testing.assert_array_equal(weight(larger, path), expected)


def test_each_axis_of_two_dimensional_positions_is_resized(tmp_path):
    config = CONFIGS["learned_2d"]
    model, larger = built(config, seed=0), built(config, size=(16, 20))
    model.save_weights(tmp_path / "model.weights.h5")
    keras_vit.load_checkpoint(larger, tmp_path / "model.weights.h5")
    for name, old, new in (("x_embedding", 3, 5), ("y_embedding", 2, 4)):
        before = weight(model, f"position_embedding/{name}")
        places = np.linspace(0, old - 1, new)
        expected = np.stack([np.interp(places, np.arange(old), column) for column in before.T], 1)
        after = weight(larger, f"position_embedding/{name}")
        np.testing.assert_allclose(after, expected, atol=1e-6)


def test_a_model_of_grey_images_sees_them_as_the_model_of_colours_does(tmp_path):
    keras_vit.save_checkpoint(built(seed=0), tmp_path / "model.npz")
    model = built(channels=1)
    report = keras_vit.load_checkpoint(model, tmp_path / "model.npz", input_channels="adapt")
    assert "patch_embedding/kernel: from 3 to 1 channels" in report.notes
    grey = np.random.RandomState(1).standard_normal((2, 8, 12, 1)).astype("float32")
    colours = built(seed=0)(np.repeat(grey, 3, axis=-1))
    np.testing.assert_allclose(array(model(grey)), array(colours), atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "channels", "wanted"),
    [
        ({"patch_size": 8}, 3, r"file \(4, 4, 3, 8\), model \(8, 8, 3, 8\)"),
        ({}, 1, 'input_channels="adapt"'),
    ],
)
def test_another_first_kernel_is_refused(changes, channels, wanted, tmp_path):
    keras_vit.save_checkpoint(built(seed=0), tmp_path / "model.npz")
    model = built(dataclasses.replace(SMALL, **changes), size=(16, 24), channels=channels)
    before = [array(value) for value in model.weights]
    with pytest.raises(ValueError, match=wanted):
        keras_vit.load_checkpoint(model, tmp_path / "model.npz")
    for value, old in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(array(value), old)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 13])
def test_an_image_of_equal_channels_keeps_its_outputs(channels):
    kernel = np.random.RandomState(0).standard_normal((2, 2, 3, 5)).astype("float32")
    adapted = adapt_input_channels(kernel, channels)
    assert adapted.shape == (2, 2, channels, 5)
    np.testing.assert_allclose(adapted.sum(2), kernel.sum(2), atol=1e-5)
    if channels == 4:
        red, green, blue = np.moveaxis(kernel, 2, 0)
        np.testing.assert_array_equal(adapted, np.stack([red / 2, green, blue, red / 2], axis=2))


def test_attention_pooling_has_the_published_names(tmp_path):
    keras_vit.save_checkpoint(built(CONFIGS["map"]), tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as arrays:
        shapes = {
            name.removeprefix("MAPHead_0/"): arrays[name].shape
            for name in arrays
            if name.startswith("MAPHead_0/")
        }
    attention, mlp = "MultiHeadDotProductAttention_0", "MlpBlock_0"
    assert shapes == {
        "probe": (1, 1, 8),
        **{f"{attention}/{part}/kernel": (8, 2, 4) for part in ("query", "key", "value")},
        **{f"{attention}/{part}/bias": (2, 4) for part in ("query", "key", "value")},
        f"{attention}/out/kernel": (2, 4, 8),
        f"{attention}/out/bias": (8,),
        "LayerNorm_0/scale": (8,),
        "LayerNorm_0/bias": (8,),
        f"{mlp}/Dense_0/kernel": (8, 12),
        f"{mlp}/Dense_0/bias": (12,),
        f"{mlp}/Dense_1/kernel": (12, 8),
        f"{mlp}/Dense_1/bias": (8,),
    }
