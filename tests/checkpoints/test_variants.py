"""Checkpoints of models that differ from the published ones in kind or in size."""

import dataclasses
import itertools

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.resize import adapt_input_channels
from keras_vit.configs import AxialConfig, AxialResNetConfig, ViTConfig

SMALL = ViTConfig(4, 8, 2, 12, 2)


def array(tensor):
    return keras.ops.convert_to_numpy(tensor)


def built(config=SMALL, size=(8, 12), channels=3, seed=None):
    model = keras_vit.build(config, input_shape=(*size, channels), classes=5)
    rng = np.random.RandomState(seed)
    for weight in model.weights if seed is not None else ():
        weight.assign(rng.standard_normal(weight.shape))
    return model


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


@pytest.mark.parametrize(
    ("name", "size"),
    [("relative", (16, 20)), ("relative", (12, 8)), ("learned_2d", (16, 20)),
     ("axial, relative", (20, 16))],
)  # fmt: skip
def test_positions_of_other_kinds_are_of_one_grid(name, size, tmp_path):
    """The second grid has as many patches, so its tables have the same shape."""
    built(CONFIGS[name], seed=0).save_weights(tmp_path / "model.weights.h5")
    with pytest.raises(ValueError, match="only learned_1d"):
        keras_vit.load_checkpoint(built(CONFIGS[name], size=size), tmp_path / "model.weights.h5")


@pytest.mark.parametrize("name", ["learned_2d", "relative", "distillation", "axial resnet"])
def test_variants_without_published_weights_have_no_official_names(name, tmp_path):
    message = "(every variable|match the model); save_weights"
    with pytest.raises(ValueError, match=message):
        keras_vit.save_checkpoint(built(CONFIGS[name]), tmp_path / "model.npz")


def test_a_model_of_grey_images_sees_them_as_the_model_of_colours_does(tmp_path):
    keras_vit.save_checkpoint(built(seed=0), tmp_path / "model.npz")
    model = built(channels=1)
    report = keras_vit.load_checkpoint(model, tmp_path / "model.npz", input_channels="adapt")
    assert "patch_embedding/kernel: from 3 to 1 channels" in report.notes
    grey = np.random.RandomState(1).standard_normal((2, 8, 12, 1)).astype("float32")
    colours = built(seed=0)(np.repeat(grey, 3, axis=-1))
    np.testing.assert_allclose(array(model(grey)), array(colours), atol=1e-4)


def test_another_first_kernel_is_refused(tmp_path):
    keras_vit.save_checkpoint(built(seed=0), tmp_path / "model.npz")
    model = built(dataclasses.replace(SMALL, patch_size=8), size=(16, 24))
    with pytest.raises(ValueError, match=r"file \(4, 4, 3, 8\), model \(8, 8, 3, 8\)"):
        keras_vit.load_checkpoint(model, tmp_path / "model.npz")
    with pytest.raises(ValueError, match='input_channels="adapt"'):
        keras_vit.load_checkpoint(built(channels=1), tmp_path / "model.npz")


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
        shapes = {name: arrays[name].shape for name in arrays if name.startswith("MAPHead_0/")}
    attention = "MAPHead_0/MultiHeadDotProductAttention_0"
    assert len(shapes) == 15
    assert shapes["MAPHead_0/probe"] == (1, 1, 8)
    assert shapes[f"{attention}/query/kernel"] == shapes[f"{attention}/value/kernel"] == (8, 2, 4)
    assert shapes[f"{attention}/out/kernel"] == (2, 4, 8)
    assert shapes["MAPHead_0/LayerNorm_0/scale"] == (8,)
    assert shapes["MAPHead_0/MlpBlock_0/Dense_0/kernel"] == (8, 12)
