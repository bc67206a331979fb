"""Weights of other code bases: golden files give the answers of their libraries."""

import json
import pathlib
import re
import warnings

import h5py
import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.code_bases.hugging_face import written_model
from keras_vit.checkpoints.code_bases.layouts import Checkpoint
from keras_vit.checkpoints.code_bases.official import OFFICIAL
from keras_vit.checkpoints.code_bases.timm import TIMM
from keras_vit.checkpoints.file_descriptions import of_file
from keras_vit.checkpoints.formats import read_values, write_npz
from keras_vit.checkpoints.save import note_of, stored_arrays
from keras_vit.description import Description, Labels
from keras_vit.export import convert
from keras_vit.export.conversion import read
from keras_vit.models.outputs import array_of
from keras_vit.opening import open_model

safetensors_numpy = pytest.importorskip("safetensors.numpy")

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
# The models of the two golden folders with a model for each feature.
MODELS = {
    f"{folder}: {name}": model
    for folder in ("hugging_face", "timm_features")
    for name, model in json.loads((GOLDEN / folder / "models.json").read_text()).items()
}
# The golden folders with one model, and what a file there does not show.
BARE = {"num_heads": 3, "gelu": "exact"}
SINGLE = {
    "hf_vit": {},
    "hf_deit": {},
    "timm_vit": BARE,
    "timm_deit": BARE,
    "torchvision_vit": {"num_heads": 3},
}
HUB_FILES = {"classifier.keras": "expected.npz", "vit_0_29.keras": "vit_0_29.npz"}
PLAIN = "timm_features: no biases of queries, keys and values"
DINOV2 = "hugging_face: DINOv2"


def _arrays(name, golden):
    if name in SINGLE:
        return golden(name).checkpoint()
    rng = np.random.RandomState(MODELS[name]["seed"])
    return {
        row["name"]: np.asarray(
            row["mean"] + row["std"] * rng.standard_normal(row["shape"]), "float32"
        )
        for row in MODELS[name]["arrays"]
    }


@pytest.fixture
def write(golden, tmp_path):
    """Returns a function that writes a golden model as its library does, with changes.

    `config` False leaves `config.json` out; `arrays` are more arrays, or a function of all.
    """

    def write(name, *, config=True, arrays=None, **changes):
        folder = tmp_path / "theirs"
        folder.mkdir(exist_ok=True)
        found = _arrays(name, golden)
        found = arrays(found) if callable(arrays) else {**found, **(arrays or {})}
        found = {key: np.ascontiguousarray(value) for key, value in found.items()}
        safetensors_numpy.save_file(found, folder / "model.safetensors")
        (folder / "config.json").unlink(missing_ok=True)
        known = MODELS[name]["config"] if name in MODELS else {}
        if name.startswith("hf"):
            known = golden(name).config
        if config and (known or changes):
            (folder / "config.json").write_text(json.dumps({**known, **changes}))
        return folder

    return write


def _expected(name, golden):
    """The images, and the answers of the library."""
    if name in HUB_FILES:
        known = golden("keras_hub").load(HUB_FILES[name])
    elif name in SINGLE:
        known = golden(name).load()
    else:
        folder, _, model = name.partition(": ")
        with np.load(GOLDEN / folder / "expected.npz") as arrays:
            return arrays["images"], arrays[model]
    return known["images"], known["logits"]


def _check(found, images, expected):
    """Compares features, or logits up to what softmax forgets, of what `read` found."""
    opened, _ = found
    answers = array_of(opened.model()(images)).astype("float64")
    if opened.description.labels.names is not None:
        answers, expected = (
            logits - logits.mean(axis=1, keepdims=True) for logits in (np.log(answers), expected)
        )
    # float32, depth 2.
    np.testing.assert_allclose(answers, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", [*sorted(MODELS), *SINGLE, *HUB_FILES])
def test_a_golden_file_gives_the_answers_of_its_library(name, golden, write):
    path = golden("keras_hub").folder / name if name in HUB_FILES else write(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found = read(path, **SINGLE.get(name, {}))
    _check(found, *_expected(name, golden))


def test_a_preset_of_keras_hub_is_read_from_both_its_files(preset, golden):
    _check(read(preset), *_expected("classifier.keras", golden))


@pytest.mark.parametrize("file", ["keras_2.h5", "keras_3.weights.h5"])
def test_vit_keras_files_give_their_logits(file, golden):
    path, expected = golden("vit_keras").folder / file, golden("vit_keras").load()
    with pytest.raises(ValueError, match="image size .*given"):  # 2x4 patches.
        open_model(path, num_heads=2)
    config = keras_vit.ViTConfig(8, 16, 2, 32, 2, gelu="exact", representation_size=8)
    model = keras_vit.build(config, input_shape=(16, 32, 3), classes=3, classifier_activation=None)
    keras_vit.load_checkpoint(model, path)
    np.testing.assert_allclose(array_of(model(expected["images"])), expected["logits"], atol=1e-4)


# Other spellings of names


NEWER = {
    "encoder.layer.": "layers.",
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
}
PUBLISHED = {".mlp.0.": ".mlp.linear_1.", ".mlp.3.": ".mlp.linear_2."}


@pytest.mark.parametrize(("name", "spelling"), [("hf_vit", NEWER), ("torchvision_vit", PUBLISHED)])
def test_other_spellings_mean_the_same(name, spelling, golden, write):
    def renamed(arrays):
        for old, new in spelling.items():
            arrays = {key.replace(old, new): array for key, array in arrays.items()}
        assert any(new in key for key in arrays for new in spelling.values())
        return arrays

    path = write(name, arrays=renamed)
    _check(read(path, **SINGLE[name]), *_expected(name, golden))


def test_keras_hub_files_without_names_mean_the_same(preset):
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
    assert of_file(nameless).config.depth == 2


def _compiled_blocks(name):
    """The name after torch.compile of each block within Lightning's module."""
    return "model." + re.sub(r"(blocks\.\d+\.|layers?\.\w+\.)", r"\1_orig_mod.", name)


def _beside_a_head(name):
    return f"model.{name}" if re.match("head|classifier|cls_cl|dist", name) else f"model.net.{name}"


@pytest.mark.parametrize(
    "wrap", ["model._orig_mod.module.{}", _compiled_blocks, _beside_a_head, "vit.{}"]
)
@pytest.mark.parametrize("name", ["hf_deit", "timm_deit", "torchvision_vit", "vit_token"])
def test_prefixes_of_training_are_taken_off_and_noted(name, wrap, golden, tmp_path):
    wrap = wrap.format if isinstance(wrap, str) else wrap
    plain = golden(name).checkpoint()
    if name.startswith("hf"):
        (tmp_path / "config.json").write_text(json.dumps(golden(name).config))
    safetensors_numpy.save_file(plain, tmp_path / "plain.safetensors")
    wrapped = {wrap(key): array for key, array in plain.items()}
    safetensors_numpy.save_file(wrapped, tmp_path / "wrapped.safetensors")
    expected, found = (open_checkpoint(tmp_path / f"{n}.safetensors") for n in ("plain", "wrapped"))
    assert expected.notes == ()
    assert found.notes == ("prefixes of training were taken off the names of the arrays",)
    assert (found.layout, found.fields) == (expected.layout, expected.fields)
    assert found.arrays.keys() == expected.arrays.keys()
    values = read_values(found.arrays[key] for key in expected.arrays)
    for one, other in zip(values, read_values(expected.arrays.values()), strict=True):
        np.testing.assert_array_equal(one, other)


# What files and their config.json state


@pytest.mark.parametrize("model_type", ["vit", "vit_mae", "vit_msn", "ijepa"])
def test_what_a_config_leaves_out_is_the_default_of_transformers(model_type, golden, write):
    folder = write("hf_vit")
    config = {**golden("hf_vit").config, "model_type": model_type, "num_attention_heads": 6}
    config.pop("layer_norm_eps", None)
    (folder / "config.json").write_text(json.dumps(config))
    found = of_file(open_checkpoint(folder)).config
    assert (found.num_heads, found.norm_epsilon) == (6, 1e-6 if model_type == "vit_msn" else 1e-12)


def test_what_a_bare_file_does_not_show_is_asked_for(golden, write):
    folder = write(PLAIN, config=False)
    given = {"num_heads": 4, "gelu": "exact", "image_size": (16, 24)}
    unknown = r"\(num_heads, --num-heads\) .*\(gelu, --gelu\); GELU is exact in timm"
    with pytest.raises(ValueError, match=f"attention heads {unknown}"):
        open_model(folder, image_size=(16, 24))
    opened = open_model(folder, **given)
    note = next(note for note in opened.description.notes if "were assumed" in note)
    assert "positions are resized: 1e-06, 'token' and 'bicubic' were assumed" in note
    assert opened.description.origins["gelu"] == "--gelu"
    _check(read(folder, num_heads=4, gelu="exact", image_size=(16, 24)), *_expected(PLAIN, golden))


@pytest.mark.parametrize(
    ("fact", "given", "stated"), [("num_heads", 3, 4), ("gelu", "tanh", "exact")]
)
def test_a_fact_that_a_folder_states_is_not_replaced(fact, given, stated, write):
    with pytest.raises(ValueError, match=f"{fact}={given!r} .*has {stated!r}"):
        open_model(write(PLAIN), **{fact: given})
    found = open_model(write(PLAIN), **{fact: stated}).description
    assert (getattr(found.config, fact), found.origins["gelu"]) == (stated, "config.json")


def test_a_folder_of_hugging_face_knows_its_grid_and_epsilon(model_of, write):
    folder = write("hf_vit", image_size=[16, 64], layer_norm_eps=1e-5)
    model = model_of("hf_vit", gelu="tanh")
    warning = "gelu='exact', norm_epsilon=1e-05; .*gelu='tanh', norm_epsilon=1e-12"
    with pytest.warns(UserWarning, match=warning):
        report = keras_vit.load_checkpoint(model, folder)
    assert report.resized == {"position_embedding/embedding": ((2, 8), (4, 4))}


def _timm_checkpoint(config, width=768):
    """A checkpoint of timm whose patch embedding has this width."""
    found = Checkpoint(pathlib.Path("folder"), TIMM, {}, config=config)
    vars(found)["shapes"] = {"patch_embedding": (16, 16, 3, width)}  # Cached.
    return found


@pytest.mark.parametrize(
    ("name", "width", "facts"),
    [
        ("vit_base_patch16_gap_224", 768, {"num_heads": 16, "gelu": "exact"}),
        ("vit_base_patch16_224", 768, {"num_heads": 12, "norm_epsilon": 1e-6}),
        ("vit_giant_patch14_dinov2", 1536, {"num_heads": 24}),
        ("vit_giantopt_patch16_siglip_gap_256", 1536, {"num_heads": 16, "gelu": "tanh"}),
        ("vit_so400m_patch14_siglip_384", 1152, {"num_heads": 16, "gelu": "exact"}),
        ("vit_huge_patch14_clip_quickgelu_224", 1280, {"gelu": "quick", "norm_epsilon": 1e-5}),
    ],
)
def test_the_name_in_timm_gives_heads_gelu_and_epsilon(name, width, facts):
    fields, _ = TIMM.stated(_timm_checkpoint({"architecture": name}, width))
    assert facts.items() <= fields.items()


@pytest.mark.parametrize(
    ("layout", "labels", "names", "note"),
    [
        ("timm_vit", ["ox", "ox", "cow"], ("ox (0)", "ox (1)", "cow"), "(2): ox (0), ox (1)"),
        ("hf_vit", ["ox", "ox", "ox (0)"], None, "have the same name"),
        ("hf_vit", {"0": "a", "1": "b", "2": "c"}, ("a", "b", "c"), ""),
        ("hf_vit", {"0": "a", "1": "b"}, None, "names in config.json: 2, outputs of the head: 3"),
        ("timm_vit", None, None, ""),
    ],
)
def test_class_names_are_kept_or_the_reason_is_given(layout, labels, names, note, write):
    head = "classifier" if layout == "hf_vit" else "head"
    config = {"architecture": "vit_small_patch8", "label_names": labels}
    if layout == "hf_vit":
        config = {"model_type": "vit", "id2label": labels}

    def three(arrays):
        shorter = (f"{head}.{kind}" for kind in ("weight", "bias"))
        return {**arrays, **{name: arrays[name][:3] for name in shorter}}

    given = {} if layout == "hf_vit" else {"num_heads": 3}
    opened = open_model(write(layout, arrays=three, **config), **given)
    assert opened.description.labels.names == names
    assert any(note in text for text in (*opened.description.notes, ""))
    if note and names is None:
        with pytest.raises(ValueError, match=re.escape(note)):
            opened.classifier()


# Refusals


def _zeros(*names):
    return {name: np.zeros(24, "float32") for name in names}


def _halved(arrays):
    return {**arrays, "blocks.1.attn.qkv.weight": arrays["blocks.1.attn.qkv.weight"][:36]}


REFUSED = {
    "BEiT": ("hf_vit", {"model_type": "beit"}, "vit, deit, .*'beit'"),
    "an activation": ("hf_deit", {"hidden_act": "silu"}, "hidden_act .*'silu'"),
    "a gate": (
        "hugging_face: DINOv3 with SwiGLU", {"hidden_act": "gelu"}, "one of .*'gated gelu'",
    ),
    "DINOv3 alone": (
        "hugging_face: DINOv3", {"config": False}, "DINOv3 .*config.json",
    ),
    "DINOv2 alone": (DINOV2, {"config": False}, "DINOv2 and DINOv3 .*config.json"),
    "no known names": (
        PLAIN, {"arrays": lambda arrays: _zeros("model.embed_tokens.weight", "x")},
        "official, BiT, .*timm, torchvision, .*embed_tokens",
    ),
    "another head": (
        "hugging_face: SigLIP", {"arrays": _zeros("classifier.bias")},
        "not in the model .*classifier.bias",
    ),
    "half of an array": (PLAIN, {"arrays": _halved}, r"qkv.weight: file \(36, 24\), model \(72"),
    "two poolings": (
        PLAIN, {"global_pool": "avg", "model_args": {"global_pool": "token"}},
        "global_pool .*='avg' and 'token'",
    ),
    "no pooling": (PLAIN, {"global_pool": ""}, "global_pool must"),
    "timm's activation": (PLAIN, {"model_args": {"act_layer": "silu"}}, "act_layer must"),
    "another norm": (PLAIN, {"model_args": {"norm_layer": "rmsnorm"}}, "norm_layer='layernorm'"),
    "padding": (PLAIN, {"model_args": {"dynamic_img_pad": True}}, "dynamic_img_pad=False"),
    "a changed width": (PLAIN, {"model_args": {"embed_dim": 24}}, "given: attention heads"),
    **{
        name: (PLAIN, {"architecture": name}, f"{part}.*{name}")
        for name, part in (
            ("eva02_tiny_patch14_224", "rotary positions that count patches"),
            ("vit_pe_core_tiny_patch16_384", "rotary positions that count patches"),
            ("vit_small_patch16_rope_mixed_224", "rotary positions that count patches"),
            ("vit_relpos_small_patch16_224", "relative position biases"),
            ("beitv2_base_patch16_224", "relative position biases"),
            ("beit3_base_patch16_224", "norms after or within the sublayers"),
            ("vit_base_patch16_xp_224", "parallel sublayers"),
            ("vit_dwee_patch16_reg1_gap_256", "differential attention"),
            ("vit_small_resnet26d_224", "timm's stems of convolutions"),
            ("vit_base_r50_s16_384", "timm's stems of convolutions"),
            ("convnext_tiny", "timm's stems of convolutions"),
            ("vit_base_mci_224", "timm's stems of convolutions"),
            ("aimv2_large_patch14_224", "RMSNorm"),
            ("naflexvit_base_patch16_siglip", "grids that differ by image"),
            ("samvit_base_patch16", "attention in windows"),
            ("vit_7b_patch16_dinov3", "model of billions of numbers"),
            ("resnetv2_50x1_bit", "such model"),
        )
    },
    "the 7B of DINOv3": (
        "hugging_face: DINOv3", {"hidden_size": 4096}, "below 4096.* 27 GB .*width=4096",
    ),
    "a ConvNeXt of DINOv3": (
        "hf_vit", {"model_type": "dinov3_convnext"}, "one of .*'dinov3_convnext'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_model_here_computes_is_refused_by_its_name(case, write):
    name, changes, message = REFUSED[case]
    folder = write(name, **changes)
    with pytest.raises(ValueError, match=message):
        open_model(folder).model()


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("config", {"class_name": "DeiTBackbone", "registered_name": "keras_hub>DeiTBackbone"},
         "ViTIm.*with DeiTBackbone"),
        ("task", {"config": {"pooling": "gap"}}, "pooling='gap', use_class_token=True"),
    ],
)  # fmt: skip
def test_other_models_of_keras_hub_are_refused(file, changes, message, preset):
    path = preset / f"{file}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ValueError, match=message):
        open_checkpoint(preset)


# Writing


@pytest.mark.parametrize("name", ["quick GELU", "ReLU"])
def test_there_and_back_all_arrays_are_equal(name, golden, write, tmp_path):
    name, again = f"hugging_face: {name}", tmp_path / "again"
    convert(write(name), again, to="huggingface", normalization="half")
    arrays = _arrays(name, golden)
    written = safetensors_numpy.load_file(again / "model.safetensors")
    assert set(written) == set(arrays)
    for key, array in arrays.items():
        np.testing.assert_array_equal(written[key], array, err_msg=key)
    described = json.loads((again / "config.json").read_text())
    theirs = MODELS[name]["config"]
    shared = described.keys() & theirs.keys() - {"id2label", "image_size", "intermediate_size"}
    assert {"model_type", "hidden_act", "layer_norm_eps", "num_hidden_layers"} <= shared
    assert {key: described[key] for key in shared} == {key: theirs[key] for key in shared}


TOWERS = "hugging_face: SigLIP with a head", "hugging_face: CLIP with a head"
TOWER_PROCESSORS = {
    "Siglip": {"size": {"height": 16, "width": 16}, "resample": 3},
    "CLIP": {
        "size": {"shortest_edge": 16},
        "resample": 3,
        "do_center_crop": True,
        "crop_size": {"height": 16, "width": 16},
    },
}


@pytest.mark.parametrize("name", TOWERS)
def test_a_classifier_on_a_tower_keeps_its_labels(name, write):
    names = {"0": "ox", "1": "cow", "2": "ass"}
    folder = write(name, id2label=names, problem_type="multi_label_classification")
    labels = open_model(folder).description.labels
    assert (labels.names, labels.is_multilabel) == (tuple(names.values()), True)


@pytest.mark.parametrize(("name", "processor"), zip(TOWERS, TOWER_PROCESSORS, strict=True))
def test_a_classifier_on_a_tower_has_the_images_of_its_processor(name, processor, write):
    folder = write(name)
    content = {"image_processor_type": f"{processor}ImageProcessor", "image_mean": [0.5] * 3}
    content |= {"image_std": [0.5] * 3, **TOWER_PROCESSORS[processor]}
    (folder / "preprocessor_config.json").write_text(json.dumps(content))
    preprocessing = open_model(folder).description.preprocessing
    assert preprocessing.value_range == (-1.0, 1.0)
    assert preprocessing.resize_size == (16 if processor == "CLIP" else None)


def test_a_siglip_with_a_head_is_written_back_without_its_attention_pooling(
    golden, write, tmp_path
):
    name, again = TOWERS[0], tmp_path / "again"
    convert(write(name), again, to="huggingface", normalization="half")
    written = safetensors_numpy.load_file(again / "model.safetensors")
    arrays = {
        key: array
        for key, array in _arrays(name, golden).items()
        if not key.startswith("vision_model.head.")
    }
    assert set(written) == set(arrays)
    for key, array in arrays.items():
        np.testing.assert_array_equal(written[key], array, err_msg=key)
    _check(read(again), *_expected(name, golden))
    described = json.loads((again / "config.json").read_text())
    assert described["vision_config"]["vision_use_head"] is False


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CLIP", "DeiT .*embedding_norm=True"),
        ("CLIP with a head", "DeiT .*unread_class_token=True"),
        ("DINOv2", "DeiT .*layer_scale=True"),
        ("DINOv3", "DeiT .*rotary=100.0"),
    ],
)
def test_what_hugging_face_does_not_have_is_refused(name, message, write, tmp_path):
    source, half = write(f"hugging_face: {name}"), {"normalization": "half"}
    with pytest.raises(ValueError, match=message):
        convert(source, tmp_path / "out", to="huggingface", **half)


@pytest.mark.parametrize(("size", "names"), [((16, 24, 3), ("ox", "cow")), ((16, 16, 3), None)])
def test_a_mean_for_rectangles_or_without_a_head_is_not_written(size, names):
    config = keras_vit.ViTConfig(8, 24, 2, 48, 4, classifier="gap")
    description = Description(input_shape=size, labels=Labels(names))
    with pytest.raises(ValueError, match="SigLIP .*classifier='gap'"):
        written_model(config, description)


def test_naflex_is_one_size_and_says_it(write):
    folder = write("hugging_face: SigLIP 2 NaFlex")
    processor = {"image_processor_type": "Siglip2ImageProcessor", "max_num_patches": 4}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    description = open_model(folder).description
    assert description.image_size == description.preprocessing.image_size == (16, 16)
    assert description.config.position_resize == "bilinear_antialias"
    assert "of one size, 16x16, or of --image-size" in description.notes[0]
    model = keras_vit.build(weights=folder, include_top=False, input_shape=(8, 24, 3))
    assert model.get_layer("position_embedding").grid == (1, 3)


@pytest.mark.parametrize("name", ["SigLIP", "I-JEPA", "SigLIP with a head"])
def test_the_official_form_gives_the_same_answers(name, golden, write, tmp_path):
    convert(write(f"hugging_face: {name}"), tmp_path / "out.npz")
    _check(read(tmp_path / "out.npz"), *_expected(f"hugging_face: {name}", golden))


@pytest.mark.parametrize(
    ("name", "changes", "stated"),
    [
        ("hf_vit", {"num_hidden_layers": 1}, "depth=1 in the config, 2"),
        ("hf_vit", {"hidden_size": 96}, "width=96 in the config, 48"),
        ("hf_vit", {"intermediate_size": 48}, "mlp_dim=48 in the config, 96"),
        ("hf_vit", {"patch_size": 4}, r"patch_size=\(4, 4\) in the config, \(8, 8\)"),
        ("timm_vit", {"model_args": {"depth": 3}}, "depth=3 in the config, 2"),
        ("timm_vit", {"model_args": {"embed_dim": 64}}, "width=64 in the config, 48"),
        ("timm_vit", {"num_features": 64}, "width=64 in the config, 48"),
        ("timm_vit", {"model_args": {"mlp_ratio": 4.0}}, "mlp_dim=192 in the config, 96"),
    ],
)
def test_a_config_that_contradicts_its_arrays_is_refused(name, changes, stated, write):
    known = {"architecture": "vit_tiny_patch16_224"} if name == "timm_vit" else {}
    with pytest.raises(ValueError, match=f"arrays.*{stated}"):
        open_checkpoint(write(name, **known, **changes))


@pytest.mark.parametrize("file", ["model.npz", "model.weights.h5"])
def test_our_note_that_contradicts_its_arrays_is_refused(file, tmp_path):
    model = keras_vit.build(
        keras_vit.ViTConfig(8, 16, 2, 32, 2), input_shape=(16, 16, 3), classes=2
    )
    layer = model.get_layer("description")
    layer.content = {**layer.content, "config": {**layer.content["config"], "depth": 1}}
    if file.endswith(".h5"):
        model.save_weights(tmp_path / file)
    else:
        write_npz(tmp_path / file, stored_arrays(model, OFFICIAL), note_of(model))
    with pytest.raises(ValueError, match="depth=1 in the config, 2"):
        open_checkpoint(tmp_path / file)


OLD_CONFIG = {
    "architecture": "vit_tiny_patch16_224",
    "num_classes": 5,
    "input_size": [3, 32, 32],
    "mean": [0.5, 0.5, 0.5],
    "std": [0.5, 0.5, 0.5],
    "crop_pct": 0.9,
    "labels": ["a", "b", "c", "d", "e"],
}


def test_the_images_of_timms_first_configs_are_at_their_top(write, golden):
    classes = golden("timm_vit").load()["logits"].shape[1]
    names = [str(number) for number in range(classes)]
    folder = write("timm_vit", **{**OLD_CONFIG, "labels": names, "num_classes": classes})
    known = open_model(folder, num_heads=3).description
    assert known.labels.names == tuple(names)
    assert known.preprocessing.value_range == (-1.0, 1.0)
    assert known.preprocessing.resize_size == 35  # floor(32 / 0.9), as timm computes it.


def test_a_folder_of_a_timm_wrapper_is_a_model_of_timm(write, golden):
    """As `TimmWrapperForImageClassification.save_pretrained` of transformers writes it."""
    classes = golden("timm_vit").load()["logits"].shape[1]
    names = [f"class {number}" for number in range(classes)]
    folder = write(
        "timm_vit",
        arrays=lambda found: {f"timm_model.{name}": array for name, array in found.items()},
        model_type="timm_wrapper",
        problem_type="multi_label_classification",
        label_names=names,
        **{key: OLD_CONFIG[key] for key in ("architecture",)},
        pretrained_cfg={"input_size": [3, 32, 32], "mean": [0.5] * 3, "std": [0.5] * 3},
    )
    known = open_model(folder, num_heads=3).description
    assert known.labels.names == tuple(names)
    assert known.labels.is_multilabel


@pytest.mark.parametrize(
    ("name", "gelu"),
    [
        ("gelu", "exact"),
        ("gelu_python", "exact"),
        ("gelu_new", "tanh"),
        ("gelu_fast", "tanh"),
        ("gelu_pytorch_tanh", "tanh"),
        ("quick_gelu", "quick"),
    ],
)
def test_an_activation_is_the_one_of_its_name_in_transformers(name, gelu, write):
    assert open_model(write("hf_vit", hidden_act=name)).description.config.gelu == gelu


@pytest.mark.parametrize("name", ["gelu", "gelu_python", "gelu_new", "gelu_fast", "quick_gelu"])
@pytest.mark.slow
def test_an_activation_has_the_values_of_transformers(name, write):
    torch = pytest.importorskip("torch")
    activations = pytest.importorskip("transformers.activations")
    gelu = open_model(write("hf_vit", hidden_act=name)).description.config.gelu
    numbers = np.linspace(-6, 6, 101, dtype="float32")
    expected = activations.ACT2FN[name](torch.from_numpy(numbers)).numpy()
    ours = {
        "exact": lambda x: keras.ops.gelu(x, approximate=False),
        "tanh": lambda x: keras.ops.gelu(x, approximate=True),
        "quick": lambda x: x * keras.ops.sigmoid(1.702 * x),
    }
    np.testing.assert_allclose(array_of(ours[gelu](numbers)), expected, atol=1e-6)  # float32


def test_a_clip_whose_config_has_no_epsilon_has_that_of_its_library(write):
    folder = write("hugging_face: CLIP's image tower")
    config = json.loads((folder / "config.json").read_text())
    assert config.pop("layer_norm_eps") == 1e-5
    (folder / "config.json").write_text(json.dumps(config))
    assert open_model(folder).description.config.norm_epsilon == 1e-5
