"""Repositories whose large files the Hub stores by Xet, with hf_xet itself."""

import os

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.repositories import repository_folder
from keras_vit.command_line import main
from keras_vit.preprocessing import Preprocessing
from makers import tiny_config

NAME = "owner/pets"


@pytest.fixture(scope="module")
def pets(tmp_path_factory):
    """A classifier with random weights in a folder."""
    keras.utils.set_random_seed(0)
    model = keras_vit.build(tiny_config(), input_shape=(8, 8, 3), classes=3)
    folder = tmp_path_factory.mktemp("classifiers") / "pets"
    return keras_vit.save_classifier(folder, model, ("a", "b", "c"), Preprocessing((8, 8)))


def test_what_is_pushed_by_xet_is_read_by_its_name(xet_hub, pets):
    assert main(["push", str(pets.folder), NAME]) == 0
    assert not [line for line in xet_hub.requests if line.startswith("PUT /lfs")]
    weights = xet_hub.repositories["model", NAME].files["model.weights.h5"]
    found = keras_vit.load_classifier(f"hf:{NAME}")
    images = np.random.default_rng(0).uniform(-1, 1, (2, 8, 8, 3)).astype("float32")
    np.testing.assert_array_equal(found.model(images), pets.model(images))
    assert [line for line in xet_hub.requests if "/v1/reconstructions/" in line]
    # huggingface_hub keeps one copy for all repositories, by another hash than the cache's.
    path = repository_folder(f"hf:{NAME}") / "model.weights.h5"
    assert path.read_bytes() == weights
    assert path.resolve().name != os.path.basename(os.readlink(path))


def test_a_file_that_xet_gives_damaged_is_removed_and_comes_again(xet_hub, pets):
    xet_hub.add(NAME, {path.name: path.read_bytes() for path in pets.folder.iterdir()})
    content = xet_hub.repositories["model", NAME].files["model.keras"]
    store = xet_hub.file_of(content)
    whole = xet_hub.xorbs[store]
    xet_hub.xorbs[store] = whole[:-1] + bytes([whole[-1] ^ 1])
    with pytest.raises(OSError, match="model.keras was damaged on its way and removed; call again"):
        repository_folder(f"hf:{NAME}")
    xet_hub.xorbs[store] = whole
    folder = repository_folder(f"hf:{NAME}")
    assert (folder / "model.keras").read_bytes() == content
