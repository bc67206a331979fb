"""Presets of KerasHub's image encoders; golden files give the answers of KerasHub."""

import json
import pathlib
import shutil
import sys
import types
import zipfile

import h5py
import numpy as np
import pytest

import keras_vit
from keras_vit.models.outputs import array_of
from keras_vit.opening import open_model

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "keras_hub"
with np.load(GOLDEN / "presets.npz") as arrays:
    EXPECTED = dict(arrays)
NAMES = [name for name in EXPECTED if not name.startswith("images")]
WEIGHTS = "model.weights.h5"


@pytest.fixture
def preset_of(tmp_path):
    """Returns a function that unpacks a golden preset, with changes to its model's config."""

    def unpack(name, **changes):
        with zipfile.ZipFile(GOLDEN / "presets.zip") as archive:
            for file in archive.namelist():
                if file.startswith(f"{name}/"):
                    archive.extract(file, tmp_path)
        path = tmp_path / name / "config.json"
        content = json.loads(path.read_text())
        content["config"] |= changes
        path.write_text(json.dumps(content))
        return tmp_path / name

    return unpack


def _without_names(preset):
    """As Keras wrote files before it kept the layers' names."""
    with h5py.File(preset / WEIGHTS, "a") as file:
        file.visititems(lambda name, group: group.attrs.pop("name", None) and None)
    return preset


def _as_archive(preset):
    """As `model.save` writes it."""
    path = preset.with_suffix(".keras")
    with zipfile.ZipFile(path, "w") as archive:
        for file in ("metadata.json", "config.json", WEIGHTS):
            archive.write(preset / file, file)
    return path


def _check(path, name):
    model = open_model(path).model()
    expected = EXPECTED[name]
    images = EXPECTED[f"images {model.input_shape[2]}"]
    # float32, depth 2.
    atol = 2e-6 * np.abs(expected).max()
    np.testing.assert_allclose(array_of(model(images)), expected, atol=atol)


@pytest.mark.parametrize("form", [pathlib.Path, _without_names, _as_archive])
@pytest.mark.parametrize("name", NAMES)
def test_an_image_encoder_gives_the_features_of_keras_hub(name, form, preset_of):
    _check(form(preset_of(name)), name)


def test_a_preset_keeps_the_table_of_positions_that_it_was_trained_with(preset_of):
    description = open_model(preset_of("DINOv2")).description
    assert (description.image_size, description.position_grid) == ((8, 8), (3, 3))
    assert description.config.position_resize == "bicubic_keras"
    antialiased = open_model(preset_of("DINOv2 with SwiGLU")).description.config
    assert antialiased.position_resize == "bicubic"


def test_what_is_left_out_is_named(preset_of):
    notes = open_model(preset_of("CLIP")).description.notes
    assert "the text tower was left out" in notes
    assert "the projection into the space of texts was left out" in notes
    assert "the mask token was left out" in open_model(preset_of("DINOv3")).description.notes


def test_the_image_converter_beside_a_backbone_is_read(preset_of):
    preset = preset_of("DINOv3")
    fields = {"scale": 1 / 127.5, "offset": -1.0, "crop_to_aspect_ratio": False}
    content = {"class_name": "DINOV3ImageConverter", "config": fields}
    (preset / "image_converter.json").write_text(json.dumps(content))
    preprocessing = open_model(preset).description.preprocessing
    assert preprocessing.evaluation == "resize"
    np.testing.assert_allclose(preprocessing.value_range, (-1, 1), atol=1e-9)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("DINOv3", {"num_layers": 3}, "depth=3 in the config, 2"),
        ("DINOv3", {"hidden_activation": "silu"}, "activation .*='silu'"),
        ("SigLIP's image tower", {"layer_norm_epsilon": 1e-5}, "layer_norm_epsilon must be 1e-6"),
    ],
)
def test_what_keras_hub_computes_otherwise_is_refused(name, changes, message, preset_of):
    with pytest.raises(ValueError, match=message):
        open_model(preset_of(name, **changes))


@pytest.mark.parametrize("name", ["DINOv2", "DINOv3", "CLIP"])
def test_a_file_without_its_config_is_refused(name, preset_of):
    preset = preset_of(name)
    (preset / "config.json").unlink()
    with pytest.raises(ValueError, match="config.json in the same folder"):
        open_model(preset)


def test_numbers_of_positions_other_than_theirs_are_refused(preset_of):
    preset = preset_of("CLIP")
    with h5py.File(preset / WEIGHTS, "a") as file:
        file["layers/clip_vision_encoder/layers/clip_vision_embedding/vars/1"][...] = 0
    with pytest.raises(ValueError, match=r"positions .*0, 1, 2 .*\[0"):
        open_model(preset)


def test_a_gate_of_another_shape_is_refused(preset_of):
    preset = preset_of("DINOv3 with a gate")
    with h5py.File(preset / WEIGHTS, "a") as file:
        layer = file["layers/dinov3_encoder/layers/dinov3_layer/mlp/gate_proj/vars"]
        kernel = layer["0"][:, :8]
        del layer["0"]
        layer["0"] = kernel
    with pytest.raises(ValueError, match=r"A gate .* \(16, 8\)"):
        open_model(preset)


def test_a_preset_on_the_hub_is_opened_by_the_name_that_keras_writes(hub, preset_of):
    preset = preset_of("DINOv3")
    hub.add("keras/dinov3_tiny", {file.name: file.read_bytes() for file in preset.iterdir()})
    assert open_model("hf://keras/dinov3_tiny").description.config.rotary == 100.0


@pytest.fixture
def kaggle(preset_of, monkeypatch, tmp_path):
    """The client of Kaggle, with one preset; gives the names that were asked for."""
    asked = []

    def model_download(name):
        asked.append(name)
        if "tiny" not in name:
            raise RuntimeError("404 Client Error\nmore")
        folder = tmp_path / "kaggle" / "2"
        if not folder.exists():
            shutil.copytree(preset_of("DINOv3"), folder)
        return str(folder)

    client = types.SimpleNamespace(model_download=model_download)
    monkeypatch.setitem(sys.modules, "kagglehub", client)
    return asked


def test_a_preset_of_kaggle_is_opened_by_its_name_and_keeps_its_version(kaggle):
    opened = open_model("kaggle://keras/dinov3/keras/tiny")
    assert kaggle[0] == "keras/dinov3/keras/tiny"
    assert opened.source == "kaggle://keras/dinov3/keras/tiny/2"
    assert open_model(opened.source).source == opened.source


@pytest.mark.parametrize("name", ["kaggle://keras/dinov3", "kaggle://a/b/pyTorch/c", "kaggle:x"])
def test_another_form_of_a_kaggle_name_is_refused(name, kaggle):
    with pytest.raises(ValueError, match="kaggle://OWNER/MODEL/keras/VARIATION"):
        open_model(name)
    assert kaggle == []


def test_a_preset_that_kaggle_does_not_have_is_a_line(kaggle):
    with pytest.raises(OSError, match="404") as caught:
        open_model("kaggle://keras/dinov3/keras/other/1")
    assert "\n" not in str(caught.value)


def test_without_its_client_kaggle_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "kagglehub", None)
    with pytest.raises(ImportError, match="pip install kagglehub"):
        open_model("kaggle://keras/dinov3/keras/tiny/1")


def test_a_preset_is_fine_tuned_at_another_image_size(preset_of):
    model = keras_vit.build(weights=preset_of("DINOv2"), classes=5, input_shape=(16, 12, 3))
    assert model.get_layer("position_embedding").grid == (4, 3)
    assert model.output_shape == (None, 5)
