"""torchvision, DeiT, KerasHub and vit-keras: files that they made, or of their names."""

import json
import re
import shutil
import zipfile

import h5py
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.checkpoint_description import shown_by
from keras_vit.checkpoints.formats import read_values
from keras_vit.checkpoints.load import load_opened
from keras_vit.models.opening import open_model

safetensors_numpy = pytest.importorskip("safetensors.numpy")

# float32, depth 2.
TOLERANCE = 1e-4


@pytest.fixture
def loaded():
    """Returns a function from a file to its model, with logits."""

    def load(path, num_heads=None, gelu=None):
        source = open_checkpoint(path)
        inferred = shown_by(source, num_heads, gelu=gelu)
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


def _compiled_blocks(name):
    """The name after torch.compile of each block within Lightning's module."""
    return "model." + re.sub(r"(blocks\.\d+\.|layers?\.\w+\.)", r"\1_orig_mod.", name)


def _beside_a_head(name):
    return f"model.{name}" if re.match("head|classifier|cls_cl|dist", name) else f"model.net.{name}"


@pytest.mark.parametrize(
    ("wrap", "taken"),
    [
        ("_orig_mod.{}", "_orig_mod."),
        ("module.{}", "module."),
        ("model.{}", "model."),
        ("net.{}", "net."),
        ("model._orig_mod.module.{}", "model._orig_mod.module."),
        ("module._fsdp_wrapped_module.backbone.{}", "module._fsdp_wrapped_module.backbone."),
        (_compiled_blocks, "_orig_mod. and model."),
        (_beside_a_head, "model. and model.net."),
    ],
)
@pytest.mark.parametrize(
    "name", ["hf_deit", "timm_deit", "torchvision_vit", "vit_token", "bit_r14x1"]
)
def test_prefixes_of_training_are_taken_off_and_named(name, wrap, taken, golden, tmp_path):
    wrap = wrap.format if isinstance(wrap, str) else wrap
    plain = golden(name).checkpoint()
    if name.startswith("hf"):
        (tmp_path / "config.json").write_text(json.dumps(golden(name).config))
    safetensors_numpy.save_file(plain, tmp_path / "plain.safetensors")
    wrapped = {wrap(key): array for key, array in plain.items()}
    safetensors_numpy.save_file(wrapped, tmp_path / "wrapped.safetensors")
    expected, found = (open_checkpoint(tmp_path / f"{n}.safetensors") for n in ("plain", "wrapped"))
    assert expected.notes == ()
    assert found.notes[0].endswith(" taken off the names of the arrays")
    assert set(found.notes[0].split(" was taken")[0].split(" and ")) <= set(taken.split(" and "))
    assert (found.layout, found.fields) == (expected.layout, expected.fields)
    assert found.arrays.keys() == expected.arrays.keys()
    values = read_values(found.arrays[key] for key in expected.arrays)
    for one, other in zip(values, read_values(expected.arrays.values()), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_report_names_the_prefix_that_was_taken_off(golden, state_dict, loaded):
    expected = golden("timm_deit").load()
    path = state_dict("timm_deit", "model._orig_mod.module.{}".format)
    model = loaded(path, num_heads=3, gelu="exact")
    np.testing.assert_allclose(model(expected["images"]), expected["logits"], atol=TOLERANCE)
    report = keras_vit.load_checkpoint(model, path)
    assert "model._orig_mod.module. was taken off the names of the arrays" in str(report)


def test_an_adapter_must_be_merged_first(golden, state_dict):
    path = state_dict("timm_deit", lambda name: f"base_model.model.{name}")
    arrays = safetensors_numpy.load_file(path)
    arrays["base_model.model.blocks.0.attn.qkv.lora_A.weight"] = np.zeros((2, 48), "float32")
    safetensors_numpy.save_file(arrays, path)
    with pytest.raises(ValueError, match="An adapter .* merge it first"):
        open_checkpoint(path)
    path.rename(path.with_name("adapter_model.safetensors"))
    with pytest.raises(ValueError, match="An adapter .* merge it first"):
        open_checkpoint(path.parent)


@pytest.mark.parametrize(
    ("labels", "names", "note"),
    [
        (["ox", "ox", "ox (0)"], ("ox (0) (0)", "ox (1)", "ox (0) (2)"), "got their numbers: ox"),
        ({"0": "a", "1": "b", "2": "c"}, ("a", "b", "c"), None),
        (
            {"0": "a", "1": "b"},
            None,
            "class names in config.json: 2, outputs of the head: 3; the names",
        ),
        (
            ["a", "b", "c", "d"],
            None,
            "class names in config.json: 4, outputs of the head: 3; the names",
        ),
        ({"1": "a", "2": "b", "3": "c"}, None, "has no name for class 0; the names were left out"),
        (None, None, None),
    ],
)
@pytest.mark.parametrize("layout", ["hf_vit", "timm_vit"])
def test_class_names_are_kept_or_the_reason_is_given(layout, labels, names, note, golden, tmp_path):
    arrays = golden(layout).checkpoint()
    head = "classifier" if layout == "hf_vit" else "head"
    arrays |= {f"{head}.{kind}": arrays[f"{head}.{kind}"][:3] for kind in ("weight", "bias")}
    safetensors_numpy.save_file(arrays, tmp_path / "model.safetensors")
    config = {"architecture": "vit_small_patch8", "label_names": labels}
    if layout == "hf_vit":
        config = {**golden(layout).config, "model_type": "vit", "id2label": labels}
    elif isinstance(labels, dict):
        pytest.skip("timm's names are a list")
    (tmp_path / "config.json").write_text(json.dumps(config))
    opened = open_model(tmp_path, num_heads=None if layout == "hf_vit" else 3)
    assert opened.description.labels.names == names
    notes = [text for text in opened.description.notes if "class" in text and "config" in text]
    notes += [text for text in opened.description.notes if "classes of the same" in text]
    assert len(notes) == (note is not None)
    assert note is None or note in notes[0]
    if note and names is None:
        with pytest.raises(ValueError, match=re.escape(note)):
            opened.classifier()


@pytest.mark.parametrize("layout", ["hf_vit", "timm_vit", "torchvision_vit"])
def test_a_head_of_one_class_is_refused(layout, golden, tmp_path):
    head = {"hf_vit": "classifier", "timm_vit": "head", "torchvision_vit": "heads.head"}[layout]
    arrays = golden(layout).checkpoint()
    arrays |= {f"{head}.{kind}": arrays[f"{head}.{kind}"][:1] for kind in ("weight", "bias")}
    safetensors_numpy.save_file(arrays, tmp_path / "model.safetensors")
    config = {"architecture": "vit_small_patch8", "num_classes": 1} if layout == "timm_vit" else {}
    (tmp_path / "config.json").write_text(json.dumps(config))
    opened = open_model(tmp_path, num_heads=3, gelu="exact")
    with pytest.raises(ValueError, match="two classes or more: .* over one is 1 .* and 1 o"):
        opened.to_model()


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
    config = shown_by(open_checkpoint(tmp_path)).config
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


def test_the_block_names_of_keras_hub_0_29_are_read(golden, loaded):
    folder, expected = golden("keras_hub").folder, golden("keras_hub").load("vit_0_29.npz")
    with zipfile.ZipFile(folder / "vit_0_29.keras") as archive:
        assert b"tranformer_block_1" in archive.read("model.weights.h5")
    model = loaded(folder / "vit_0_29.keras")
    np.testing.assert_allclose(model(expected["images"]), expected["logits"], atol=TOLERANCE)


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
    assert shown_by(nameless).config.depth == 2


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
