import os
import pathlib

import keras
import pytest

import keras_vit
from keras_vit import describe
from keras_vit.configs import (
    AxialConfig,
    AxialResNetConfig,
    BiTConfig,
    PoolingStem,
    ResNetStem,
    ViTConfig,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]
VIT = {"patch_size": 16, "width": 64, "depth": 2, "mlp_dim": 256, "num_heads": 4}

# Every architecture and every variant that adds parts.
SMALL = {
    "token": ViTConfig(**VIT),
    "gap, pre_logits": ViTConfig(**VIT, classifier="gap", representation_size=32),
    "map, registers": ViTConfig(**VIT, classifier="map", num_registers=3),
    "distillation": ViTConfig(**VIT, classifier="token+distillation", head_bias=-10.0),
    "no positions, exact gelu": ViTConfig(**VIT, position_embedding="none", gelu="exact"),
    "2d, registers": ViTConfig(**VIT, position_embedding="learned_2d", num_registers=2),
    "relative, remat": ViTConfig(**VIT, position_embedding="relative", remat=True),
    "2d at every block": ViTConfig(
        **VIT, position_embedding="learned_2d", position_embedding_at="every_block"
    ),
    "shared by every block": ViTConfig(**VIT, position_embedding_at="every_block_shared"),
    "hybrid": ViTConfig(**{**VIT, "patch_size": 1}, resnet=ResNetStem((1, 2, 1), 0.5)),
    "root only": ViTConfig(
        **{**VIT, "patch_size": (2, 3)}, resnet=ResNetStem((), epsilon_in="variance")
    ),
    "pooling stem": ViTConfig(**{**VIT, "patch_size": 2}, resnet=PoolingStem((64, 32))),
    "bit": BiTConfig((1, 1, 2), 0.5, head_bias=-10.0),
    "clip": ViTConfig(**VIT, gelu="quick", embedding_norm=True),
    "swiglu, layer scale": ViTConfig(
        **VIT, classifier="token+gap", gelu="swiglu", layer_scale=True, num_registers=2
    ),
    "relu, max, class token, normalised keys": ViTConfig(
        **VIT, classifier="max", gelu="relu", unread_class_token=True, qk_norm=True
    ),
    "normalised after pooling": ViTConfig(
        **VIT, classifier="gap", final_norm="pooled", unread_class_token=True
    ),
    "two tokens normalised after pooling": ViTConfig(
        **VIT, classifier="token+distillation", final_norm="pooled"
    ),
    "rotary": ViTConfig(**VIT, position_embedding="none", rotary=100.0),
    "rotary beside a table, map of other sizes": ViTConfig(
        **VIT,
        rotary=50.0,
        classifier="map",
        map_num_heads=2,
        map_mlp_dim=24,
        num_registers=2,
    ),
    "no last norm": ViTConfig(**VIT, classifier="token", final_norm="none"),
    "map, class token": ViTConfig(**VIT, classifier="map", unread_class_token=True),
    "axial": AxialConfig(**VIT, dropout_rate=0.1, attention_dropout_rate=0.2),
    "axial, token, relative": AxialConfig(
        **VIT, classifier="token", position_embedding="relative", num_registers=1
    ),
    "axial resnet": AxialResNetConfig((1, 2, 1), 0.5, num_heads=4),
}
SHAPE = (96, 160, 3)


@pytest.fixture(scope="module")
def models():
    """Returns a function from a row of SMALL to its model, built once."""
    built: dict[str, keras.Model] = {}

    def model_of(name):
        if name not in built:
            built[name] = keras_vit.build(SMALL[name], classes=10, input_shape=SHAPE)
        return built[name]

    return model_of


def profiled(model):
    """FLOPs that TensorFlow's profiler counts in the frozen graph of one image."""
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    image = tf.TensorSpec((1, *model.input_shape[1:]), "float32")
    function = tf.function(lambda x: model(x, training=False)).get_concrete_function(image)
    builder = tf.compat.v1.profiler.ProfileOptionBuilder
    options = builder(builder.float_operation()).with_empty_output().build()
    graph = convert_variables_to_constants_v2(function).graph
    return tf.compat.v1.profiler.profile(graph=graph, options=options).total_float_ops


# Official tests, at 224 pixels with 1000 classes.
PARAMETERS = {
    "ViT-B/8": 86_576_872,
    "ViT-B/16": 86_567_656,
    "ViT-B/32": 88_224_232,
    "ViT-L/16": 304_326_632,
    "ViT-L/32": 306_535_400,
    "ViT-H/14": 632_045_800,
    "ViT-S/16": 22_050_664,
    "ViT-S/32": 22_878_952,
    "ViT-Ti/16": 5_717_416,
    "R+ViT-Ti/16": 6_337_704,
    "R26+ViT-B/32": 101_383_976,
    "R26+ViT-S/32": 36_431_912,
    "R50+ViT-B/16": 98_659_112,
    "R50+ViT-L/32": 328_994_856,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_of_the_official_tests(name):
    assert describe(name).parameters == PARAMETERS[name]
    assert describe("ViT-B/16", classifier="gap").parameters == 86_566_120


@pytest.mark.of_tensorflow
@pytest.mark.parametrize("name", SMALL)
def test_numbers_are_those_of_the_built_model_and_of_tensorflows_profiler(models, name):
    counted, described = (
        describe(SMALL[name], input_shape=SHAPE, classes=10),
        describe(models(name)),
    )
    assert counted.parameters == models(name).count_params()
    assert counted.flops == pytest.approx(profiled(models(name)), rel=0.02)
    for field in ("parameters", "flops", "activations", "sequence_length", "input_shape"):
        assert getattr(described, field) == getattr(counted, field)


def test_images_that_are_resized_first_are_counted_at_the_size_after_it():
    inputs = keras.Input((200, 300, 3))
    resized = keras.layers.Resizing(*SHAPE[:2])(inputs)
    model = keras_vit.build(SMALL["bit"], classes=10, input_tensor=resized)
    assert describe(model).input_shape == SHAPE
    assert describe(model).flops == describe(SMALL["bit"], input_shape=SHAPE, classes=10).flops


def test_a_model_with_additional_layers_is_refused(models):
    inputs = keras.Input((96, 160, 4))
    stretched = keras_vit.build(
        SMALL["token"], classes=10, input_tensor=keras.layers.Conv2D(3, 1)(inputs)
    )
    with pytest.raises(ValueError, match="without additional layers"):
        describe(stretched)
    with pytest.raises(ValueError, match=r"one of keras_vit\.build"):
        describe(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]))
    with pytest.raises(ValueError, match="leave them out"):
        describe(models("token"), classes=5)


def test_an_unknown_name_and_a_small_image_are_refused():
    with pytest.raises(ValueError, match="ViT-B16 is called ViT-B/16"):
        describe("ViT-B16")
    with pytest.raises(ValueError, match="16x16 pixels"):
        describe("ViT-B/16", input_shape=(15, 16, 3))


def test_the_documentation_has_the_table_of_the_command():
    from keras_vit.commands import models as command

    page = (ROOT / "docs" / "models.md").read_text()
    missing = [line for line in command.model_table("*").splitlines() if line not in page]
    assert not missing, os.linesep.join(missing)


@pytest.mark.parametrize("sides", [(None, 64), (64, None), (None, None)])
def test_free_sides_are_counted_at_the_size_of_the_positions(sides):
    config = ViTConfig(**VIT)
    model = keras_vit.build(config, include_top=False, input_shape=(*sides, 3))
    height, width, _ = describe(model).input_shape
    assert config.grid((height, width)) == config.grid((224, 224))
    assert describe(model).parameters == model.count_params()
