"""Positions are resized as by the code base that the weights are from."""

import dataclasses
import json

import keras
import numpy as np
import pytest

import keras_vit
from by_hand import array
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.code_bases.hugging_face import HUGGING_FACE
from keras_vit.checkpoints.code_bases.timm import TIMM
from keras_vit.checkpoints.code_bases.torchvision import TORCHVISION
from keras_vit.checkpoints.load import position_layers
from keras_vit.checkpoints.resize import resize_positions
from keras_vit.checkpoints.save import stored_arrays
from keras_vit.description import Description
from keras_vit.opening import open_model
from makers import copy_weights, tiny_config

safetensors_numpy = pytest.importorskip("safetensors.numpy")

CONFIG = tiny_config(patch_size=8, num_heads=1, gelu="exact")
TIMM_CONFIG = {
    "architecture": "vit_tiny_patch16_224",
    "model_args": {"num_heads": 1, "img_size": 32},
    "pretrained_cfg": {"input_size": [3, 32, 32]},
}


def _source(config=CONFIG, **options):
    """A model of 4x4 patches with large random positions."""
    options = {"input_shape": (32, 32, 3), "classes": 2, **options}
    model = keras_vit.build(config, **options)
    table = model.get_layer("position_embedding").embedding
    table.assign(np.random.default_rng(1).normal(size=table.shape))
    for weight in model.get_layer("predictions").weights:
        weight.assign(np.ones(weight.shape))
    return model


def _table(model):
    return keras.ops.convert_to_numpy(model.get_layer("position_embedding").embedding)[0]


def _resized(model, grid, rule):
    return resize_positions(_table(model)[1:], (4, 4), grid, rule)


@pytest.fixture
def timm(tmp_path):
    """The folder of a timm model and the model."""
    model, folder = _source(), tmp_path / "timm"
    folder.mkdir()
    safetensors_numpy.save_file(stored_arrays(model, TIMM), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(TIMM_CONFIG))
    return folder, model


def _rule_of(folder, arrays, config=None):
    safetensors_numpy.save_file(arrays, folder / "model.safetensors")
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return open_checkpoint(folder).fields["position_resize"]


@pytest.mark.parametrize(
    ("layout", "fields", "config", "rule"),
    [
        (TIMM, {}, None, "bicubic"),
        (TORCHVISION, {}, None, "bicubic_corners"),
        (HUGGING_FACE, {}, None, "bicubic_torch"),
        (HUGGING_FACE, {"layer_scale": True}, {"model_type": "dinov2"}, "bicubic_torch"),
        (
            HUGGING_FACE,
            {"layer_scale": True, "num_registers": 4},
            {"model_type": "dinov2_with_registers"},
            "bicubic",
        ),
    ],
)
def test_files_of_each_code_base_have_its_rule(layout, fields, config, rule, tmp_path):
    arrays = stored_arrays(_source(dataclasses.replace(CONFIG, **fields)), layout)
    assert _rule_of(tmp_path, arrays, config) == rule


# Building with weights warns of pixels that are not in [-1, 1].
pytestmark = pytest.mark.filterwarnings("ignore:.* needs pixels of:UserWarning")


@pytest.mark.parametrize("given", [None, "bilinear"])
def test_a_model_resizes_by_the_rule_of_its_weights_or_the_given_one(given, timm):
    folder, source = timm
    changes = {"position_resize": given} if given else {}
    model = keras_vit.build(CONFIG, weights=folder, input_shape=(48, 32, 3), classes=2, **changes)
    rule = given or "bicubic"
    np.testing.assert_array_equal(_table(model)[1:], _resized(source, (6, 4), rule))
    stated = Description.of_model(model).config.position_resize
    assert stated == position_layers(model)[0].resize == rule
    opened = open_model(folder)
    assert "positions bicubic (the rule of timm)" in opened.description.facts
    model = opened.model((48, 32))
    np.testing.assert_array_equal(_table(model)[1:], _resized(source, (6, 4), "bicubic"))
    keras_vit.load_checkpoint(model, folder)  # As `build`.
    np.testing.assert_array_equal(_table(model)[1:], _resized(source, (6, 4), "bicubic"))
    keras_vit.load_checkpoint(model, folder, position_resize="official")
    np.testing.assert_array_equal(_table(model)[1:], _resized(source, (6, 4), "official"))


@pytest.mark.parametrize("file", ["a.npz", "a.weights.h5", "a.keras"])
def test_files_keep_the_rule(file, timm, tmp_path):
    folder, source = timm
    model = keras_vit.build(CONFIG, weights=folder, input_shape=(32, 32, 3), classes=2)
    if file == "a.npz":
        keras_vit.save_checkpoint(model, tmp_path / file)
    elif file == "a.weights.h5":
        model.save_weights(tmp_path / file)
    else:
        model.save(tmp_path / file)
    opened = open_model(tmp_path / file)
    assert opened.description.position_resize == "bicubic"
    resized = opened.model((48, 32))
    np.testing.assert_array_equal(_table(resized)[1:], _resized(source, (6, 4), "bicubic"))
    assert position_layers(resized)[0].resize == "bicubic"
    target = keras_vit.build(CONFIG, input_shape=(48, 32, 3), classes=2)
    copy_weights(model, target)
    np.testing.assert_array_equal(_table(target)[1:], _table(resized)[1:])


def test_the_rule_holds_in_the_graph_of_a_free_image_size(timm):
    folder, source = timm
    free = keras_vit.build(CONFIG, weights=folder, input_shape=(None, None, 3), include_top=False)
    fixed = keras_vit.build(CONFIG, weights=folder, input_shape=(48, 32, 3), include_top=False)
    assert free.get_layer("position_embedding").grid == (4, 4)  # The grid of the weights.
    images = np.random.default_rng(0).uniform(-1, 1, (2, 48, 32, 3)).astype("float32")
    np.testing.assert_allclose(array(free(images)), array(fixed(images)), atol=1e-5)
