"""`weights=` of `build` and of the functions."""

import logging

import numpy as np
import pytest

import keras_vit
from by_hand import array
from keras_vit import configs
from keras_vit.checkpoints.catalogue import OfficialWeights
from keras_vit.models.rebuild import feature_model
from keras_vit.opening import open_model
from keras_vit.training.evaluation.predictions import build_evaluated

TINY = configs.ViTConfig(8, 48, 3, 96, 3)


@pytest.fixture
def weights(checkpoint_of):
    return str(checkpoint_of("vit_token"))


def _build(weights, config=TINY, size=32, **arguments):
    arguments = {"classifier_activation": None, "classes": 10, **arguments}
    return keras_vit.build(config, weights=weights, input_shape=(size, size, 3), **arguments)


def test_a_path_gives_the_official_logits(weights, golden, tmp_path):
    expected = golden("vit_token").load()
    model = _build(weights)
    np.testing.assert_allclose(array(model(expected["images"])), expected["logits"], atol=1e-4)
    model.save_weights(tmp_path / "a.weights.h5")
    again = _build(tmp_path / "a.weights.h5")
    np.testing.assert_allclose(array(again(expected["images"])), expected["logits"], atol=1e-4)


def test_other_classes_get_a_new_head_of_zeros(weights, golden, caplog):
    with caplog.at_level(logging.INFO, "keras_vit"):
        model = _build(weights, classes=7, size=48)
    assert not np.any(model.get_layer("predictions").kernel)
    np.testing.assert_array_equal(
        model.get_layer("class_token").token, golden("vit_token").checkpoint()["cls"]
    )
    assert "not changed: predictions/kernel, predictions/bias" in caplog.text
    assert "resized: position_embedding/embedding from 4x4 to 6x6 patches" in caplog.text


def test_without_top_neither_head_nor_representation_is_loaded(checkpoint_of, golden):
    path = checkpoint_of("vit_token_representation")
    expected = golden("vit_token_representation").load()
    config = configs.ViTConfig(8, 48, 2, 96, 3)
    model = _build(path, config, include_top=False, pooling="token")
    tokens = expected["tokens"][:, 0]
    np.testing.assert_allclose(array(model(expected["images"])), tokens, atol=1e-4)


def test_a_representation_layer_goes_with_the_head(checkpoint_of, caplog):
    path = checkpoint_of("vit_token_representation")
    with caplog.at_level(logging.INFO, "keras_vit"):
        model = _build(path, configs.ViTConfig(8, 48, 2, 96, 3), classes=21)
    assert not np.any(model.get_layer("predictions").kernel)
    assert "not loaded: head/bias, head/kernel, pre_logits/bias, pre_logits/ke" in caplog.text
    kept = _build(path, configs.ViTConfig(8, 48, 2, 96, 3, representation_size=40), classes=21)
    assert np.any(kept.get_layer("predictions").kernel)


def test_all_else_is_strict(weights):
    with pytest.raises(ValueError, match=r"not in the model \(16\)"):
        _build(weights, configs.ViTConfig(8, 48, 2, 96, 3))


def test_other_channels_are_refused(weights):
    with pytest.raises(ValueError, match="3 channels.*input_channels.*with 1$"):
        keras_vit.build(TINY, weights=weights, input_shape=(32, 32, 1))
    with pytest.raises(ValueError, match="imagenet21k .* 3 chan.*with 4$"):
        keras_vit.build("ViT-Ti/16", weights="imagenet21k", input_shape=(32, 32, 4))


def test_unknown_weights_name_where_the_known_ones_are_listed():
    with pytest.raises(ValueError, match="imagnet.* imagenet21k"):
        keras_vit.build("ViT-Ti/16", weights="imagnet", depth=1)
    with pytest.raises(ValueError, match="another config"):
        _build("imagenet21k")
    with pytest.raises(ValueError, match="No such .*: none.npz"):
        _build("none.npz")
    with pytest.raises(ValueError, match="None, a path.*weights=True"):
        _build(True)


@pytest.fixture
def official(golden, monkeypatch, tmp_path):
    """The key of an official file that is in Keras's cache, of a small model."""
    monkeypatch.setitem(configs.MODELS, "ViT-Ti/16", TINY)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    (tmp_path / "models").mkdir()
    key = "vit_ti16_augreg_imagenet21k"
    np.savez(tmp_path / "models" / f"{key}.npz", **golden("vit_token").checkpoint())
    return key


def test_an_official_file_gives_the_same_features_by_every_door(official, golden):
    size, images = (32, 32), golden("vit_token").load()["images"]
    opened = open_model(official, image_size=size)
    doors = (
        keras_vit.features("ViT-Ti/16", weights=official),
        feature_model(build_evaluated("ViT-Ti/16", weights=official, image_size=32).model),
        keras_vit.build(weights=official, classes=5, input_shape=(*size, 3)),
    )
    assert isinstance(opened.arrays(), OfficialWeights)  # It is downloaded when it is loaded.
    assert doors[0].input_shape == (None, 224, 224, 3)
    known = keras_vit.build(
        weights=official, include_top=False, pooling="token", input_shape=(32, 32, 3)
    )
    for model in (doors[1], feature_model(doors[2])):
        np.testing.assert_allclose(array(model(images)), array(known(images)), atol=1e-5)


def test_names_resolve_through_the_catalogue(official, golden):
    """The file has the name of the catalogue's key, in Keras's cache."""
    key = official
    for weights in ("imagenet21k", key):
        model = keras_vit.ViTTi16(weights=weights, classes=5, input_shape=(32, 32, 3))
        np.testing.assert_array_equal(
            model.get_layer("class_token").token, golden("vit_token").checkpoint()["cls"]
        )
    with pytest.raises(OSError, match="vit_ti16_augreg_imagenet21k_to_imagenet_384 could not"):
        keras_vit.ViTTi16(weights="imagenet", input_shape=(400, 400, 3))


def test_imagenet_weights_need_all_their_classes():
    with pytest.raises(ValueError, match="`classes` should be 1000"):
        keras_vit.build("ViT-Ti/16", weights="imagenet", classes=10)
