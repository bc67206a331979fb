"""Files of `.safetensors` and of PyTorch, and the arrays that they leave out."""

import argparse
import re

import numpy as np
import pytest

import keras_vit
from by_hand import array
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.file_descriptions import of_file
from keras_vit.opening import open_model

safetensors_numpy = pytest.importorskip("safetensors.numpy")


@pytest.fixture
def write_safetensors(tmp_path):
    def write(arrays, name="model.safetensors"):
        arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        safetensors_numpy.save_file(arrays, tmp_path / name)
        return tmp_path / name

    return write


def test_a_body_without_prefix_has_its_pooler_as_pre_logits(golden, model_of, write_safetensors):
    arrays = {
        name.removeprefix("vit."): array
        for name, array in golden("hf_vit").checkpoint().items()
        if not name.startswith("classifier")
    }
    pooler = np.random.default_rng(0).normal(size=(48, 48)).astype("float32")
    arrays |= {"pooler.dense.weight": pooler, "pooler.dense.bias": pooler[0]}
    model = model_of("hf_vit", representation_size=48)
    report = keras_vit.load_checkpoint(model, write_safetensors(arrays), skip="predictions/*")
    assert report.kept == ("predictions/kernel", "predictions/bias")
    np.testing.assert_array_equal(model.get_layer("pre_logits").kernel, pooler.T)


def test_half_precision_files_keep_their_values_and_counters_are_no_weights(
    golden, model_of, write_safetensors
):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for dtype in (np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)):
        arrays = {k: v.astype(dtype) for k, v in golden("timm_vit").checkpoint().items()}
        counters = {
            "norm.num_batches_tracked": np.asarray(7),
            "embeddings.position_ids": np.arange(17)[None],
        }
        model = model_of("timm_vit")
        keras_vit.load_checkpoint(model, write_safetensors(arrays | counters))
        np.testing.assert_array_equal(
            model.get_layer("predictions").kernel, arrays["head.weight"].T.astype("float32")
        )
    arrays["head.bias"] = arrays["head.bias"].astype("int8")
    with pytest.raises(ValueError, match="head.bias of dtype I8"):
        open_checkpoint(write_safetensors(arrays))


def test_pytorch_files_are_loaded_as_weights_alone(golden, model_of, tmp_path):
    torch = pytest.importorskip("torch")
    expected = golden("timm_vit").load()
    state = {name: torch.tensor(a) for name, a in golden("timm_vit").checkpoint().items()}
    torch.save({"state_dict": state}, tmp_path / "model.bin")
    model = model_of("timm_vit")
    keras_vit.load_checkpoint(model, tmp_path / "model.bin")
    np.testing.assert_allclose(array(model(expected["images"])), expected["logits"], atol=1e-4)
    torch.save({k: v.bfloat16() for k, v in state.items()}, tmp_path / "half.pth")
    keras_vit.load_checkpoint(model, tmp_path / "half.pth")
    np.testing.assert_array_equal(
        model.get_layer("predictions").kernel, state["head.weight"].bfloat16().float().numpy().T
    )


@pytest.fixture
def two_states(golden, tmp_path):
    """A file of timm's training: raw weights, averages of twice their size, and arguments."""
    torch = pytest.importorskip("torch")
    raw = {name: torch.tensor(a) for name, a in golden("timm_vit").checkpoint().items()}
    averages = {"n_averaged": torch.tensor(3)}
    averages |= {f"module.{name}": 2 * values for name, values in raw.items()}

    def write(average="state_dict_ema", raw_name="state_dict"):
        content = {raw_name: raw, average: averages, "args": argparse.Namespace(lr=1e-3)}
        torch.save(content, tmp_path / "last.pth.tar")
        return tmp_path / "last.pth.tar"

    return write


def kernel_of(path, model):
    keras_vit.load_checkpoint(model, path)
    return array(model.get_layer("predictions").kernel)


@pytest.mark.parametrize("average", ["state_dict_ema", "model_ema", "ema_state_dict"])
def test_averages_are_taken_as_in_timm(average, golden, model_of, two_states):
    raw = golden("timm_vit").checkpoint()["head.weight"].T
    np.testing.assert_array_equal(
        kernel_of(two_states(average), model_of("timm_vit")), np.float32(2) * raw
    )


def test_a_line_says_that_averages_were_taken(two_states):
    opened = open_model(two_states(), num_heads=3, gelu="exact")
    assert opened.description.notes[0] == "the weights are state_dict_ema, not state_dict"


def test_a_torchscript_program_is_called_by_its_name(tmp_path):
    torch = pytest.importorskip("torch")
    torch.jit.script(torch.nn.Linear(2, 2)).save(tmp_path / "model.pt")
    with pytest.raises(ValueError, match="TorchScript") as error:
        open_checkpoint(tmp_path / "model.pt")
    assert "\n" not in str(error.value)


def test_colours_of_other_libraries_are_not_in_messages(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "model.pt")
    with pytest.raises(ValueError, match="weights-only loading") as error:
        open_checkpoint(tmp_path / "model.pt")
    assert "\x1b" not in str(error.value)


def test_code_in_a_pytorch_file_is_not_run(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"weights": _Malicious(tmp_path / "was_here")}, tmp_path / "model.bin")
    with pytest.raises(ValueError, match="state dict.*weights-only"):
        open_checkpoint(tmp_path / "model.bin")
    assert not (tmp_path / "was_here").exists()


class _Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (type(self.path).touch, (self.path,))


# Position rows of registers, and arrays that files leave out


@pytest.mark.parametrize("rows", ["of all tokens", "of the class token", "of patches"])
def test_position_rows_of_registers_are_added_to_them(rows, golden, model_of, write_safetensors):
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
    keras_vit.load_checkpoint(model, write_safetensors(arrays))
    # float32: a number is taken off and added again.
    np.testing.assert_allclose(array(model.get_layer("registers").tokens), registers, atol=1e-6)
    loaded = np.array(model.get_layer("position_embedding").embedding)
    loaded[:, :1] += model.get_layer("class_token").token
    expected = table.copy()
    expected[:, :1] += golden("timm_vit").checkpoint()["cls_token"]
    np.testing.assert_allclose(loaded, expected, atol=1e-6)
    inferred = of_file(open_checkpoint(write_safetensors(arrays)), num_heads=3, gelu="exact")
    assert (inferred.image_size, inferred.config.num_registers) == ((32, 32), 3)


@pytest.mark.parametrize(
    ("name", "biases"),
    [
        ("timm_vit", r"attn\.qkv\.bias"),
        ("hf_vit", r"attention\.(query|key|value)\.bias"),
    ],
)
def test_biases_that_a_model_may_lack_are_zeros(name, biases, golden, model_of, write_safetensors):
    arrays = golden(name).checkpoint()
    absent = {key for key in arrays if re.search(biases, key)}
    assert absent
    zeros = model_of(name)
    keras_vit.load_checkpoint(
        zeros,
        write_safetensors({k: np.zeros_like(v) if k in absent else v for k, v in arrays.items()}),
    )
    model = model_of(name)
    rest = {key: array for key, array in arrays.items() if key not in absent}
    report = keras_vit.load_checkpoint(model, write_safetensors(rest))
    assert "not in the file, so zeros: encoder_block_*/attention/key/bias" in str(report)
    for weight, other in zip(model.weights, zeros.weights, strict=True):
        np.testing.assert_array_equal(weight, other, err_msg=weight.path)

    one = sorted(absent)[0]
    with pytest.raises(ValueError, match=r"missing .*\(\d\): .*\.bias"):
        keras_vit.load_checkpoint(
            model, write_safetensors({k: v for k, v in arrays.items() if k != one})
        )
