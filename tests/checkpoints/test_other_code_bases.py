"""torchvision, DeiT, KerasHub and vit-keras: files that they made, or of their names."""

import json
import shutil

import h5py
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.checkpoint_description import build_arguments
from keras_vit.checkpoints.formats import read_values
from keras_vit.checkpoints.load import load_opened

safetensors_numpy = pytest.importorskip("safetensors.numpy")

# float32, depth 2.
TOLERANCE = 1e-4


@pytest.fixture
def loaded():
    """Returns a function from a file to its model, with logits."""

    def load(path, num_heads=None, gelu=None):
        source = open_checkpoint(path)
        inferred = build_arguments(source, num_heads, gelu=gelu)
        model = keras_vit.build(
            inferred.config,
            input_shape=(*inferred.image_size, 3),
            classes=inferred.classes,
            classifier_activation=None,
        )
        report = load_opened(source, model)
        assert len(report.loaded) == len(model.weights)
        return model

    return load


@pytest.fixture
def state_dict(golden, tmp_path):
    """Returns a function that writes the golden weights of a folder as a state dict."""

    def write(name, rename=lambda name: name):
        arrays = {rename(k): v for k, v in golden(name).checkpoint().items()}
        safetensors_numpy.save_file(arrays, tmp_path / "model.safetensors")
        if name.startswith("hf"):
            (tmp_path / "config.json").write_text(json.dumps(golden(name).config))
        return tmp_path / "model.safetensors"

    return write


@pytest.mark.parametrize("name", ["torchvision_vit", "hf_deit", "timm_deit"])
def test_state_dicts_give_their_logits(name, golden, state_dict, loaded):
    expected = golden(name).load()
    model = loaded(state_dict(name), num_heads=3, gelu="exact")
    np.testing.assert_allclose(model(expected["images"]), expected["logits"], atol=TOLERANCE)
    block = model.get_layer("encoder_block_0")
    assert (block.gelu, block.norm_epsilon) == ("exact", 1e-12 if name == "hf_deit" else 1e-6)


def test_published_torchvision_names_mean_the_same(golden, state_dict, loaded):
    def published(name):
        return name.replace(".mlp.0.", ".mlp.linear_1.").replace(".mlp.3.", ".mlp.linear_2.")

    expected = golden("torchvision_vit").load()
    model = loaded(state_dict("torchvision_vit", published), num_heads=3)
    np.testing.assert_allclose(model(expected["images"]), expected["logits"], atol=TOLERANCE)


def test_a_distillation_token_without_head_is_a_register(golden, tmp_path):
    arrays = {
        name.replace("cls_classifier", "classifier"): array
        for name, array in golden("hf_deit").checkpoint().items()
        if not name.startswith("distillation_classifier")
    }
    safetensors_numpy.save_file(arrays, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(golden("hf_deit").config))
    config = build_arguments(open_checkpoint(tmp_path)).config
    assert (config.classifier, config.num_registers) == ("token", 1)


@pytest.mark.parametrize("file", ["keras_2.h5", "keras_3.weights.h5"])
def test_vit_keras_files_give_their_logits(file, golden, loaded):
    expected = golden("vit_keras").load()
    path = golden("vit_keras").folder / file
    model = loaded_non_square(path, loaded)
    np.testing.assert_allclose(model(expected["images"]), expected["logits"], atol=TOLERANCE)


def loaded_non_square(path, loaded):
    """A model of 2x4 patches, which a file without the grid does not show."""
    with pytest.raises(ValueError, match="image size .* must be given"):
        loaded(path, num_heads=2)
    config = keras_vit.ViTConfig(8, 16, 2, 32, 2, gelu="exact", representation_size=8)
    model = keras_vit.build(config, input_shape=(16, 32, 3), classes=3, classifier_activation=None)
    keras_vit.load_checkpoint(model, path)
    return model


def test_a_keras_file_of_keras_hub_gives_its_logits(golden, loaded):
    expected = golden("keras_hub").load()
    model = loaded(golden("keras_hub").folder / "classifier.keras")
    np.testing.assert_allclose(model(expected["images"]), expected["logits"], atol=TOLERANCE)
    assert model.get_layer("encoder_block_0").norm_epsilon == 1e-5


def test_one_headed_deit_of_keras_hub_gives_its_logits(golden, loaded):
    expected = golden("keras_hub").load("deit.npz")
    model = loaded(golden("keras_hub").folder / "deit.keras")
    np.testing.assert_allclose(model(expected["images"]), expected["logits"], atol=TOLERANCE)
    assert model.get_layer("registers").num_registers == 1
    assert model.get_layer("encoder_block_0").norm_epsilon == 1e-5


def test_other_backbones_of_keras_hub_are_refused_by_name(preset):
    config = json.loads((preset / "config.json").read_text())
    config |= {"class_name": "DINOV2Backbone", "registered_name": "keras_hub>DINOV2Backbone"}
    (preset / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        ValueError, match="must be one of ViTIm.*Hugging Face.* with DINOV2Backbone"
    ):
        open_checkpoint(preset)


def test_a_preset_of_keras_hub_is_read_from_both_its_files(preset, golden, loaded):
    expected = golden("keras_hub").load()
    model = loaded(preset)
    np.testing.assert_allclose(model(expected["images"]), expected["logits"], atol=TOLERANCE)


def test_keras_hub_files_without_names_mean_the_same(preset, golden, loaded):
    """Keras keeps the layers' names since 2025."""
    (preset / "task.weights.h5").unlink()
    (preset / "task.json").unlink()
    named = open_checkpoint(preset).arrays
    with h5py.File(preset / "model.weights.h5", "a") as file:
        file.visititems(lambda name, group: group.attrs.pop("name", None))
    nameless = open_checkpoint(preset)
    assert len(named) > 30
    assert set(nameless.arrays) == set(named)
    values = read_values(named[name] for name in nameless.arrays)
    for value, other in zip(read_values(nameless.arrays.values()), values, strict=True):
        np.testing.assert_array_equal(value, other)
    assert build_arguments(nameless).config.depth == 2


def test_a_mean_with_the_class_token_is_refused(preset, loaded):
    task = json.loads((preset / "task.json").read_text())
    task["config"]["pooling"] = "gap"
    (preset / "task.json").write_text(json.dumps(task))
    with pytest.raises(ValueError, match="pooling='gap', use_class_token=True"):
        loaded(preset)


def test_weights_in_parts_are_put_together(golden, tmp_path, model_of):
    arrays = golden("hf_vit").checkpoint()
    parts: dict = {"model-00001-of-00002.safetensors": {}, "model-00002-of-00002.safetensors": {}}
    index = {}
    for number, (name, array) in enumerate(arrays.items()):
        part = sorted(parts)[number % 2]
        parts[part][name], index[name] = array, part
    for part, content in parts.items():
        safetensors_numpy.save_file(content, tmp_path / part)
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": index}))
    (tmp_path / "config.json").write_text(json.dumps(golden("hf_vit").config))
    expected, model = golden("hf_vit").load(), model_of("hf_vit")
    keras_vit.load_checkpoint(model, tmp_path)
    np.testing.assert_allclose(model(expected["images"]), expected["logits"], atol=TOLERANCE)

    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ValueError, match="must be whole.*without model-00002"):
        open_checkpoint(tmp_path)
    shutil.copy(tmp_path / "model-00001-of-00002.safetensors", tmp_path / "again.safetensors")
    path.write_text(json.dumps({"weight_map": {"a": "again.safetensors", **index}}))
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(
        (tmp_path / "again.safetensors").read_bytes()
    )
    with pytest.raises(ValueError, match="hold every array once"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "a/b", "", 3, ".."])
def test_an_index_leads_nowhere_else(name, tmp_path):
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(
        ValueError, match="must name the files beside it|must be whole|must lie in its folder"
    ):
        open_checkpoint(tmp_path)


def test_activations_that_no_model_here_has_are_refused(golden, state_dict):
    path = state_dict("hf_deit")
    config = {**golden("hf_deit").config, "hidden_act": "silu"}
    (path.parent / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="hidden_act must be one of .*'silu'"):
        open_checkpoint(path)
