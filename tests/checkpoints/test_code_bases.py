"""Weights of other code bases: golden files give the answers of their libraries."""

import dataclasses
import itertools
import json
import pathlib
import re
import warnings

import h5py
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.checkpoint_description import describe_checkpoint
from keras_vit.checkpoints.code_bases.layouts import Checkpoint
from keras_vit.checkpoints.code_bases.timm import TIMM, TIMM_BIT
from keras_vit.checkpoints.formats import read_values
from keras_vit.checkpoints.save import stored_arrays
from keras_vit.export import convert
from keras_vit.export.conversion import read
from keras_vit.models.opening import open_model

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
POSITIONS_OF = {TIMM: {"position_resize": "bicubic"}, TIMM_BIT: {}}
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


def _check(converted, images, expected):
    """Compares features, or logits up to what softmax forgets."""
    answers = np.asarray(converted.model(images), "float64")
    if converted.class_names is not None:
        answers, expected = (
            logits - logits.mean(axis=1, keepdims=True) for logits in (np.log(answers), expected)
        )
    # float32, depth 2.
    np.testing.assert_allclose(answers, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", [*MODELS, *SINGLE, *HUB_FILES])
def test_a_golden_file_gives_the_answers_of_its_library(name, golden, write):
    path = golden("keras_hub").folder / name if name in HUB_FILES else write(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        converted = read(path, **SINGLE.get(name, {}))
    _check(converted, *_expected(name, golden))


def test_a_preset_of_keras_hub_is_read_from_both_its_files(preset, golden):
    _check(read(preset), *_expected("classifier.keras", golden))


def test_weights_in_parts_are_one_checkpoint(golden, write):
    folder = write("hf_vit")
    arrays = safetensors_numpy.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    for part in (0, 1):
        held = {name: arrays[name] for name in sorted(arrays)[part::2]}
        safetensors_numpy.save_file(held, folder / f"model-0000{part + 1}-of-00002.safetensors")
    _check(read(folder), *_expected("hf_vit", golden))
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ValueError, match="or all its parts"):
        open_checkpoint(folder)


@pytest.mark.parametrize("file", ["keras_2.h5", "keras_3.weights.h5"])
def test_vit_keras_files_give_their_logits(file, golden):
    path, expected = golden("vit_keras").folder / file, golden("vit_keras").load()
    with pytest.raises(ValueError, match="image size .* must be given"):  # 2x4 patches.
        open_model(path, num_heads=2)
    config = keras_vit.ViTConfig(8, 16, 2, 32, 2, gelu="exact", representation_size=8)
    model = keras_vit.build(config, input_shape=(16, 32, 3), classes=3, classifier_activation=None)
    keras_vit.load_checkpoint(model, path)
    np.testing.assert_allclose(model(expected["images"]), expected["logits"], atol=1e-4)


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
    assert describe_checkpoint(nameless).config.depth == 2


def _compiled_blocks(name):
    """The name after torch.compile of each block within Lightning's module."""
    return "model." + re.sub(r"(blocks\.\d+\.|layers?\.\w+\.)", r"\1_orig_mod.", name)


def _beside_a_head(name):
    return f"model.{name}" if re.match("head|classifier|cls_cl|dist", name) else f"model.net.{name}"


@pytest.mark.parametrize(
    ("wrap", "taken"),
    [
        ("module.{}", "module."),
        ("model._orig_mod.module.{}", "model._orig_mod.module."),
        ("module._fsdp_wrapped_module.backbone.{}", "module._fsdp_wrapped_module.backbone."),
        (_compiled_blocks, "_orig_mod. and model."),
        (_beside_a_head, "model. and model.net."),
    ],
)
@pytest.mark.parametrize("name", ["hf_deit", "timm_deit", "torchvision_vit", "vit_token"])
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


# What files and their config.json state


FIELDS = {
    DINOV2: {"classifier": "token+gap", "layer_scale": True, "norm_epsilon": 1e-6},
    f"{DINOV2} with registers": {"classifier": "token+gap", "num_registers": 3},
    f"{DINOV2} with SwiGLU, no head": {"gelu": "swiglu", "mlp_dim": 32},
    "hugging_face: CLIP": {"embedding_norm": True, "gelu": "quick", "norm_epsilon": 1e-5},
    "hugging_face: SigLIP": {"classifier": "map", "gelu": "tanh", "norm_epsilon": 1e-6},
    "hugging_face: I-JEPA": {"classifier": "gap", "norm_epsilon": 1e-12},
    "hugging_face: DeiT, one head": {"classifier": "token", "num_registers": 1},
    "hugging_face: DINOv3": {"rotary": 100.0, "position_embedding": "none", "norm_epsilon": 1e-5},
    "hugging_face: DINOv3 with SwiGLU": {"rotary": 100.0, "gelu": "swiglu", "num_registers": 2},
}


@pytest.mark.parametrize("name", FIELDS)
def test_features_are_fields_of_the_config(name, write):
    config = describe_checkpoint(open_checkpoint(write(name))).config
    assert {field: getattr(config, field) for field in FIELDS[name]} == FIELDS[name]


@pytest.mark.parametrize("model_type", ["vit", "vit_mae", "vit_msn", "ijepa"])
def test_what_a_config_leaves_out_is_the_default_of_transformers(model_type, golden, write):
    folder = write("hf_vit")
    config = {**golden("hf_vit").config, "model_type": model_type, "num_attention_heads": 6}
    config.pop("layer_norm_eps", None)
    (folder / "config.json").write_text(json.dumps(config))
    found = describe_checkpoint(open_checkpoint(folder)).config
    assert (found.num_heads, found.norm_epsilon) == (6, 1e-6 if model_type == "vit_msn" else 1e-12)


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("hugging_face: CLIP", "the text tower was left out"),
        (
            "hugging_face: CLIP's image tower with projection",
            "visual_projection.* was left out",
        ),
        ("hugging_face: ViTMAE", "the decoder was left out"),
        (DINOV2, "the mask token was left out"),
    ],
)
def test_what_is_left_out_is_noted(name, left_out, write):
    assert any(re.search(left_out, note) for note in open_checkpoint(write(name)).notes)


def test_what_a_bare_file_does_not_show_is_asked_for(golden, write):
    folder = write(PLAIN, config=False)
    given = {"num_heads": 4, "gelu": "exact", "source_size": (16, 24)}
    unknown = r"\(num_heads, --num-heads\) and the form of GELU \(gelu, --gelu\)"
    with pytest.raises(ValueError, match=f"does not show must be given: attention heads {unknown}"):
        open_model(folder, source_size=(16, 24))
    opened = open_model(folder, **given)
    note = next(note for note in opened.description.notes if "were assumed" in note)
    assert "positions are resized: 1e-06, 'token' and 'bicubic' were assumed" in note
    assert opened.description.origins["gelu"] == "--gelu"
    images, expected = _expected(PLAIN, golden)
    answers = np.log(np.asarray(opened.to_model()[0](images), "float64"))
    expected = expected - expected.mean(axis=1, keepdims=True)
    answers -= answers.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(answers, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("name", "epsilon", "rule"),
    [
        (DINOV2, 1e-6, "bicubic_torch"),
        (f"{DINOV2} with registers", 1e-6, "bicubic"),
        ("hugging_face: DeiT, one head", 1e-12, "bicubic_torch"),
        ("hf_vit", 1e-12, "bicubic_torch"),
    ],
)
def test_a_bare_file_of_hugging_face_has_the_epsilon_of_its_names(name, epsilon, rule, write):
    bare = open_checkpoint(write(name, config=False))
    found = describe_checkpoint(bare, num_heads=3 if name == "hf_vit" else 2, gelu="exact")
    assert (found.config.norm_epsilon, found.config.position_resize) == (epsilon, rule)
    assert any(f"{epsilon}, " in note and f"{rule!r} were assumed" in note for note in found.notes)


def test_facts_that_a_folder_states_are_not_replaced(write):
    checkpoint = open_checkpoint(write(PLAIN))
    for wrong, message in (
        ({"num_heads": 3}, "num_heads must match the file, 4.*num_heads=3"),
        ({"gelu": "tanh"}, "gelu must match the file, 'exact'.*gelu='tanh'"),
    ):
        with pytest.raises(ValueError, match=message):
            describe_checkpoint(checkpoint, **wrong)
    found = describe_checkpoint(checkpoint, num_heads=4, gelu="exact")
    assert (found.config.num_heads, found.origins["gelu"]) == (4, "config.json")


def test_a_folder_of_hugging_face_knows_its_grid_and_epsilon(model_of, write):
    folder = write("hf_vit", image_size=[16, 64], layer_norm_eps=1e-5)
    model = model_of("hf_vit", gelu="tanh")
    warning = "gelu='exact', norm_epsilon=1e-05; the model has gelu='tanh', norm_epsilon=1e-12"
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
        ("vit_7b_patch16_dinov3", 4096, {"num_heads": 32, "rotary": 100.0, "norm_epsilon": 1e-5}),
        ("vit_huge_patch14_clip_quickgelu_224", 1280, {"gelu": "quick", "norm_epsilon": 1e-5}),
    ],
)
def test_the_name_in_timm_gives_heads_gelu_and_epsilon(name, width, facts):
    fields, _ = TIMM.stated(_timm_checkpoint({"architecture": name}, width))
    assert facts.items() <= fields.items()


@pytest.mark.parametrize(
    ("layout", "name", "config", "array"),
    [
        (
            TIMM,
            "vit_base_r50_s16_224",
            keras_vit.ViTConfig(
                1, 64, 1, 32, 1, gelu="exact",
                resnet=keras_vit.ResNetStem((1, 2), 0.5, epsilon_in="variance"),
            ),
            "patch_embed.backbone.stages.1.blocks.0.downsample.norm.weight",
        ),
        (
            TIMM_BIT,
            "resnetv2_50x1_bit",
            keras_vit.BiTConfig((1, 2), 0.5),
            "stages.1.blocks.1.conv3.weight",
        ),
    ],
)  # fmt: skip
def test_hybrids_and_bit_of_timm_are_read(layout, name, config, array, tmp_path):
    model = keras_vit.build(config, input_shape=(32, 32, 3), classes=3)
    rng = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(weight + rng.normal(0, 0.1, weight.shape))
    arrays = {
        re.sub(r"(\d+)\.units\.(\d+)", lambda m: f"{int(m[1]) - 1}.blocks.{int(m[2]) - 1}", key): a
        for key, a in stored_arrays(model, layout).items()
    }
    assert array in arrays
    safetensors_numpy.save_file(arrays, tmp_path / "model.safetensors")
    described = {"architecture": name, "pretrained_cfg": {"input_size": [3, 32, 32]}}
    (tmp_path / "config.json").write_text(json.dumps(described))
    opened = open_model(tmp_path)
    assert opened.description.config == dataclasses.replace(config, **POSITIONS_OF[layout])
    assert opened.description.image_size == (32, 32)
    images = rng.normal(size=(2, 32, 32, 3)).astype("float32")
    np.testing.assert_allclose(opened.to_model()[0](images), model(images), atol=1e-5)
    with pytest.raises(ValueError, match="resnet=|BiT"):
        convert(tmp_path, tmp_path / "a.safetensors", to="timm")


@pytest.mark.parametrize(("size", "grid"), [([3, 224, 160], (14, 10)), (None, None)])
def test_the_grid_follows_from_the_image_size(size, grid):
    cfg = {"input_size": size} if size else {}
    config = {"architecture": "vit_base_patch16_224", "pretrained_cfg": cfg}
    assert TIMM.stated(_timm_checkpoint(config))[1].position_grid == grid


@pytest.mark.parametrize(
    ("labels", "names", "note"),
    [
        (["ox", "ox", "cow"], ("ox (0)", "ox (1)", "cow"), "got their numbers: ox (0), ox (1)"),
        (["ox", "ox", "ox (0)"], None, "have the same name; the names were left out"),
        ({"0": "a", "1": "b", "2": "c"}, ("a", "b", "c"), None),
        ({"0": "a", "1": "b"}, None, "class names in config.json: 2, outputs of the head: 3"),
        ({"1": "a", "2": "b", "3": "c"}, None, "the names were left out"),
        (None, None, None),
    ],
)
@pytest.mark.parametrize("layout", ["hf_vit", "timm_vit"])
def test_class_names_are_kept_or_the_reason_is_given(layout, labels, names, note, write):
    head = "classifier" if layout == "hf_vit" else "head"
    config = {"architecture": "vit_small_patch8", "label_names": labels}
    if layout == "hf_vit":
        config = {"model_type": "vit", "id2label": labels}
    elif isinstance(labels, dict):
        pytest.skip("timm's names are a list")

    def three(arrays):
        shorter = (f"{head}.{kind}" for kind in ("weight", "bias"))
        return {**arrays, **{name: arrays[name][:3] for name in shorter}}

    given = {} if layout == "hf_vit" else {"num_heads": 3}
    opened = open_model(write(layout, arrays=three, **config), **given)
    assert opened.description.labels.names == names
    assert [text for text in opened.description.notes if note and note in text] or note is None
    if note and names is None:
        with pytest.raises(ValueError, match=re.escape(note)):
            opened.classifier()


# Refusals


def _zeros(*names):
    return {name: np.zeros(24, "float32") for name in names}


def _halved(arrays):
    return {**arrays, "blocks.1.attn.qkv.weight": arrays["blocks.1.attn.qkv.weight"][:36]}


REFUSED = {
    "an unknown family": ("hf_vit", {"model_type": "llava"}, "must be one of vit, deit, .*'llava'"),
    "BEiT": ("hf_vit", {"model_type": "beit"}, "must be one of vit, deit, .*'beit'"),
    "an activation": ("hf_deit", {"hidden_act": "silu"}, "hidden_act must be one of .*'silu'"),
    "another gate": (
        "hugging_face: DINOv3 with SwiGLU", {"hidden_act": "gelu"}, "one of .*'gated gelu'",
    ),
    "DINOv3 alone": (
        "hugging_face: DINOv3", {"config": False}, "DINOv3 must have their config.json beside them",
    ),
    "timm's DINOv3 alone": (
        "timm_features: DINOv3", {"config": False}, "DINOv3 must have their config.json beside",
    ),
    "changed rotary positions": (
        "timm_features: DINOv3", {"model_args": {"rope_temperature": 50.0}}, "rope_temperature=50",
    ),
    "another head": (
        "hugging_face: SigLIP", {"arrays": _zeros("classifier.bias")},
        "in the file but not in the model .*classifier.bias",
    ),
    "another array": (
        PLAIN, {"arrays": _zeros("blocks.0.attn.lambda_q1")}, "not in the model .*lambda_q1",
    ),
    "half of an array": (PLAIN, {"arrays": _halved}, r"qkv.weight: file \(36, 24\), model \(72"),
    "an adapter": (
        PLAIN, {"arrays": _zeros("blocks.0.attn.qkv.lora_A.weight")}, "An adapter .* merge it fir",
    ),
    "two poolings": (
        PLAIN, {"global_pool": "avg", "model_args": {"global_pool": "token"}},
        "global_pool must be one of .*='avg' and 'token'",
    ),
    "no pooling": (PLAIN, {"global_pool": ""}, "global_pool must be one of"),
    "timm's activation": (PLAIN, {"model_args": {"act_layer": "silu"}}, "act_layer must be one of"),
    "another norm": (PLAIN, {"model_args": {"norm_layer": "rmsnorm"}}, "norm_layer='layernorm'"),
    "padding": (PLAIN, {"model_args": {"dynamic_img_pad": True}}, "dynamic_img_pad=False"),
    "a changed width": (PLAIN, {"model_args": {"embed_dim": 24}}, "must be given: attention heads"),
    **{
        name: (PLAIN, {"architecture": name}, f"must be a Vision Transformer.*Received: {name}")
        for name in (
            "eva_giant_patch14_224", "vit_relpos_small_patch16_224", "vit_small_resnet26d_224",
            "resnetv2_50", "vit_small_patch16_rope_mixed_224", "vit_pe_core_tiny_patch16_384",
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_model_here_computes_is_refused_by_its_name(case, write):
    name, changes, message = REFUSED[case]
    folder = write(name, **changes)
    with pytest.raises(ValueError, match=message):
        open_model(folder, source_size=None).to_model()


def test_names_of_no_layout_are_shown(tmp_path):
    names = ("model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight")
    arrays = {name: np.zeros((2, 2), "float32") for name in names}
    safetensors_numpy.save_file(arrays, tmp_path / "model.safetensors")
    known = "names of official, BiT, Hugging Face.*, timm.*, torchvision, .* or Keras.*embed_tokens"
    with pytest.raises(ValueError, match=known):
        open_checkpoint(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("config", {"class_name": "DINOV2Backbone", "registered_name": "keras_hub>DINOV2Backbone"},
         "must be one of ViTIm.*Hugging Face.* with DINOV2Backbone"),
        ("task", {"config": {"pooling": "gap"}}, "pooling='gap', use_class_token=True"),
    ],
)  # fmt: skip
def test_other_models_of_keras_hub_are_refused(file, changes, message, preset):
    path = preset / f"{file}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ValueError, match=message):
        open_checkpoint(preset)


@pytest.mark.parametrize("layout", ["hf_vit", "torchvision_vit"])
def test_a_head_of_one_class_is_refused(layout, write):
    head = {"hf_vit": "classifier", "torchvision_vit": "heads.head"}[layout]

    def one(arrays):
        shorter = (f"{head}.{kind}" for kind in ("weight", "bias"))
        return {**arrays, **{name: arrays[name][:1] for name in shorter}}

    opened = open_model(write(layout, arrays=one), **SINGLE[layout])
    with pytest.raises(ValueError, match="two classes or more: .* over one is 1 .* and 1 o"):
        opened.to_model()


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


@pytest.mark.parametrize(
    ("name", "to", "message"),
    [
        ("DINOv2", "out.safetensors", r"one token or pooling.*classifier='token\+gap'"),
        ("CLIP", "out", "must be a ViT or a DeiT .*embedding_norm=True"),
        ("DINOv2", "out", "must be a ViT or a DeiT .*layer_scale=True"),
        ("DINOv3", "out", "must be a ViT or a DeiT .*rotary=100.0"),
        ("DINOv3", "out.safetensors", "must have patches, positions at the input.*rotary=100.0"),
    ],
)
def test_what_other_forms_do_not_have_is_refused(name, to, message, write, tmp_path):
    form = "timm" if to.endswith(".safetensors") else "huggingface"
    with pytest.raises(ValueError, match=message):
        convert(write(f"hugging_face: {name}"), tmp_path / to, to=form, normalization="half")


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("CLIP", "out.safetensors"),
        ("DINOv2 with SwiGLU, no head", "out.safetensors"),
        *itertools.product(("SigLIP", "I-JEPA"), ("out.npz", "out.safetensors")),
    ],
)
def test_other_forms_give_the_same_answers(name, to, golden, write, tmp_path):
    notes = convert(write(f"hugging_face: {name}"), tmp_path / to)
    is_packed = any("mlp_layer=timm.layers.SwiGLUPacked" in note for note in notes)
    assert is_packed == ("SwiGLU" in name)
    _check(read(tmp_path / to), *_expected(f"hugging_face: {name}", golden))
