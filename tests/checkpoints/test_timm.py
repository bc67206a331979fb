"""timm's models by the folders that it puts on the Hub."""

import dataclasses
import json
import pathlib
import warnings

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.checkpoint_description import describe_checkpoint, shown_by
from keras_vit.checkpoints.code_bases.files_beside import WeightFiles
from keras_vit.checkpoints.code_bases.timm import REFUSALS, TIMM
from keras_vit.checkpoints.load import load_opened
from keras_vit.checkpoints.match import LoadOptions

safetensors_numpy = pytest.importorskip("safetensors.numpy")

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "timm_features"
MODELS = json.loads((GOLDEN / "models.json").read_text(encoding="utf-8"))
EXPECTED = np.load(GOLDEN / "expected.npz")


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes a golden model as timm does, with changes of its config."""

    def write(feature, config=True, arrays=None, **changes):
        model = MODELS[feature]
        rng = np.random.RandomState(model["seed"])
        values = {
            row["name"]: (row["mean"] + row["std"] * rng.standard_normal(row["shape"])).astype(
                "float32"
            )
            for row in model["arrays"]
        }
        more = {name: np.asarray(value, "float32") for name, value in (arrays or {}).items()}
        safetensors_numpy.save_file({**values, **more}, tmp_path / "model.safetensors")
        if config:
            (tmp_path / "config.json").write_text(json.dumps({**model["config"], **changes}))
        return tmp_path

    return write


def built(folder, **facts):
    """The model of a folder, with its weights."""
    checkpoint = open_checkpoint(folder)
    arguments = shown_by(checkpoint, **facts)
    top = {"include_top": False, "pooling": arguments.config.pooling}
    if arguments.classes:
        top = {"classes": arguments.classes, "classifier_activation": None}
    shape = (*arguments.image_size, arguments.channels)
    model = keras_vit.build(arguments.config, input_shape=shape, **top)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        load_opened(checkpoint, model, LoadOptions(position_grid=arguments.position_grid))
    return model


@pytest.mark.parametrize("feature", MODELS)
def test_a_folder_alone_gives_timms_answers(feature, write):
    expected = EXPECTED[feature]
    answers = np.asarray(built(write(feature))(EXPECTED["images"]))
    np.testing.assert_allclose(answers, expected, atol=1e-5 * np.abs(expected).max())


PLAIN = "no biases of queries, keys and values"


def test_what_a_bare_file_does_not_show_is_asked_for(write):
    folder = write(PLAIN, config=False)
    unknown = r"\(num_heads, --num-heads\) and the form of GELU \(gelu, --gelu\)"
    with pytest.raises(ValueError, match=f"does not show must be given: attention heads {unknown}"):
        shown_by(open_checkpoint(folder), image_size=(16, 24))
    with pytest.raises(ValueError, match="must be given: the form of GELU"):
        shown_by(open_checkpoint(folder), num_heads=4, image_size=(16, 24))
    given = {"num_heads": 4, "gelu": "exact", "image_size": (16, 24)}
    (note,) = shown_by(open_checkpoint(folder), **given).notes
    assert "epsilon nor what the head reads: 1e-06 and 'token' were assumed" in note
    model = built(folder, **given)
    answers, expected = np.asarray(model(EXPECTED["images"])), EXPECTED[PLAIN]
    np.testing.assert_allclose(answers, expected, atol=1e-5 * np.abs(expected).max())


def test_facts_that_a_folder_states_are_not_replaced(write):
    checkpoint = open_checkpoint(write(PLAIN))
    with pytest.raises(ValueError, match="num_heads must match the file, 4.*num_heads=3"):
        shown_by(checkpoint, num_heads=3)
    with pytest.raises(ValueError, match="gelu must match the file, 'exact'.*gelu='tanh'"):
        shown_by(checkpoint, gelu="tanh")
    assert shown_by(checkpoint, num_heads=4, gelu="exact").config.num_heads == 4


@pytest.mark.parametrize("stated", [True, False])
def test_the_origin_of_the_gelu_is_who_stated_it(stated, write):
    folder = write(PLAIN, config=stated)
    given = {"num_heads": 4, "gelu": "exact", "image_size": (16, 24)}
    described = describe_checkpoint(open_checkpoint(folder), folder, **given)
    assert (described.origins["gelu"] == "--gelu") is not stated


@pytest.mark.parametrize(
    ("name", "width", "facts"),
    [
        ("vit_base_patch16_gap_224", 768, {"num_heads": 16, "gelu": "exact"}),
        ("vit_base_patch16_224", 768, {"num_heads": 12, "norm_epsilon": 1e-6}),
        ("vit_giant_patch14_dinov2", 1536, {"num_heads": 24}),
        ("vit_giantopt_patch16_siglip_gap_256", 1536, {"num_heads": 16, "gelu": "tanh"}),
        ("vit_so400m_patch14_siglip_384", 1152, {"num_heads": 16, "gelu": "exact"}),
        ("vit_7b_patch16_dinov3", 4096, {"num_heads": 32, "norm_epsilon": 1e-5}),
        ("vit_huge_patch14_clip_quickgelu_224", 1280, {"gelu": "quick", "norm_epsilon": 1e-5}),
    ],
)
def test_the_name_of_the_architecture_gives_heads_gelu_and_epsilon(name, width, facts):
    shapes = {"patch_embedding": (16, 16, 3, width)}
    fields, _ = TIMM.stated(WeightFiles(pathlib.Path("file"), {"architecture": name}, shapes))
    assert facts.items() <= fields.items()


@pytest.mark.parametrize(
    ("name", "shapes", "size", "grid"),
    [
        ("vit_base_patch16_224", {"patch_embedding": (16, 16, 3, 768)}, [3, 224, 160], (14, 10)),
        ("vit_base_patch16_224", {"patch_embedding": (16, 16, 3, 768)}, None, None),
        # The patches of a hybrid are pixels of its feature maps, not of the image.
        (
            "vit_base_r50_s16_224",
            {"root_conv": (7, 7, 3, 64), "patch_embedding": (1, 1, 1024, 768)},
            [3, 224, 224],
            None,
        ),
    ],
)
def test_the_grid_follows_from_the_image_size_of_a_model_without_a_stem(name, shapes, size, grid):
    config = {"architecture": name, "pretrained_cfg": {"input_size": size} if size else {}}
    fields, stated = TIMM.stated(WeightFiles(pathlib.Path("folder"), config, shapes))
    assert fields["num_heads"] == 12
    assert stated.position_grid == grid


def test_a_changed_width_without_heads_asks_for_them(write):
    arguments = {**MODELS[PLAIN]["config"]["model_args"]}
    del arguments["num_heads"]
    with pytest.raises(ValueError, match=r"must be given: attention heads \(num_heads"):
        shown_by(open_checkpoint(write(PLAIN, model_args=arguments)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"global_pool": "avgmax", "model_args": {}},
            "global_pool must be one of .*global_pool='avgmax'",
        ),
        (
            {"global_pool": "avg", "model_args": {"global_pool": "token"}},
            "global_pool must be one of .*='avg' and 'token'",
        ),
        ({"model_args": {"act_layer": "silu"}}, "act_layer must be one of .*act_layer='silu'"),
        ({"model_args": {"pool_include_prefix": True}}, "must have pool_include_prefix=False"),
        ({"model_args": {"norm_layer": "rmsnorm"}}, "must have norm_layer='layernorm'"),
        ({"architecture": "eva_giant_patch14_224"}, "has the attention of BEiT and EVA, which no"),
        ({"architecture": "aimv2_large_patch14_224"}, "aimv2_large_patch14_224 has RMSNorm, which"),
        ({"architecture": "cait_s24_224"}, "cait_s24_224 has talking heads and class attention"),
        ({"architecture": "vit_relpos_small_patch16_224"}, "has relative position biases"),
        ({"architecture": "vit_base_patch16_rpn_224"}, "has normalisation behind attention"),
        ({"architecture": "vit_small_patch16_rope_mixed_224"}, "positions of RoPE-ViT"),
        ({"architecture": "vit_pe_core_tiny_patch16_384"}, "Perception Encoder"),
        ({"global_pool": ""}, "with a head must pool its tokens. Received: global_pool=''"),
        ({"model_args": {"global_pool": ""}}, "with a head must pool its tokens"),
        ({"model_args": {"rope_temperature": 50}}, "rotary positions of its name.*rope_temperatur"),
    ],
)
def test_what_no_model_here_computes_is_refused_by_its_name(changes, message, write):
    with pytest.raises(ValueError, match=message):
        open_checkpoint(write(PLAIN, **changes))


@pytest.mark.parametrize(
    ("array", "feature"),
    [
        ("blocks.0.attn.lambda_q1", "differential attention"),
        ("blocks.0.attn.rel_pos.mlp.fc1.weight", "relative position biases"),
        ("rope.freqs", "learned rotary positions"),
        ("patch_embed.norm.weight", r"normalisation in the patch embedding \(embed_norm_layer"),
        ("blocks.0.attns.0.norm.weight", "parallel attentions in a block"),
        ("blocks.0.attn.q_proj.weight", "grouped queries, or normalisation in the MLP"),
    ],
)
def test_an_array_of_another_architecture_is_refused_by_its_feature(array, feature, write):
    folder = write(PLAIN, arrays={array: np.zeros(24, "float32")})
    with pytest.raises(ValueError, match=f"The timm model has {feature}.*no model here has"):
        open_checkpoint(folder)


def test_rotary_positions_follow_from_the_name(write):
    assert shown_by(open_checkpoint(write("DINOv3"))).config.rotary == 100.0


def test_rotary_positions_need_the_config(write):
    for feature in ("DINOv3", "DINOv3 with SwiGLU and biases"):
        folder = write(feature)
        (folder / "config.json").unlink()
        with pytest.raises(ValueError, match="timm's Eva must have their config.json beside them"):
            open_checkpoint(folder)
    with pytest.raises(ValueError, match="Eva must have their config.json"):
        open_checkpoint(write("DINOv3", architecture="vit_small_patch16_224"))


def test_a_model_with_other_rotary_positions_than_the_file_is_warned_of(write):
    folder = write("DINOv3")
    config = shown_by(open_checkpoint(folder)).config
    other = dataclasses.replace(config, rotary=50.0)
    model = keras_vit.build(other, input_shape=(16, 24, 3), include_top=False)
    with pytest.warns(UserWarning, match=r"was trained with rotary=100.0"):
        keras_vit.load_checkpoint(model, folder)


def test_a_part_of_an_array_that_is_missing_is_named(write):
    folder = write("DINOv3 with SwiGLU and biases", arrays={"blocks.0.mlp.fc1_x.bias": [0.0] * 3})
    with pytest.raises(ValueError, match=r"The parts .*fc1_g.bias, .*fc1_x.bias of an array must"):
        open_checkpoint(folder)


def test_a_counter_of_batchnorm_is_not_the_reason(write):
    norm = "patch_embed.backbone.bn1"
    arrays = {
        f"{norm}.num_batches_tracked": np.zeros((), "int64"),
        f"{norm}.running_mean": np.zeros(3, "float32"),
    }
    with pytest.raises(ValueError, match="The timm model has a stem with BatchNorm, which no"):
        open_checkpoint(write(PLAIN, arrays=arrays))


def test_the_page_lists_what_is_refused():
    page = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8")
    section = page.split("\n## timm\n")[1].split("\n## ")[0]
    features = {feature for _, feature in (*TIMM.refusals, *REFUSALS)}
    missing = [feature for feature in features if feature not in section]
    assert not missing, f"Run python docs/timm_models.py: {missing}"
