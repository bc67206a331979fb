"""Image towers of big_vision: prefixes, attention pooling without a head, other towers."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.command_line import main
from keras_vit.configs import ViTConfig
from keras_vit.export.conversion import read

CONFIG = ViTConfig(8, 16, 2, 32, 2, classifier="map")
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 16, 24, 3)).astype("float32")


@pytest.fixture
def tower(tmp_path):
    """Returns a function that writes a tower as big_vision names it, and its features."""

    def write(inlined=False):
        model = keras_vit.build(CONFIG, include_top=False, pooling="map", input_shape=(16, 24, 3))
        rng = np.random.default_rng(1)
        model.set_weights([rng.normal(size=weight.shape) / 3 for weight in model.weights])
        keras_vit.save_checkpoint(model, tmp_path / "ours.npz")
        arrays = {"params/t": np.ones(1), "params/txt/Embed_0/embedding": np.ones((4, 16))}
        with np.load(tmp_path / "ours.npz") as ours:
            for name, array in ours.items():
                for official, theirs in (
                    ("Transformer/posembed_input/", ""),
                    ("MultiHeadDotProductAttention_1", "MultiHeadDotProductAttention_0"),
                    ("LayerNorm_2", "LayerNorm_1"),
                    ("MlpBlock_3", "MlpBlock_0"),
                    *([("MAPHead_0/", "")] if inlined else []),
                ):
                    name = name.replace(official, theirs)
                arrays[f"params/img/{name}"] = array
        np.savez(tmp_path / "tower.npz", **arrays)
        return tmp_path / "tower.npz", np.asarray(model(IMAGES))

    return write


@pytest.mark.parametrize("inlined", [False, True])
def test_a_tower_without_a_head_gives_its_pooled_features(inlined, tower):
    path, features = tower(inlined)
    converted = read(path, image_size=(16, 24))
    assert converted.class_names is None
    assert converted.description.config.classifier == "map"
    np.testing.assert_allclose(converted.model(IMAGES), features, atol=1e-5)  # float32.
    assert "2 arrays other than the weights were not read" in converted.notes


def test_build_takes_a_tower_with_and_without_its_pooling(tower):
    path, features = tower()
    shape = {"input_shape": (16, 24, 3), "include_top": False}
    model = keras_vit.build(CONFIG, weights=path, pooling="map", **shape)
    np.testing.assert_allclose(model(IMAGES), features, atol=1e-5)
    patches = keras_vit.build(CONFIG, weights=path, **shape)
    assert patches(IMAGES).shape == (2, 2, 3, 16)
    tokens = keras.Model(model.input, model.get_layer("encoder_norm").output)(IMAGES)
    np.testing.assert_allclose(np.reshape(patches(IMAGES), (2, 6, 16)), tokens, atol=1e-5)


def test_the_image_size_must_be_that_of_the_file(golden, write_npz):
    path = write_npz(golden("vit_gap").checkpoint())
    with pytest.raises(ValueError, match=r"\(image_size, --image-size\)"):
        read(path, image_size=(64, 16))


def test_the_command_asks_for_the_image_size_and_takes_it(tower, tmp_path, capsys):
    source, destination = str(tower()[0]), str(tmp_path / "out.weights.h5")
    assert main(["convert", source, destination]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "image size (image_size, --image-size) must be given" in error
    assert main(["convert", source, destination, "--image-size", "16x24"]) == 0
    assert "2 arrays other than the weights were not read" in capsys.readouterr().out
