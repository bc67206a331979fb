"""A tiny model, its official checkpoint, and that checkpoint in other layouts."""

import dataclasses
import json
import zipfile

import h5py
import numpy as np
import pytest

import keras_vit
from keras_vit.configs import BiTConfig, ViTConfig


def _config(name, golden):
    if name == "bit_r14x1":
        return BiTConfig((1, 1, 1, 1))
    if name == "hf_vit":
        return ViTConfig(8, 48, 2, 96, 3, gelu="exact", norm_epsilon=1e-12)
    if name == "timm_vit":
        return ViTConfig(8, 48, 2, 96, 3, gelu="exact")
    return golden.vit_config


@pytest.fixture(scope="session")
def model_of(golden):
    """Returns a function from a golden folder's name to its model, with random weights.

    `changes` are fields of the config; `classes`, `image_size` and `include_top` are arguments
    of `build`.
    """

    def build(name, *, classes=None, image_size=None, include_top=True, **changes):
        described = golden(name).config
        size = image_size or described.get("image_size", described.get("img_size"))
        size = (size, size) if isinstance(size, int) else tuple(size)
        return keras_vit.build(
            dataclasses.replace(_config(name, golden(name)), **changes),
            input_shape=(*size, 3),
            include_top=include_top,
            classes=classes or golden(name).load()["logits"].shape[1],
            classifier_activation=None,
        )

    return build


@pytest.fixture
def write_npz(tmp_path):
    """Returns a function that writes arrays by name as `numpy.savez` does; gives the path."""

    def write(arrays, name="checkpoint.npz"):
        np.savez(tmp_path / name, **arrays)
        return tmp_path / name

    return write


@pytest.fixture
def checkpoint_of(golden, write_npz):
    """Returns a function from a golden folder's name to its official checkpoint's path."""
    return lambda name: write_npz(golden(name).checkpoint(), f"{name}.npz")


@pytest.fixture
def preset(golden, tmp_path):
    """A preset of KerasHub: the weights of a `.keras` file in two files, the configs apart."""
    folder = tmp_path / "preset"
    folder.mkdir()
    with zipfile.ZipFile(golden("keras_hub").folder / "classifier.keras") as archive:
        archive.extract("model.weights.h5", tmp_path)
        task = json.loads(archive.read("config.json"))
    backbone, preprocessor = task["config"]["backbone"], task["config"]["preprocessor"]
    for name, content in (("task", task), ("config", backbone), ("preprocessor", preprocessor)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    with (
        h5py.File(tmp_path / "model.weights.h5") as whole,
        h5py.File(folder / "model.weights.h5", "w") as body,
        h5py.File(folder / "task.weights.h5", "w") as head,
    ):
        whole.copy("layers/vi_t_backbone/layers", body, "layers")
        for name in ("dense", "dense_1"):
            whole.copy(f"layers/{name}", head.require_group("layers"), name)
    return folder
