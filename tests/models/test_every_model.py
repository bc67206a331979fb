"""Every model of the package, made small, through what all of them must do.

Names that differ in size alone, such as ViT-B/16 and ViT-L/16, become the same small model,
which is then built once.
"""

import dataclasses
import functools
import tempfile

import keras
import numpy as np
import pytest

import keras_vit
from by_hand import array
from keras_vit import configs
from keras_vit.configs.recognition import config_of
from makers import tiny_config

SHAPE = (70, 65, 3)  # No multiple of a patch or a stride.
CLASSES = 3


SMALL = tiny_config(width=8, mlp_dim=12)
# Each option at least once, and with others.
OPTIONS = {
    "learned_2d, every_block, gap": keras_vit.ViTConfig(
        4, 8, 2, 12, 2, classifier="gap", position_embedding="learned_2d",
        position_embedding_at="every_block", representation_size=6, dropout_rate=0.1,
    ),
    "relative, registers": dataclasses.replace(
        SMALL, depth=2, position_embedding="relative", num_registers=2, attention_dropout_rate=0.1
    ),
    "learned_2d, shared, distillation, registers": keras_vit.ViTConfig(
        4, 8, 2, 12, 2, classifier="token+distillation", position_embedding="learned_2d",
        position_embedding_at="every_block_shared", num_registers=2,
    ),
    "hybrid, relative, map": dataclasses.replace(
        SMALL, patch_size=1, classifier="map", position_embedding="relative",
        resnet=keras_vit.configs.ResNetStem((), 0.5),
    ),
    "axial, relative, token": keras_vit.configs.AxialConfig(
        4, 8, 1, 12, 2, classifier="token", position_embedding="relative", num_registers=1
    ),
    "axial, none, map": keras_vit.configs.AxialConfig(
        4, 8, 1, 12, 2, classifier="map", position_embedding="none", gelu="exact"
    ),
    "axial resnet": keras_vit.configs.AxialResNetConfig((1, 1), 0.5, num_heads=4),
}  # fmt: skip


NAMES = [*configs.MODELS, *OPTIONS]


def small(name):
    """The config of a name with all that is large made small, or of a row of `OPTIONS`."""
    if name in OPTIONS:
        return OPTIONS[name]
    config = configs.MODELS[name]
    if isinstance(config, configs.BiTConfig):
        heads = {"num_heads": 2} if hasattr(config, "num_heads") else {}
        blocks = (1,) * len(config.num_blocks)
        return dataclasses.replace(config, num_blocks=blocks, width_factor=0.5, **heads)
    return dataclasses.replace(
        config, width=32, depth=1, mlp_dim=48, num_heads=2, resnet=small_stem(config.resnet)
    )


def small_stem(stem):
    if isinstance(stem, configs.PoolingStem):
        return dataclasses.replace(stem, widths=(32,) * len(stem.widths))
    ones = stem and (1,) * len(stem.num_blocks)
    return stem and dataclasses.replace(stem, num_blocks=ones, width_factor=0.5)


@functools.cache
def images():
    return np.random.RandomState(0).standard_normal((2, *SHAPE)).astype("float32")


@functools.cache
def built(config):
    """A model with random weights everywhere, so that no gradient is zero by accident."""
    model = keras_vit.build(config, classes=CLASSES, input_shape=SHAPE, classifier_activation=None)
    rng = np.random.RandomState(0)
    for weight in model.weights:
        weight.assign(0.2 * rng.standard_normal(weight.shape))
    return model


def once_per_small_model(check):
    """Runs a check of a config for the first of the names that share it only."""
    return functools.cache(check)


@once_per_small_model
def gradients_of(config, loss_and_gradients):
    return loss_and_gradients(built(config), images(), np.array([0, 1]))[1]


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_gets_a_gradient(name, loss_and_gradients):
    gradients = gradients_of(small(name), loss_and_gradients)
    missing = [path for path, value in gradients.items() if value is None or not value.any()]
    if small(name).has_class_token and getattr(small(name), "position_embedding", "") == "relative":
        # Offsets are of patches, and of the last block the head reads the class token alone.
        assert [path.rpartition("/")[2] for path in missing] == ["offset_embedding"]
    else:
        assert not missing


@once_per_small_model
def comes_back_from_a_file(config):
    scores = array(built(config)(images()))
    assert scores.shape == (2, CLASSES)
    assert np.isfinite(scores).all()
    assert np.abs(scores[0] - scores[1]).max() > 1e-4  # The images matter.
    with tempfile.TemporaryDirectory() as folder:
        built(config).save(f"{folder}/model.keras")
        again = keras.models.load_model(f"{folder}/model.keras")
    np.testing.assert_array_equal(array(again(images())), scores)
    return config_of(again) == config


@pytest.mark.parametrize("name", NAMES)
def test_it_gives_scores_and_the_same_from_its_file(name):
    assert comes_back_from_a_file(small(name))


@once_per_small_model
def features_of(config, pooling):
    """The output without head, with the weights of the model that has one."""
    model = keras_vit.build(config, include_top=False, pooling=pooling, input_shape=SHAPE)
    model.set_weights(built(config).get_weights()[: len(model.weights)])
    return array(model(images()))


@pytest.mark.parametrize("name", NAMES)
def test_each_pooling_reduces_the_map(name):
    config = small(name)
    features = features_of(config, None)
    assert features.ndim == 4
    for pooling, reduce in (("avg", features.mean), ("max", features.max)):
        np.testing.assert_allclose(features_of(config, pooling), reduce((1, 2)), atol=1e-5)
    if config.has_class_token:
        assert features_of(config, "token").shape == (2, features.shape[-1])
    else:
        with pytest.raises(ValueError, match="class token"):
            keras_vit.build(config, include_top=False, pooling="token")
