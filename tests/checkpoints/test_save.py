import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.configs import ResNetStem
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


def test_bfloat16_weights_keep_their_bits(tmp_path):
    config = tiny_config(patch_size=8, num_heads=1)
    model = keras_vit.build(config, input_shape=(16, 16, 3), classes=2)
    bfloat16 = keras_vit.layers.ClassToken(dtype="bfloat16")
    bfloat16.build((None, 4, 16))
    bfloat16.token.assign(np.full((1, 1, 16), 1 / 3))
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    # The two upper bytes of 1/3 as float32, rounded.
    np.savez(tmp_path / "b.npz", cls=np.array(bfloat16.token))
    with np.load(tmp_path / "b.npz") as arrays:
        assert set(arrays["cls"].view("uint16").ravel()) == {0x3EAB}
    with np.load(tmp_path / "a.npz") as arrays:
        np.savez(tmp_path / "c.npz", **{**arrays, "cls": np.array(bfloat16.token)})
    with pytest.warns(UserWarning, match="zeros"):
        keras_vit.load_checkpoint(model, tmp_path / "c.npz")
    np.testing.assert_array_equal(
        model.get_layer("class_token").token, np.array(bfloat16.token, "float32")
    )


def test_the_form_of_gelu_is_kept(model_of, checkpoint_of, tmp_path):
    model = model_of("vit_token", gelu="exact")
    with pytest.warns(UserWarning, match="gelu"):
        keras_vit.load_checkpoint(model, checkpoint_of("vit_token"))
    keras_vit.save_checkpoint(model, tmp_path / "exact.npz")
    with pytest.warns(UserWarning, match="trained with gelu='exact'; the model has gelu='tanh'"):
        keras_vit.load_checkpoint(model_of("vit_token"), tmp_path / "exact.npz")


def test_positions_that_all_blocks_share_are_kept(tmp_path):
    shared = tiny_config(depth=2, position_embedding_at="every_block_shared")
    model = keras_vit.build(shared, input_shape=(8, 8, 3), classes=2)
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    assert keras_vit.open_model(tmp_path / "a.npz").description.config == shared
    other = keras_vit.build(tiny_config(depth=2), input_shape=(8, 8, 3), classes=2)
    with pytest.warns(UserWarning, match="position_embedding_at='every_block_shared'; the model"):
        keras_vit.load_checkpoint(other, tmp_path / "a.npz", skip="head/*")


@pytest.mark.parametrize("epsilon_in", ["deviation", "variance"])
def test_how_a_stem_standardises_its_kernels_is_kept(epsilon_in, tmp_path):
    config = tiny_config(patch_size=1, resnet=ResNetStem((1,), 0.5, epsilon_in))
    model = keras_vit.build(config, input_shape=(16, 16, 3), classes=2)
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    opened = keras_vit.open_model(tmp_path / "a.npz").description
    assert opened.config.resnet.epsilon_in == epsilon_in


def test_variables_without_an_official_name_are_refused(model_of, tmp_path):
    body = model_of("vit_token")
    model = keras.Model(body.input, keras.layers.Dense(2, name="mine")(body.output))
    with pytest.raises(ValueError, match="a name for every variable.*mine/bias, mine/kernel"):
        keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    assert not list(tmp_path.iterdir())


def test_only_npz_is_written(model_of, tmp_path):
    with pytest.raises(ValueError, match=r"must end in .npz. Received: .*a.h5"):
        keras_vit.save_checkpoint(model_of("vit_gap"), tmp_path / "a.h5")
