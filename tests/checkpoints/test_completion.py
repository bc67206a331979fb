"""Arrays that files leave out, and position rows of registers."""

import re

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.checkpoint_description import describe_checkpoint
from keras_vit.checkpoints.load import LoadOptions, load_opened
from keras_vit.checkpoints.resize import sine_cosine_positions

safetensors_numpy = pytest.importorskip("safetensors.numpy")


def _sine_cosine_loop(down, across, dim):
    """big_vision's `posemb_sincos_2d`, one number after another."""
    table = np.zeros((down * across, dim))
    quarter = dim // 4
    for y in range(down):
        for x in range(across):
            for i in range(quarter):
                frequency = 1 / 10_000 ** (i / (quarter - 1))
                row = table[y * across + x]
                row[i], row[quarter + i] = np.sin(x * frequency), np.cos(x * frequency)
                row[2 * quarter + i] = np.sin(y * frequency)
                row[3 * quarter + i] = np.cos(y * frequency)
    return table


@pytest.mark.parametrize(("grid", "dim"), [((2, 3), 8), ((14, 14), 48), ((1, 5), 12)])
def test_sines_and_cosines_are_those_of_big_vision(grid, dim):
    table = sine_cosine_positions(grid, dim)
    np.testing.assert_allclose(table, _sine_cosine_loop(*grid, dim), atol=1e-6)  # float32.


def _big_vision(arrays):
    """The arrays without positions, under the names of big_vision."""
    names = {"LayerNorm_2/": "LayerNorm_1/", "MlpBlock_3": "MlpBlock_0"}
    names["DotProductAttention_1"] = "DotProductAttention_0"
    renamed = {}
    for name, array in arrays.items():
        for old, new in names.items():
            name = name.replace(old, new)
        if "pos_embedding" not in name:
            renamed[name] = array
    return renamed


@pytest.mark.parametrize("name", ["vit_gap", "vit_token"])
def test_a_file_of_big_vision_without_positions_gets_them(name, golden, model_of, write_npz):
    arrays = golden(name).checkpoint()
    model = model_of(name)
    report = keras_vit.load_checkpoint(model, write_npz(_big_vision(arrays)))
    assert 'sines and cosines (posemb="sincos2d") were filled in' in str(report)
    layer = model.get_layer("position_embedding")
    expected = _sine_cosine_loop(*layer.grid, layer.embedding.shape[-1])
    if name == "vit_token":  # Positions are added before the class token, which has none.
        expected = np.concatenate([np.zeros_like(expected[:1]), expected])
    np.testing.assert_allclose(layer.embedding[0], expected, atol=1e-6)


def test_their_image_size_must_be_given(golden, write_npz):
    checkpoint = open_checkpoint(write_npz(_big_vision(golden("vit_gap").checkpoint())))
    with pytest.raises(ValueError, match=r"image size \(image_size, --image-size\) must be given"):
        describe_checkpoint(checkpoint)
    assert describe_checkpoint(checkpoint, source_size=(32, 48)).image_size == (32, 48)


def test_a_model_without_positions_says_what_it_leaves_out(golden, model_of, write_npz):
    model = model_of("vit_gap", position_embedding="none")
    with pytest.warns(UserWarning, match="positions of big_vision.* the model has none"):
        keras_vit.load_checkpoint(model, write_npz(_big_vision(golden("vit_gap").checkpoint())))


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes arrays as a `.safetensors` file."""

    def write(arrays, name="model.safetensors"):
        arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        safetensors_numpy.save_file(arrays, tmp_path / name)
        return tmp_path / name

    return write


@pytest.mark.parametrize("rows", ["of all tokens", "of the class token", "of patches"])
def test_position_rows_of_registers_are_added_to_them(rows, golden, model_of, write):
    """The same sums of tokens and positions as in each form of timm's table."""
    arrays = golden("timm_vit").checkpoint()
    rng = np.random.default_rng(0)
    registers, offsets = rng.normal(size=(2, 1, 3, 48)).astype("float32")
    table = arrays["pos_embed"]
    arrays["reg_token"] = registers
    if rows == "of all tokens":
        arrays["reg_token"] = registers - offsets
        arrays["pos_embed"] = np.concatenate([table[:, :1], offsets, table[:, 1:]], 1)
    elif rows == "of patches":
        arrays["cls_token"] = arrays["cls_token"] + table[:, :1]
        arrays["pos_embed"] = table[:, 1:]
    model = model_of("timm_vit", num_registers=3)
    keras_vit.load_checkpoint(model, write(arrays))
    # float32: a number is taken off and added again.
    np.testing.assert_allclose(model.get_layer("registers").tokens, registers, atol=1e-6)
    loaded = np.array(model.get_layer("position_embedding").embedding)
    loaded[:, :1] += model.get_layer("class_token").token
    expected = table.copy()
    expected[:, :1] += golden("timm_vit").checkpoint()["cls_token"]
    np.testing.assert_allclose(loaded, expected, atol=1e-6)
    inferred = describe_checkpoint(open_checkpoint(write(arrays)), num_heads=3, gelu="exact")
    assert (inferred.image_size, inferred.config.num_registers) == ((32, 32), 3)


@pytest.mark.parametrize(
    ("name", "biases"),
    [
        ("timm_vit", r"attn\.qkv\.bias"),
        ("hf_vit", r"attention\.(query|key|value)\.bias"),
    ],
)
def test_biases_that_a_model_may_lack_are_zeros(name, biases, golden, model_of, write):
    arrays = golden(name).checkpoint()
    absent = {key for key in arrays if re.search(biases, key)}
    assert absent
    zeros = model_of(name)
    keras_vit.load_checkpoint(
        zeros, write({k: np.zeros_like(v) if k in absent else v for k, v in arrays.items()})
    )
    model = model_of(name)
    rest = {key: array for key, array in arrays.items() if key not in absent}
    report = keras_vit.load_checkpoint(model, write(rest))
    assert "not in the file, so zeros: encoder_block_*/attention/key/bias" in str(report)
    for weight, other in zip(model.weights, zeros.weights, strict=True):
        np.testing.assert_array_equal(weight, other, err_msg=weight.path)

    one = sorted(absent)[0]
    with pytest.raises(ValueError, match=r"missing in the file \(\d\): .*\.bias"):
        keras_vit.load_checkpoint(model, write({k: v for k, v in arrays.items() if k != one}))


def test_counters_and_indices_of_pytorch_are_no_weights(golden, model_of, write):
    arrays = golden("timm_vit").checkpoint()
    expected = golden("timm_vit").load()
    arrays["norm.num_batches_tracked"] = np.asarray(7)
    arrays["embeddings.position_ids"] = np.arange(17)[None]
    model = model_of("timm_vit")
    keras_vit.load_checkpoint(model, write(arrays))
    np.testing.assert_allclose(model(expected["images"]), expected["logits"], atol=1e-4)
    arrays["head.bias"] = arrays["head.bias"].astype("int8")
    with pytest.raises(ValueError, match="head.bias of dtype I8"):
        open_checkpoint(write(arrays))


def test_the_image_size_of_a_table_that_is_not_square_must_be_given(golden, write):
    arrays = golden("timm_vit").checkpoint()
    table = np.random.default_rng(0).normal(size=(1, 1 + 2 * 6, 48)).astype("float32")
    checkpoint = open_checkpoint(write({**arrays, "pos_embed": table}))
    with pytest.raises(ValueError, match=r"\(image_size, --image-size\) must be given .* no squ"):
        describe_checkpoint(checkpoint, num_heads=3, gelu="exact")
    with pytest.raises(ValueError, match="13 rows do not match 2x3 patches"):
        describe_checkpoint(checkpoint, num_heads=3, gelu="exact", source_size=(16, 24))
    inferred = describe_checkpoint(checkpoint, num_heads=3, gelu="exact", source_size=(16, 48))
    assert inferred.position_grid == (2, 6)
    model = keras_vit.build(
        inferred.config, input_shape=(*inferred.image_size, 3), classes=inferred.classes
    )
    load_opened(checkpoint, model, LoadOptions(position_grid=inferred.position_grid))
    np.testing.assert_array_equal(model.get_layer("position_embedding").embedding, table)
