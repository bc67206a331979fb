"""Weights, class names and preprocessing from one form to another and back."""

import dataclasses
import itertools
import json
import pathlib

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.code_bases import hugging_face, keras_hub, timm
from keras_vit.checkpoints.code_bases.hugging_face import HUGGING_FACE
from keras_vit.checkpoints.code_bases.keras_hub import KERAS_HUB
from keras_vit.checkpoints.code_bases.layouts import Checkpoint
from keras_vit.checkpoints.code_bases.official import OFFICIAL
from keras_vit.checkpoints.code_bases.timm import TIMM
from keras_vit.command_line import main
from keras_vit.configs import ViTConfig
from keras_vit.export import convert
from keras_vit.export.conversion import read
from keras_vit.preprocessing import Preprocessing
from makers import tiny_config

safetensors_numpy = pytest.importorskip("safetensors.numpy")

DESTINATIONS = {
    "classifier": "out",
    "official": "out.npz",
    "weights": "out.weights.h5",
    "huggingface": "out",
    "timm": "out.safetensors",
}

# What 0 and 255 become with ImageNet's mean and standard deviation.
IMAGENET_RANGE = (
    (-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225),
    (0.515 / 0.229, 0.544 / 0.224, 0.594 / 0.225),
)


@pytest.fixture
def source(golden, tmp_path):
    """Returns a function that writes the golden weights of a folder in their own format."""

    def write(name):
        arrays = golden(name).checkpoint()
        if name not in ("hf_vit", "timm_vit"):
            np.savez(tmp_path / "source.npz", **arrays)
            return tmp_path / "source.npz"
        folder = tmp_path / "source"
        folder.mkdir()
        safetensors_numpy.save_file(arrays, folder / "model.safetensors")
        if name == "hf_vit":
            (folder / "config.json").write_text(json.dumps(golden(name).config))
            return folder
        return folder / "model.safetensors"

    return write


def _logits(model, images):
    body = keras.Model(model.input, model.get_layer("predictions").input)
    kernel, bias = model.get_layer("predictions").get_weights()
    return np.array(body(images)) @ kernel + bias


# Every form is read and written: the others of the slow tests join the same halves.
PAIRS = (
    ("vit_token", "official"),
    ("vit_token", "weights"),
    ("hf_vit", "classifier"),
    ("hf_vit", "timm"),
    ("timm_vit", "huggingface"),
)


@pytest.mark.parametrize(
    ("name", "to"),
    [
        pair if pair in PAIRS else pytest.param(*pair, marks=pytest.mark.slow)
        for pair in itertools.product(("vit_token", "hf_vit", "timm_vit"), DESTINATIONS)
    ],
)
def test_there_and_back_is_equal_to_the_bit(name, to, source, golden, tmp_path):
    path = source(name)
    expected = golden(name).load()
    gelu = "tanh" if name == "vit_token" else "exact"
    before = read(path, 3, gelu=gelu)
    # float32, depth 3.
    np.testing.assert_allclose(
        _logits(before.model, expected["images"]), expected["logits"], atol=1e-4
    )
    facts = {"num_heads": 3, "gelu": gelu, "normalization": "half"}
    convert(path, tmp_path / DESTINATIONS[to], to=to, **facts)
    again = read(tmp_path / DESTINATIONS[to], 3, gelu=gelu)
    weights = {weight.path: weight for weight in again.model.weights}
    assert set(weights) == {weight.path for weight in before.model.weights}
    for weight in before.model.weights:
        np.testing.assert_array_equal(weights[weight.path], weight, err_msg=weight.path)


@pytest.mark.parametrize(
    "name", ["vit_token_representation", "vit_gap", "hybrid_root_only", "hybrid_4_stages"]
)
def test_the_model_is_recognised_from_the_file(name, source, golden, tmp_path):
    expected = golden(name).load()
    convert(source(name), tmp_path / "out")
    classifier = keras_vit.load_classifier(tmp_path / "out")
    assert classifier.model.input_shape[1:3] == expected["images"].shape[1:3]
    assert classifier.class_names == tuple(map(str, range(expected["logits"].shape[1])))
    np.testing.assert_allclose(
        _logits(classifier.model, expected["images"]), expected["logits"], atol=1e-4
    )


def test_a_bit_checkpoint_becomes_a_classifier(source, golden):
    expected = golden("bit_r14x1").load()
    model = read(source("bit_r14x1")).model
    assert model.input_shape == (None, 224, 224, 3)
    small = keras_vit.build(keras_vit.BiTConfig((1, 1, 1, 1)), input_shape=(64, 64, 3), classes=10)
    small.set_weights(model.get_weights())
    np.testing.assert_allclose(_logits(small, expected["images"]), expected["logits"], atol=1e-4)


def test_names_preprocessing_and_numerics_go_to_hugging_face_and_back(source, tmp_path):
    config = tiny_config(patch_size=(8, 16), mlp_dim=32, norm_epsilon=1e-5, dropout_rate=0.1)
    model = keras_vit.build(config, input_shape=(16, 64, 3), classes=2)
    model.get_layer("predictions").kernel.assign(np.ones((16, 2)))
    keras_vit.save_classifier(
        tmp_path / "pets", model, ("cat", "dog"), Preprocessing((16, 64), value_range=(0, 1))
    )
    notes = convert(tmp_path / "pets", tmp_path / "hub", to="huggingface")
    assert notes == ["the resize there is antialiased, and was not here"]
    described = json.loads((tmp_path / "hub" / "config.json").read_text())
    assert described["hidden_act"] == "gelu_pytorch_tanh"
    assert (described["image_size"], described["patch_size"]) == ([16, 64], [8, 16])
    processor = json.loads((tmp_path / "hub" / "preprocessor_config.json").read_text())
    assert (processor["image_mean"], processor["image_std"]) == ([0.0] * 3, [1.0] * 3)
    again = read(tmp_path / "hub")
    assert again.class_names == ("cat", "dog")
    assert again.preprocessing == Preprocessing((16, 64), "huggingface", (0, 1))
    block = again.model.get_layer("encoder_block_0")
    assert (block.gelu, block.norm_epsilon, block.num_heads) == ("tanh", 1e-5, 2)


def test_a_file_of_torchvision_has_imagenets_range_and_the_resize_of_its_size(golden, tmp_path):
    convert(_state_dict(golden("torchvision_vit"), tmp_path), tmp_path / "pets", num_heads=3)
    found = keras_vit.load_classifier(tmp_path / "pets").preprocessing
    np.testing.assert_allclose(found.value_range, IMAGENET_RANGE)
    assert (found.evaluation, found.resize_size) == ("torchvision", 32)  # As SWAG's.


def _state_dict(golden, folder):
    safetensors_numpy.save_file(golden.checkpoint(), folder / "model.safetensors")
    return folder / "model.safetensors"


def test_deit_goes_to_hugging_face_and_timm_and_back(golden, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(golden("hf_deit").config))
    path = _state_dict(golden("hf_deit"), tmp_path)
    with pytest.raises(ValueError, match="--normalization .*no preprocessor_config.json"):
        convert(path, tmp_path / "deit", to="huggingface")
    assert not (tmp_path / "deit").exists()
    convert(path, tmp_path / "deit", to="huggingface", normalization="imagenet")
    described = json.loads((tmp_path / "deit" / "config.json").read_text())
    assert described["architectures"] == ["DeiTForImageClassificationWithTeacher"]
    again = safetensors_numpy.load_file(tmp_path / "deit" / "model.safetensors")
    # In memory the names are those since version 5; files have the published ones.
    arrays = {}
    for name, array in golden("hf_deit").checkpoint().items():
        body, is_body = name.removeprefix("deit."), name.startswith("deit.")
        arrays[f"deit.{HUGGING_FACE.canonical_name(body)}" if is_body else name] = array
    assert set(again) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name], array, err_msg=name)
    convert(tmp_path / "deit", tmp_path / "timm.safetensors", to="timm")
    assert set(safetensors_numpy.load_file(tmp_path / "timm.safetensors")) == set(
        golden("timm_deit").checkpoint()
    )


def test_keras_hub_files_hold_their_preprocessing(golden, tmp_path):
    convert(golden("keras_hub").folder / "classifier.keras", tmp_path / "out")
    preprocessing = keras_vit.load_classifier(tmp_path / "out").preprocessing
    assert preprocessing.evaluation == "resize"
    np.testing.assert_allclose(preprocessing.value_range, IMAGENET_RANGE)


CROP = {"resample": 3, "do_center_crop": True}
SIDES = {"height": 224, "width": 224}
DINOV2 = {
    "image_processor_type": "BitImageProcessor",
    "size": {"shortest_edge": 256},
    "crop_size": SIDES,
    **CROP,
}
DEIT = {"feature_extractor_type": "DeiTFeatureExtractor", "size": 256, "crop_size": 224, **CROP}
CLIP = {"feature_extractor_type": "CLIPFeatureExtractor", "size": 224, "crop_size": 224, **CROP}
SIGLIP = {"image_processor_type": "SiglipImageProcessor", "resample": 3, "size": SIDES}


@pytest.mark.parametrize(
    ("wanted", "interpolation", "resize_size"),
    [
        ({"size": 224}, "bilinear", None),  # As transformers 4.0 wrote it.
        ({"image_processor_type": "ViTImageProcessor"}, "bilinear", None),
        (SIGLIP, "bicubic", None),
        ({"resample": 1}, "lanczos", None),
        (DEIT, "bicubic", (256, 256)),
        (CLIP, "bicubic", 224),
        (DINOV2, "bicubic", 256),
        ({"image_processor": DINOV2}, "bicubic", 256),  # In the processor of a CLIP.
    ],
    ids=str,
)
def test_processors_of_hugging_face_are_read_exactly(wanted, interpolation, resize_size, tmp_path):
    clip = "image_processor" in wanted
    name = hugging_face.PROCESSOR if clip else hugging_face.PREPROCESSOR
    (tmp_path / name).write_text(json.dumps(wanted))
    found = HUGGING_FACE.images(Checkpoint(tmp_path, HUGGING_FACE, {}), (224, 224), None)
    assert found.preprocessing == Preprocessing(
        (224, 224), "huggingface", interpolation=interpolation, resize_size=resize_size
    )
    assert found.notes == ()
    if wanted == DINOV2:  # At another image size, which is printed.
        found = HUGGING_FACE.images(Checkpoint(tmp_path, HUGGING_FACE, {}), (518, 518), None)
        assert found.preprocessing.resize_size == 592
        note = "the processor's images of (224, 224) pixels became the model's (518, 518)"
        assert found.notes == (note,)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"do_pad": True}, "do_pad"),
        ({"crop_pct": 0.9}, "crop_pct"),
        ({"resample": 0}, "'resample': 0"),
        ({"size": {"longest_edge": 512}}, "longest_edge"),
        ({"size": 224, "do_center_crop": True, "crop_size": 256}, "no side may be shorter"),
    ],
)
def test_processors_that_do_something_else_are_refused(wanted, says, tmp_path):
    (tmp_path / hugging_face.PREPROCESSOR).write_text(json.dumps(wanted))
    with pytest.raises(ValueError, match=says):
        HUGGING_FACE.images(Checkpoint(tmp_path, HUGGING_FACE, {}), (224, 224), None)


@pytest.mark.parametrize(
    ("wanted", "size", "interpolation", "resize_size"),
    [
        ({}, (224, 224), "bicubic", 256),
        ({"crop_pct": 0.9, "interpolation": "bilinear"}, (224, 224), "bilinear", 248),
        ({"crop_pct": 1.0}, (384, 384), "bicubic", 384),
        ({"crop_pct": 1.0, "crop_mode": "squash"}, (160, 224), "bicubic", None),
        ({"crop_pct": 0.95, "crop_mode": "squash"}, (384, 384), "bicubic", (404, 404)),
    ],
)
def test_a_pretrained_cfg_of_timm_is_read_exactly(wanted, size, interpolation, resize_size):
    found, notes = timm._resize_of_timm(wanted, size)
    assert found == Preprocessing(
        size, "torchvision", interpolation=interpolation, resize_size=resize_size
    )
    assert notes == []
    with pytest.raises(ValueError, match="not padded.*'border'"):
        timm._resize_of_timm({**wanted, "crop_mode": "border"}, size)


def test_a_resize_that_is_in_no_file_is_the_usual_one_and_printed(golden, tmp_path):
    path = _state_dict(golden("timm_vit"), tmp_path)
    assert TIMM.usual_resize((224, 224)).resize_size == 248
    assert TIMM.usual_resize((384, 384)).resize_size == 384
    assert HUGGING_FACE.usual_resize((224, 224)).evaluation == "huggingface"
    assert OFFICIAL.usual_resize((224, 224)).evaluation == "resize"
    found = read(path, 3, "half", gelu="exact")
    assert found.preprocessing.evaluation == "torchvision"
    assert any("resize was assumed" in note for note in found.notes)


@pytest.mark.parametrize(
    ("converter", "evaluation", "interpolation"),
    [
        ({"crop_to_aspect_ratio": True}, "keras_hub", "bilinear"),
        ({"interpolation": "bicubic"}, "keras_hub", "bicubic"),
        ({"crop_to_aspect_ratio": False}, "resize", "bilinear"),
        ({"crop_to_aspect_ratio": False, "antialias": True}, "huggingface", "bilinear"),
    ],
)
def test_image_converters_of_keras_hub_are_read(converter, evaluation, interpolation):
    config = {
        "class_name": keras_hub.HUB_CLASSIFIER,
        "config": {"preprocessor": {"config": {"image_converter": {"config": converter}}}},
    }
    files = Checkpoint(pathlib.Path("a.keras"), KERAS_HUB, {}, config=config)
    found = KERAS_HUB.images(files, (32, 32), None)
    assert found.preprocessing == Preprocessing((32, 32), evaluation, (0, 255), interpolation)
    assert found.notes == ()


@pytest.mark.parametrize("resize_size", [None, 40, (48, 40)])
def test_a_crop_and_class_names_go_to_a_folder_and_back(resize_size, tmp_path):
    config = ViTConfig(16, 48, 1, 100, 3, gelu="exact")
    model = keras_vit.build(config, input_shape=(32, 32, 3), classes=2)
    model.get_layer("predictions").kernel.assign(np.ones((48, 2)))
    preprocessing = Preprocessing((32, 32), "huggingface", IMAGENET_RANGE, "bicubic", resize_size)
    keras_vit.save_classifier(tmp_path / "pets", model, ("cat", "dog"), preprocessing)
    assert convert(tmp_path / "pets", tmp_path / "folder", to="huggingface") == []
    again = read(tmp_path / "folder")
    assert again.class_names == ("cat", "dog")
    np.testing.assert_allclose(again.preprocessing.value_range, IMAGENET_RANGE)
    assert preprocessing == dataclasses.replace(again.preprocessing, value_range=IMAGENET_RANGE)
    for weight, expected in zip(again.model.weights, model.weights, strict=True):
        np.testing.assert_array_equal(weight, expected)


def test_preprocessing_that_another_library_cannot_do_is_printed_or_refused():
    odd = Preprocessing((32, 32), "torchvision", resize_size=(35, 36))
    _, notes = hugging_face.preprocessor_json(odd, 3)
    assert notes == ["the crop there may start one pixel later or earlier"]
    for evaluation in ("resize_small_central_crop", "resize_central_crop", "keras_hub"):
        with pytest.raises(ValueError, match="way of resizing must be"):
            hugging_face.preprocessor_json(Preprocessing((32, 32), evaluation), 3)


def test_a_body_without_head_keeps_its_bits(golden, tmp_path):
    arrays = {
        name.removeprefix("vit."): array
        for name, array in golden("hf_vit").checkpoint().items()
        if not name.startswith("classifier")
    }
    pooler = {"pooler.dense.weight": np.eye(48), "pooler.dense.bias": np.zeros(48)}
    safetensors_numpy.save_file(
        arrays | {k: v.astype("float32") for k, v in pooler.items()}, tmp_path / "model.safetensors"
    )
    (tmp_path / "config.json").write_text(json.dumps(golden("hf_vit").config))
    with pytest.raises(ValueError, match="A classifier must have a head"):
        convert(tmp_path, tmp_path / "out")
    notes = convert(tmp_path, tmp_path / "body", to="huggingface", normalization="half")
    assert any("the pooler was left out" in note for note in notes)
    again = safetensors_numpy.load_file(tmp_path / "body" / "model.safetensors")
    assert set(again) == set(arrays)
    assert all((again[name] == array).all() for name, array in arrays.items())
    described = json.loads((tmp_path / "body" / "config.json").read_text())
    assert described["architectures"] == ["ViTModel"]
    assert "id2label" not in described


def test_what_has_no_counterpart_is_refused(source, tmp_path):
    for name, to, says in (
        ("vit_gap", "huggingface", "must be a ViT or a DeiT.*classifier='gap'"),
        ("vit_token_representation", "huggingface", "a ViT or a DeiT.*representation_size=40"),
        ("vit_token_representation", "timm", "one linear layer.*representation_size=40"),
        ("hybrid_root_only", "timm", "Only a plain Vision Transformer"),
    ):
        with pytest.raises(ValueError, match=says):
            convert(source(name), tmp_path / DESTINATIONS[to], to=to)
        assert not (tmp_path / DESTINATIONS[to]).exists()


def test_weights_alone_are_converted_without_a_range_and_note_that_it_is_unknown(source, tmp_path):
    path = source("timm_vit")
    with pytest.raises(ValueError, match=r"heads \(num_heads, --num-heads\) and .* size of 48"):
        convert(path, tmp_path / "out")
    convert(path, tmp_path / "out.npz", num_heads=3, gelu="exact")
    with pytest.raises(ValueError, match="--normalization .*the source did not hold it"):
        convert(tmp_path / "out.npz", tmp_path / "out", num_heads=3)
    convert(path, tmp_path / "known.npz", num_heads=3, gelu="exact", normalization="imagenet")
    convert(tmp_path / "known.npz", tmp_path / "out", num_heads=3)
    values = keras_vit.load_classifier(tmp_path / "out").preprocessing.value_range
    np.testing.assert_allclose(values, IMAGENET_RANGE)


def test_the_command_converts_and_refuses_in_one_line(source, tmp_path, capsys):
    path = str(source("vit_token"))
    for name, note in (
        ("out.weights.h5", "reads the class names and preprocessing in the output"),
        ("out.safetensors", 'create the timm model with act_layer="gelu_tanh"'),
    ):
        assert main(["convert", path, str(tmp_path / name)]) == 0
        assert note in capsys.readouterr().out
        assert main(["convert", path, str(tmp_path / name)]) == 2
        assert "--overwrite" in capsys.readouterr().err
        assert main(["convert", path, str(tmp_path / name), "--overwrite"]) == 0
        capsys.readouterr()
    assert main(["convert", path, str(tmp_path / "out"), "--to", "official"]) == 2
    assert "must end with .npz" in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "none"), str(tmp_path / "x")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "none" in error
