"""Facts that sources of weights state about their model."""

import json
import pathlib
import re
import zipfile

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.code_bases.timm import TIMM
from keras_vit.checkpoints.formats import write_safetensors
from keras_vit.checkpoints.save import note_of, stored_arrays
from keras_vit.configs.blocks import UNSEEN_FEATURES
from keras_vit.models.opening import open_model
from makers import tiny_config

pytest.importorskip("safetensors")

ROOT = pathlib.Path(keras_vit.__path__[0])
PLAIN = {"patch_size": 4, "width": 16, "depth": 1, "mlp_dim": 32, "num_heads": 2}
STATED = {
    "gelu": "quick",
    "norm_epsilon": 1e-3,
    "position_embedding_at": "every_block_shared",
    "position_resize": "bicubic",
    "rotary": 50.0,
}


@pytest.mark.parametrize("field", STATED)
def test_a_field_that_a_file_states_reaches_the_built_model(field, tmp_path):
    keras.utils.set_random_seed(0)
    config = tiny_config(**{field: STATED[field]}, patch_size=4, width=16, num_heads=2)
    model = keras_vit.build(config, input_shape=(8, 8, 3), classes=3)
    model.get_layer("predictions").kernel.assign(np.random.randn(16, 3))
    path = tmp_path / "model.safetensors"
    write_safetensors(path, stored_arrays(model, TIMM), note_of(model))
    opened = open_model(path, normalization="half")
    assert opened.description.config == config
    images = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")
    np.testing.assert_allclose(opened.to_model()[0](images), model(images), atol=1e-6)


def test_files_between_a_source_and_a_layer_name_no_feature_of_a_block():
    for name in (
        "checkpoints/checkpoint.py",
        "checkpoints/checkpoint_description.py",
        "checkpoints/code_bases/files_beside.py",
        "checkpoints/formats.py",
        "checkpoints/load.py",
        "checkpoints/save.py",
        "layers/base_layers.py",
        "models/build.py",
        "models/opening.py",
        "models/rebuild.py",
        "configs/recognition.py",
    ):
        found = re.findall(rf"\b(?:{'|'.join(UNSEEN_FEATURES)})\b", (ROOT / name).read_text())
        assert not found, f"{name} names {found}"


def test_what_this_package_noted_counts_more_than_the_config_beside_it(tmp_path):
    config = tiny_config(patch_size=4, width=16, num_heads=2, norm_epsilon=1e-3)
    model = keras_vit.build(config, input_shape=(8, 12, 3), classes=3)
    write_safetensors(tmp_path / "model.safetensors", stored_arrays(model, TIMM), note_of(model))
    content = {"architecture": "vit_base_patch16_224", "model_args": {"num_heads": 4}}
    (tmp_path / "config.json").write_text(json.dumps(content))
    opened = open_checkpoint(tmp_path)
    assert (opened.fields["norm_epsilon"], opened.fields["num_heads"]) == (1e-3, 2)
    assert opened.stated.position_grid == (2, 3)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"gelu": "silu"}, "gelu must be"),
        ({"num_heads": "two"}, "fields must match"),
        ({"rotary": {"turns": 2}}, "fields must match"),
        ({"position_embedding_at": "head"}, "position_embedding_at must be"),
        ({"position_resize": "nearest"}, "position_resize must be"),
    ],
)
def test_a_wrong_value_in_a_note_is_refused(config, message, tmp_path):
    note = {"config": {"type": "ViTConfig", **PLAIN, **config}}
    np.savez(tmp_path / "a.npz", a=np.zeros(3, "float32"))
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.comment = json.dumps({"keras_vit": note}).encode()
    with pytest.raises(ValueError, match=f"note of keras-vit.*{message}"):
        open_checkpoint(tmp_path / "a.npz")
