"""Configs from JSON and from shapes; from layers: tests/models/test_every_model.py."""

import dataclasses
import json

import pytest

from keras_vit import configs
from keras_vit.configs import recognition
from keras_vit.configs.recognition import config_of_json, config_of_shapes, layer_shapes


@pytest.mark.parametrize(
    "name", ["ViT-B/16", "R50+ViT-B/16", "R7+ViT-Nano/8", "BiT-R50x1", "Axial-ViT-B/16"]
)
def test_a_config_is_the_same_after_json(name):
    config = configs.MODELS[name]
    fields = json.loads(json.dumps(dataclasses.asdict(config)))
    assert config_of_json(fields, type(config).__name__) == config


def test_unknown_configs_and_fields_are_refused():
    with pytest.raises(ValueError, match="must be one of .*'ViTConfig'.*Received: 'str'"):
        config_of_json({}, "str")
    with pytest.raises(ValueError, match="fields must match ViTConfig.*'size'"):
        config_of_json({"size": 3}, "ViTConfig")
    fields = dataclasses.asdict(configs.MODELS["R50+ViT-B/16"])
    fields["resnet"]["size"] = 3
    with pytest.raises(ValueError, match="fields must match ViTConfig.*'size'"):
        config_of_json(fields, "ViTConfig")


def test_the_first_variable_of_a_layer_gives_its_shape():
    shapes = {"head/bias": (7,), "head/kernel": (5, 7), "norm/1": (5,), "norm/0": (4,), "x/1": (2,)}
    assert layer_shapes(shapes) == {"head": (5, 7), "norm": (4,), "x": None}


def test_weights_of_another_model_are_refused():
    with pytest.raises(ValueError, match="that do not show patch_size, mlp_dim, depth"):
        config_of_shapes({"dense": (3, 4)})


def test_the_width_of_a_resnet_is_that_many_times_the_papers():
    assert [recognition._width_factor(filters) for filters in (32, 64, 128)] == [0.5, 1, 2]
