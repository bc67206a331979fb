import json
import zipfile

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.code_bases.timm import TIMM
from keras_vit.checkpoints.formats import write_safetensors
from keras_vit.checkpoints.save import note_of, stored_arrays
from keras_vit.opening import open_model
from makers import tiny_config


@pytest.mark.parametrize(
    "name", ["vit_token", "vit_token_representation", "vit_gap", "hybrid_4_stages", "bit_r14x1"]
)
def test_there_and_back_is_equal_to_the_bit(name, golden, model_of, checkpoint_of, tmp_path):
    model = model_of(name)
    keras_vit.load_checkpoint(model, checkpoint_of(name))
    keras_vit.save_checkpoint(model, tmp_path / "saved.npz")
    expected = golden(name).checkpoint()
    with np.load(tmp_path / "saved.npz", allow_pickle=False) as arrays:
        assert set(arrays.files) == set(expected)
        for array in expected:
            assert arrays[array].dtype == expected[array].dtype
            np.testing.assert_array_equal(arrays[array], expected[array], err_msg=array)


def test_the_form_of_gelu_is_kept(model_of, checkpoint_of, tmp_path):
    model = model_of("vit_token", gelu="exact")
    with pytest.warns(UserWarning, match="gelu"):
        keras_vit.load_checkpoint(model, checkpoint_of("vit_token"))
    keras_vit.save_checkpoint(model, tmp_path / "exact.npz")
    with pytest.warns(UserWarning, match="gelu='exact'; .*gelu='tanh'"):
        keras_vit.load_checkpoint(model_of("vit_token"), tmp_path / "exact.npz")


def test_positions_that_all_blocks_share_are_kept(tmp_path):
    shared = tiny_config(depth=2, position_embedding_at="every_block_shared")
    model = keras_vit.build(shared, input_shape=(8, 8, 3), classes=2)
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    assert open_model(tmp_path / "a.npz").description.config == shared
    other = keras_vit.build(tiny_config(depth=2), input_shape=(8, 8, 3), classes=2)
    with pytest.warns(UserWarning, match="position_embedding_at='every_block_shared'"):
        keras_vit.load_checkpoint(other, tmp_path / "a.npz", skip="head/*")


def test_variables_without_an_official_name_are_refused(model_of, tmp_path):
    body = model_of("vit_token")
    model = keras.Model(body.input, keras.layers.Dense(2, name="mine")(body.output))
    with pytest.raises(ValueError, match="mine/bias, mine/kernel"):
        keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    assert not list(tmp_path.iterdir())


# Notes in files


PLAIN = {"patch_size": 4, "width": 16, "depth": 1, "mlp_dim": 32, "num_heads": 2}


def test_what_this_package_noted_counts_more_than_the_config_beside_it(tmp_path):
    pytest.importorskip("safetensors")
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
        ({"gelu": "silu"}, "gelu='silu'"),
        ({"num_heads": "two"}, "fields must match"),
        ({"position_resize": "nearest"}, "position_resize='nearest'"),
        ({"norm_epsilon": float("nan")}, "finite numbers"),
    ],
)
def test_a_wrong_value_in_a_note_is_refused(config, message, tmp_path):
    note = {"config": {"type": "ViTConfig", **PLAIN, **config}}
    np.savez(tmp_path / "a.npz", a=np.zeros(3, "float32"))
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.comment = json.dumps({"keras_vit": note}).encode()
    with pytest.raises(ValueError, match=f"note of keras-vit.*{message}"):
        open_checkpoint(tmp_path / "a.npz")
