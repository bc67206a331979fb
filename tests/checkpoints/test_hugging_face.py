"""Models of transformers, by the folders that `save_pretrained` writes."""

import itertools
import json
import pathlib
import re
import warnings

import numpy as np
import pytest

from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.checkpoint_description import shown_by
from keras_vit.configs import ViTConfig
from keras_vit.export import convert
from keras_vit.export.conversion import read

safetensors_numpy = pytest.importorskip("safetensors.numpy")

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "hugging_face"
MODELS = json.loads((GOLDEN / "models.json").read_text(encoding="utf-8"))
EXPECTED = np.load(GOLDEN / "expected.npz")


def _arrays(name):
    model = MODELS[name]
    rng = np.random.RandomState(model["seed"])
    return {
        row["name"]: np.asarray(
            row["mean"] + row["std"] * rng.standard_normal(row["shape"]), "float32"
        )
        for row in model["arrays"]
    }


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes a golden model as transformers does, with changes."""

    def write(name, more=None, **changes):
        folder = tmp_path / "theirs"
        folder.mkdir(exist_ok=True)
        arrays = {**_arrays(name), **(more or {})}
        safetensors_numpy.save_file(arrays, folder / "model.safetensors")
        config = json.dumps({**MODELS[name]["config"], **changes})
        (folder / "config.json").write_text(config)
        return folder

    return write


def _answers(converted):
    """Features, or logits up to what softmax forgets."""
    answers = np.asarray(converted.model(EXPECTED["images"]), "float64")
    return answers if converted.class_names is None else _centered(np.log(answers))


def _centered(logits):
    return logits - logits.mean(axis=1, keepdims=True)


def _expected(name, converted):
    return EXPECTED[name] if converted.class_names is None else _centered(EXPECTED[name])


@pytest.mark.parametrize("name", MODELS)
def test_a_folder_alone_gives_its_answers(name, write):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        converted = read(write(name))
    expected = _expected(name, converted)
    np.testing.assert_allclose(
        _answers(converted),
        expected,
        atol=1e-5 * np.abs(expected).max(),  # float32, depth 2.
    )


# The fields that make each model what it is.
FIELDS = {
    "DINOv2": {"classifier": "token+gap", "layer_scale": True, "norm_epsilon": 1e-6},
    "DINOv2 with registers": {"classifier": "token+gap", "num_registers": 3},
    "DINOv2 with SwiGLU, no head": {"gelu": "swiglu", "mlp_dim": 32},
    "CLIP": {"embedding_norm": True, "gelu": "quick", "norm_epsilon": 1e-5},
    "SigLIP": {"classifier": "map", "gelu": "tanh", "norm_epsilon": 1e-6},
    "I-JEPA": {"classifier": "gap", "norm_epsilon": 1e-12},
    "DeiT, one head": {"classifier": "token", "num_registers": 1},
    "DINOv3": {"rotary": 100.0, "position_embedding": "none", "norm_epsilon": 1e-5},
    "DINOv3 with SwiGLU": {"rotary": 100.0, "gelu": "swiglu", "num_registers": 2},
}


@pytest.mark.parametrize("name", FIELDS)
def test_features_are_fields_of_the_config(name, write):
    config = shown_by(open_checkpoint(write(name))).config
    assert {field: getattr(config, field) for field in FIELDS[name]} == FIELDS[name]
    assert isinstance(config, ViTConfig)


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("CLIP", "the text tower was left out"),
        ("CLIP's image tower with projection", "visual_projection.* was left out"),
        ("ViTMAE", "the decoder was left out"),
        ("DINOv2", "the mask token was left out"),
    ],
)
def test_what_is_left_out_is_noted(name, left_out, write):
    assert any(re.search(left_out, note) for note in open_checkpoint(write(name)).notes)


@pytest.mark.parametrize(
    ("model_type", "feature"),
    [
        ("beit", "relative position biases"),
        ("siglip2_vision_model", "NaFlex"),
        ("yolos", "detection tokens"),
    ],
)
def test_other_families_are_refused_by_their_feature(model_type, feature, write):
    with pytest.raises(ValueError, match=f"model_type {model_type} has .*{feature}"):
        open_checkpoint(write("ReLU", model_type=model_type))


def test_dinov3_without_its_config_is_refused(write):
    folder = write("DINOv3")
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match=r"DINOv3 .* must have their config.json beside them"):
        open_checkpoint(folder)


def test_the_temperature_and_the_gate_of_dinov3_are_read(write):
    config = shown_by(open_checkpoint(write("DINOv3", rope_theta=50))).config
    assert config.rotary == 50.0
    with pytest.raises(ValueError, match="hidden_act must be one of .*'gated gelu'"):
        open_checkpoint(write("DINOv3 with SwiGLU", hidden_act="gelu"))


def test_an_unknown_family_is_refused_by_its_name(write):
    with pytest.raises(ValueError, match=r"must be one of vit, deit, .*Received: 'llava'"):
        open_checkpoint(write("ReLU", model_type="llava"))


def test_a_classifier_on_other_tokens_than_the_features_is_refused(write):
    head = np.zeros((3, 24), "float32")
    with pytest.raises(ValueError, match="classifier on the mean of the tokens"):
        open_checkpoint(write("SigLIP", {"classifier.weight": head, "classifier.bias": head[:, 0]}))


@pytest.mark.parametrize(
    "name",
    ["DINOv2", "DINOv2 with registers", "DINOv2 with SwiGLU, no head", "quick GELU", "ReLU"],
)
def test_there_and_back_all_arrays_are_equal(name, write, tmp_path):
    source, again = write(name), tmp_path / "again"
    (source / "preprocessor_config.json").write_text(
        json.dumps({"image_mean": [0.5] * 3, "image_std": [0.5] * 3})
    )
    convert(source, again, to="huggingface")
    arrays, written = _arrays(name), safetensors_numpy.load_file(again / "model.safetensors")
    assert set(written) == set(arrays)
    for key, array in arrays.items():
        if not key.endswith("mask_token"):
            np.testing.assert_array_equal(written[key], array, err_msg=key)
    described = json.loads((again / "config.json").read_text())
    theirs = MODELS[name]["config"]
    shared = described.keys() & theirs.keys() - {"id2label", "image_size", "intermediate_size"}
    assert {"model_type", "hidden_act", "layer_norm_eps", "num_hidden_layers"} <= shared
    assert {key: described[key] for key in shared} == {key: theirs[key] for key in shared}


def test_what_other_forms_do_not_have_is_refused(write, tmp_path):
    with pytest.raises(ValueError, match=r"one token or pooling.*classifier='token\+gap'"):
        convert(write("DINOv2"), tmp_path / "out.safetensors")
    swiglu = write("DINOv2 with SwiGLU, no head")
    with pytest.raises(ValueError, match="no place for SwiGLU"):
        convert(swiglu, tmp_path / "out", to="timm", normalization="half")
    notes = convert(swiglu, tmp_path / "out.safetensors")
    assert any("mlp_layer=timm.layers.SwiGLUPacked" in note for note in notes)
    with pytest.raises(ValueError, match=r"read the normalised class token.*embedding_norm=True"):
        convert(write("CLIP"), tmp_path / "out", to="huggingface", normalization="half")
    for to in ("huggingface", "timm"):
        with pytest.raises(ValueError, match=r"must have positions at the input.*rotary=100.0"):
            convert(write("DINOv3"), tmp_path / "out", to=to, normalization="half")


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("CLIP", "out.safetensors"),
        *itertools.product(("SigLIP", "I-JEPA"), ("out.npz", "out.safetensors")),
    ],
)
def test_other_forms_give_the_same_answers(name, to, write, tmp_path):
    convert(write(name), tmp_path / to)
    converted = read(tmp_path / to)
    expected = _expected(name, converted)
    np.testing.assert_allclose(_answers(converted), expected, atol=1e-5 * np.abs(expected).max())


def test_llm_names_are_not_taken_for_an_image_tower(tmp_path):
    names = ("model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight")
    safetensors_numpy.save_file(
        {name: np.zeros((2, 2), "float32") for name in names}, tmp_path / "model.safetensors"
    )
    with pytest.raises(ValueError, match="must have the names of"):
        open_checkpoint(tmp_path / "model.safetensors")
