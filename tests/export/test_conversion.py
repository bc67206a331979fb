"""Weights, class names and preprocessing from one form to another and back."""

import itertools
import json

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.code_bases import hugging_face, keras_hub, timm
from keras_vit.checkpoints.code_bases.hugging_face import HUGGING_FACE
from keras_vit.checkpoints.code_bases.keras_hub import KERAS_HUB
from keras_vit.checkpoints.code_bases.layouts import Checkpoint
from keras_vit.command_line import main
from keras_vit.export import convert
from keras_vit.export.conversion import read
from keras_vit.opening import open_predictor
from keras_vit.preprocessing import Preprocessing
from makers import tiny_config

safetensors_numpy = pytest.importorskip("safetensors.numpy")

DESTINATIONS = {
    "classifier": "out",
    "official": "out.npz",
    "huggingface": "out",
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
        if not name.startswith(("hf", "timm", "torchvision")):
            np.savez(tmp_path / "source.npz", **arrays)
            return tmp_path / "source.npz"
        folder = tmp_path / "source"
        folder.mkdir()
        safetensors_numpy.save_file(arrays, folder / "model.safetensors")
        if not name.startswith("hf"):
            return folder / "model.safetensors"
        (folder / "config.json").write_text(json.dumps(golden(name).config))
        return folder

    return write


def check_logits(model, expected):
    body = keras.Model(model.input, model.get_layer("predictions").input)
    kernel, bias = model.get_layer("predictions").get_weights()
    logits = np.array(body(expected["images"])) @ kernel + bias
    np.testing.assert_allclose(logits, expected["logits"], atol=1e-4)  # float32, depth 3.


# Every form is read and written: the others of the slow tests join the same halves.
PAIRS = (
    ("vit_token", "official"),
    ("hf_vit", "classifier"),
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
    gelu = "tanh" if name == "vit_token" else "exact"
    before, _ = read(path, num_heads=3, gelu=gelu)
    check_logits(before.model(), golden(name).load())
    facts = {"num_heads": 3, "gelu": gelu, "normalization": "half"}
    convert(path, tmp_path / DESTINATIONS[to], to=to, **facts)
    again, _ = read(tmp_path / DESTINATIONS[to], num_heads=3, gelu=gelu)
    weights = {weight.path: weight for weight in again.model().weights}
    assert set(weights) == {weight.path for weight in before.model().weights}
    for weight in before.model().weights:
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
    check_logits(classifier.model, expected)


def test_a_bit_checkpoint_becomes_a_classifier(source, golden):
    model = read(source("bit_r14x1"))[0].model()
    assert model.input_shape == (None, 224, 224, 3)
    small = keras_vit.build(
        keras_vit.configs.BiTConfig((1, 1, 1, 1)), input_shape=(64, 64, 3), classes=10
    )
    small.set_weights(model.get_weights())
    check_logits(small, golden("bit_r14x1").load())


@pytest.fixture
def hub_folder(tmp_path):
    """A folder of Hugging Face that was written from a classifier."""
    config = tiny_config(patch_size=(8, 16), mlp_dim=32, norm_epsilon=1e-5, dropout_rate=0.1)
    model = keras_vit.build(config, input_shape=(16, 64, 3), classes=2)
    model.get_layer("predictions").kernel.assign(np.ones((16, 2)))
    keras_vit.save_classifier(
        tmp_path / "pets", model, ("cat", "dog"), Preprocessing((16, 64), value_range=(0, 1))
    )
    notes = convert(tmp_path / "pets", tmp_path / "hub", to="huggingface")
    assert notes == ["the resize there is antialiased, and was not here"]
    return tmp_path / "hub"


def test_numerics_and_preprocessing_are_written_as_hugging_face_names_them(hub_folder):
    described = json.loads((hub_folder / "config.json").read_text())
    assert described["hidden_act"] == "gelu_pytorch_tanh"
    assert (described["image_size"], described["patch_size"]) == ([16, 64], [8, 16])
    processor = json.loads((hub_folder / "preprocessor_config.json").read_text())
    assert (processor["image_mean"], processor["image_std"]) == ([0.0] * 3, [1.0] * 3)


def test_names_and_preprocessing_come_back_from_hugging_face(hub_folder):
    again, _ = read(hub_folder)
    assert again.description.labels.names == ("cat", "dog")
    assert again.preprocessing_for() == Preprocessing((16, 64), "huggingface", (0, 1))
    block = again.model().get_layer("encoder_block_0")
    assert (block.gelu, block.norm_epsilon, block.num_heads) == ("tanh", 1e-5, 2)


@pytest.mark.parametrize(
    ("library", "evaluation", "resize_size"),
    [("torchvision_vit", "torchvision", 32), ("keras_hub", "resize", None)],  # As SWAG's.
)
def test_a_file_of_a_library_has_its_range_and_resize(
    library, evaluation, resize_size, source, golden, tmp_path
):
    hub = golden("keras_hub").folder / "classifier.keras"
    path = hub if library == "keras_hub" else source(library)
    facts = {} if library == "keras_hub" else {"num_heads": 3}
    convert(path, tmp_path / "pets", **facts)
    found = open_predictor(tmp_path / "pets").preprocessing
    np.testing.assert_allclose(found.value_range, IMAGENET_RANGE)
    assert (found.evaluation, found.resize_size) == (evaluation, resize_size)


def test_deit_goes_to_hugging_face_and_back(source, golden, tmp_path):
    path = source("hf_deit")
    with pytest.raises(ValueError, match="--normalization .*preprocessor_config.json"):
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
WHOLE = {"crop_to_aspect_ratio": False}
SQUASHED = {"crop_pct": 1.0, "crop_mode": "squash"}

# What says how images are prepared, the model's size, and how they are: the way, the interpolation
# and the size before a crop; or what an error says.
PREPARED = [
    ("hf", {"size": 224}, 224, ("huggingface", "bilinear", None)),  # Version 4.0.
    ("hf", {"image_processor_type": "ViTImageProcessor"}, 224, ("huggingface", "bilinear", None)),
    ("hf", SIGLIP, 224, ("huggingface", "bicubic", None)),
    ("hf", {"resample": 1}, 224, ("huggingface", "lanczos", None)),
    ("hf", DEIT, 224, ("huggingface", "bicubic", (256, 256))),
    ("hf", CLIP, 224, ("huggingface", "bicubic", 224)),
    ("hf", DINOV2, 224, ("huggingface", "bicubic", 256)),
    ("hf", {"image_processor": DINOV2}, 224, ("huggingface", "bicubic", 256)),  # A CLIP.
    ("hf", DINOV2, 518, ("huggingface", "bicubic", 592)),
    ("hf", {"do_pad": True}, 224, "do_pad"),
    ("hf", {"crop_pct": 0.9}, 224, "crop_pct"),
    ("hf", {"resample": 0}, 224, "'resample': 0"),
    ("hf", {"size": {"longest_edge": 512}}, 224, "longest_edge"),
    ("hf", {"size": 224, "do_center_crop": True, "crop_size": 256}, 224, "no side may be shorter"),
    ("timm", {}, 224, ("torchvision", "bicubic", 256)),
    ("timm", {"crop_pct": 0.9, "interpolation": "bilinear"}, 224, ("torchvision", "bilinear", 248)),
    ("timm", {"crop_pct": 1.0}, 384, ("torchvision", "bicubic", 384)),
    ("timm", SQUASHED, 160, ("torchvision", "bicubic", None)),
    ("timm", {**SQUASHED, "crop_pct": 0.95}, 384, ("torchvision", "bicubic", (404, 404))),
    ("timm", {"crop_mode": "border"}, 384, "not padded.*'border'"),
    ("hub", {"crop_to_aspect_ratio": True}, 32, ("keras_hub", "bilinear", None)),
    ("hub", {"interpolation": "bicubic"}, 32, ("keras_hub", "bicubic", None)),
    ("hub", WHOLE, 32, ("resize", "bilinear", None)),
    ("hub", {**WHOLE, "antialias": True}, 32, ("huggingface", "bilinear", None)),
]


def images_of(library, content, size, folder):
    """Returns the preprocessing of a model of a size, and the notes about it."""
    if library == "timm":
        return timm._resize_of_timm(content, size)
    if library == "hf":
        known, files = HUGGING_FACE, Checkpoint(folder, HUGGING_FACE, {})
        clip = "image_processor" in content
        name = hugging_face.PROCESSOR if clip else hugging_face.PREPROCESSOR
        (folder / name).write_text(json.dumps(content))
    else:
        converter = {"preprocessor": {"config": {"image_converter": {"config": content}}}}
        config = {"class_name": keras_hub.HUB_CLASSIFIER, "config": converter}
        known, files = KERAS_HUB, Checkpoint(folder / "a.keras", KERAS_HUB, {}, config=config)
    found = known.images(files, size, None)
    return found.preprocessing, list(found.notes)


@pytest.mark.parametrize(("library", "content", "side", "expected"), PREPARED, ids=str)
def test_preprocessing_is_read_exactly_or_refused(library, content, side, expected, tmp_path):
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            images_of(library, content, (side, side), tmp_path)
        return
    found, notes = images_of(library, content, (side, side), tmp_path)
    assert (found.evaluation, found.interpolation, found.resize_size) == expected
    assert found.image_size == (side, side)
    # At another image size than the processor's.
    note = "the processor's images of (224, 224) pixels became the model's (518, 518)"
    assert notes == ([note] if side == 518 else [])


def test_a_resize_that_is_in_no_file_is_the_official_one_and_printed(source):
    found, notes = read(source("timm_vit"), num_heads=3, normalization="half", gelu="exact")
    assert found.preprocessing_for().evaluation == "resize"
    assert any("resize was assumed" in note for note in notes)


def test_preprocessing_that_another_library_cannot_do_is_printed_or_refused():
    odd = Preprocessing((32, 32), "torchvision", resize_size=(35, 36))
    _, notes = hugging_face.preprocessor_json(odd, 3)
    assert notes == ["the crop there may start one pixel later or earlier"]
    for evaluation in ("resize_small_central_crop", "resize_central_crop", "keras_hub"):
        with pytest.raises(ValueError, match="way of resizing"):
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
    with pytest.raises(ValueError, match="have a head"):
        convert(tmp_path, tmp_path / "out", normalization="half")
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
        ("vit_token_representation", "huggingface", "representation_size=40"),
        ("hybrid_root_only", "huggingface", "hybrid .*--to official"),
    ):
        with pytest.raises(ValueError, match=says):
            convert(source(name), tmp_path / DESTINATIONS[to], to=to)
        assert not (tmp_path / DESTINATIONS[to]).exists()


def test_weights_alone_are_converted_without_a_range_and_note_that_it_is_unknown(source, tmp_path):
    path = source("timm_vit")
    with pytest.raises(ValueError, match=r"\(num_heads, --num-heads\) .*size of 48"):
        convert(path, tmp_path / "out")
    convert(path, tmp_path / "out.npz", num_heads=3, gelu="exact")
    with pytest.raises(ValueError, match="--normalization"):
        convert(tmp_path / "out.npz", tmp_path / "out", num_heads=3)
    convert(path, tmp_path / "known.npz", num_heads=3, gelu="exact", normalization="imagenet")
    convert(tmp_path / "known.npz", tmp_path / "out", num_heads=3)
    values = open_predictor(tmp_path / "out").preprocessing.value_range
    np.testing.assert_allclose(values, IMAGENET_RANGE)


def test_the_command_converts_and_overwrites_on_request(source, tmp_path, capsys):
    command = ["convert", str(source("vit_token")), str(tmp_path / "out.npz")]
    assert main(command) == 0
    assert "only keras-vit reads its preprocessing" in capsys.readouterr().out
    assert main(command) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("source.npz out --to official", "must end with .npz"),
        ("source.npz out.safetensors", "--to huggingface writes model.safetensors"),
        ("none x", "none"),
    ],
)
def test_the_command_refuses_in_one_line(words, message, source, tmp_path, capsys, monkeypatch):
    source("vit_token")
    monkeypatch.chdir(tmp_path)
    assert main(["convert", *words.split()]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
