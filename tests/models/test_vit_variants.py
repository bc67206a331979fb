"""Features of Vision Transformers outside of the paper, against a forward pass in NumPy."""

import dataclasses
import warnings

import keras
import numpy as np
import pytest
from scipy.special import erf, expit, softmax

import keras_vit
from by_hand import array
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.file_descriptions import of_file
from keras_vit.configs.recognition import config_of

SMALL = keras_vit.ViTConfig(4, 8, 2, 12, 2)
SHAPE = (8, 13, 3)  # A grid of 2 x 3, and a rest that is cut off.
VARIANTS = {
    "CLIP": {"embedding_norm": True, "gelu": "quick", "norm_epsilon": 1e-5},
    "relu": {"gelu": "relu"},
    "DeiT III": {"layer_scale": True, "gelu": "exact"},
    "DINOv2": {
        "layer_scale": True,
        "gelu": "swiglu",
        "num_registers": 3,
        "classifier": "token+gap",
    },
    "MAE": {"classifier": "gap", "unread_class_token": True, "final_norm": "pooled"},
    "gap with registers": {"classifier": "gap", "num_registers": 2, "final_norm": "pooled"},
    "pre_logits": {"representation_size": 7, "gelu": "exact"},
    "map with registers": {"classifier": "map", "num_registers": 3, "representation_size": 7},
    "max": {"classifier": "max", "unread_class_token": True, "num_registers": 1},
    "max without a class token": {"classifier": "max"},
    "no last norm": {"final_norm": "none"},
    "token normalised after pooling": {"final_norm": "pooled"},
    "map beside a class token": {
        "classifier": "map",
        "unread_class_token": True,
        "map_num_heads": 4,
        "map_mlp_dim": 20,
    },
    "ViT-22B": {"qk_norm": True},
    "DINOv3": {
        "position_embedding": "none",
        "rotary": 100.0,
        "num_heads": 1,
        "num_registers": 2,
        "layer_scale": True,
        "norm_epsilon": 1e-5,
    },
    "distilled": {"classifier": "token+distillation", "final_norm": "pooled"},
}


def images():
    return np.random.default_rng(1).normal(size=(2, *SHAPE)).astype("float32")


def built(variant, **arguments):
    config = dataclasses.replace(SMALL, **VARIANTS[variant])
    top = {"classes": 5, "classifier_activation": None}
    model = keras_vit.build(config, **{"input_shape": SHAPE, **top, **arguments})
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(0.5 * rng.normal(size=weight.shape))
    return model


NONLINEARITIES = {
    "tanh": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "exact": lambda x: x / 2 * (1 + erf(x / np.sqrt(2))),
    "quick": lambda x: x * expit(1.702 * x),
    "relu": lambda x: np.maximum(x, 0),
    "swiglu": lambda x: np.multiply(
        x[..., : x.shape[-1] // 2] * expit(x[..., : x.shape[-1] // 2]), x[..., x.shape[-1] // 2 :]
    ),
}


def forward(config, weights, x):
    """The output of the head in float64, from weights by path and images."""
    w = {path: np.asarray(value, "float64") for path, value in weights.items()}

    def norm(x, name):
        if f"{name}/gamma" not in w:
            return x
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(
            x.var(-1, keepdims=True) + config.norm_epsilon
        )
        return x * w[f"{name}/gamma"] + w[f"{name}/beta"]

    def dense(x, name):
        return x @ w[f"{name}/kernel"] + w[f"{name}/bias"]

    def heads(x, name):
        return np.einsum("bnd,dkh->bknh", x, w[f"{name}/kernel"]) + w[f"{name}/bias"][:, None]

    def turned(x):
        """Patches turned by their row and column, pair by pair as complex numbers."""
        prefix, units = config.num_prefix_tokens, x.shape[-1]
        places = zip(np.divmod(np.arange(rows * columns), columns), (rows, columns), strict=True)
        axes = [2 * np.pi * (2 * (place + 0.5) / side - 1) for place, side in places]
        frequencies = config.rotary ** (-4 * np.arange(units // 4) / units)
        angles = np.concatenate([np.outer(axis, frequencies) for axis in axes], axis=1)
        pairs = x[..., : units // 2] + 1j * x[..., units // 2 :]
        pairs[:, :, prefix:] *= np.exp(1j * angles)
        return np.concatenate([pairs.real, pairs.imag], -1)

    def attend(q, k, v, name):
        logits = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
        probabilities = np.exp(logits - logits.max(-1, keepdims=True))
        probabilities /= probabilities.sum(-1, keepdims=True)
        return (
            np.einsum("bknh,khd->bnd", probabilities @ v, w[f"{name}/out/kernel"])
            + (w[f"{name}/out/bias"])
        )

    def mlp(x, name):
        return dense(NONLINEARITIES[config.gelu](dense(x, f"{name}/dense_1")), f"{name}/dense_2")

    size, batch = config.patch_size, len(x)
    rows, columns = x.shape[1] // size, x.shape[2] // size
    x = x[:, : rows * size, : columns * size].reshape(batch, rows, size, columns, size, -1)
    patches = np.einsum("bricjd,ijdw->brcw", x, w["patch_embedding/kernel"])
    patches = (patches + w["patch_embedding/bias"]).reshape(batch, rows * columns, -1)
    no_positions = np.zeros((1, len(config.class_tokens) + rows * columns, config.width))
    table = w.get("position_embedding/embedding", no_positions)
    prefix = [
        w[f"{name}/token"] + table[:, index : index + 1]
        for index, name in enumerate(config.class_tokens)
    ]
    if config.num_registers:
        prefix.append(w["registers/tokens"])
    prefix = [np.repeat(token, batch, axis=0) for token in prefix]
    z = np.concatenate([*prefix, patches + table[:, len(config.class_tokens) :]], axis=1)
    z = norm(z, "embedding_norm")
    for block in range(config.depth):
        name = f"encoder_block_{block}"
        y = norm(z, f"{name}/norm_1")
        q, k, v = (heads(y, f"{name}/attention/{part}") for part in ("query", "key", "value"))
        q, k = norm(q, f"{name}/attention/query_norm"), norm(k, f"{name}/attention/key_norm")
        if config.rotary:
            q, k = turned(q), turned(k)
        y = attend(q, k, v, f"{name}/attention")
        z = z + y * w.get(f"{name}/layer_scale_1/gamma", 1)
        y = mlp(norm(z, f"{name}/norm_2"), f"{name}/mlp")
        z = z + y * w.get(f"{name}/layer_scale_2/gamma", 1)
    z = norm(z, "encoder_norm")
    patches = z[:, config.num_prefix_tokens :]
    if config.classifier == "token+distillation":
        one, other = norm(z[:, 0], "pooled_norm"), norm(z[:, 1], "pooled_norm")
        return (dense(one, "class_token_head") + dense(other, "distillation_token_head")) / 2
    if config.classifier == "map":
        query = heads(w["map_head/probe"], "map_head/query")
        key, value = (heads(patches, f"map_head/{part}") for part in ("key", "value"))
        y = attend(query, key, value, "map_head")
        pooled = (y + mlp(norm(y, "map_head/norm"), "map_head/mlp"))[:, 0]
    else:
        pooled = {
            "token": z[:, 0],
            "gap": patches.mean(1),
            "max": patches.max(1),
            "token+gap": np.concatenate([z[:, 0], patches.mean(1)], axis=1),
        }[config.classifier]
    pooled = norm(pooled, "pooled_norm")
    if config.representation_size:
        pooled = np.tanh(dense(pooled, "pre_logits"))
    return dense(pooled, "predictions")


# Together these have every layer.
ANY_BACKEND = ("DINOv2", "DINOv3")


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(name, marks=[pytest.mark.any_backend_slow] * (name not in ANY_BACKEND))
        for name in VARIANTS
    ],
)
def test_it_computes_what_numpy_does_also_from_a_file(variant, tmp_path):
    model = built(variant)
    config = dataclasses.replace(SMALL, **VARIANTS[variant])
    weights = {weight.path: array(weight) for weight in model.weights}
    expected = forward(config, weights, images())
    logits = array(model(images()))
    np.testing.assert_allclose(logits, expected, atol=2e-5 * np.abs(expected).max())
    assert np.abs(expected[0] - expected[1]).max() > 1e-2  # The images matter.
    if variant != "distilled":
        head = model.get_layer("predictions")
        assert head.input is model.get_layer("representation").output

    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert config_of(again) == config_of(model) == config
    np.testing.assert_array_equal(array(again(images())), logits)


@pytest.mark.parametrize(
    ("variant", "pooling"),
    [
        ("MAE", "avg"),
        ("max", "max"),
        ("token normalised after pooling", "token"),
        ("no last norm", "token"),
        ("map beside a class token", "map"),
    ],
)
def test_a_pooling_without_the_head_gives_the_same_representation(variant, pooling):
    whole = built(variant)
    body = built(variant, include_top=False, pooling=pooling)
    weights = {weight.path: weight for weight in whole.weights}
    for weight in body.weights:
        weight.assign(weights[weight.path])
    features = keras.Model(whole.input, whole.get_layer("representation").output)
    np.testing.assert_allclose(array(body(images())), array(features(images())), atol=1e-5)


@pytest.mark.parametrize("variant", ["CLIP", "DINOv2", "MAE", "max", "no last norm", "DINOv3"])
def test_the_official_layout_takes_only_what_it_can_give_back(variant, tmp_path):
    refused = "layout must (match|have a name)"
    with pytest.raises(ValueError, match=f"The official {refused}"):
        keras_vit.save_checkpoint(built(variant), tmp_path / "model.npz")
    assert not (tmp_path / "model.npz").exists()


@pytest.mark.parametrize("suffix", [".weights.h5", ".keras"])
def test_a_file_keeps_its_rotary_positions(suffix, tmp_path):
    model, path = built("DINOv3"), tmp_path / f"model{suffix}"
    model.save_weights(path) if suffix == ".weights.h5" else model.save(path)
    config = dataclasses.replace(SMALL, **VARIANTS["DINOv3"])
    found = of_file(open_checkpoint(path), gelu="tanh").config
    assert found.rotary == config.rotary
    plain = dataclasses.replace(config, rotary=None)
    with pytest.warns(UserWarning, match="rotary=.*rotary=None"):
        keras_vit.build(plain, input_shape=SHAPE, classes=5, weights=path)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*trained with rotary")
        same = keras_vit.build(config, input_shape=SHAPE, classes=5, weights=path)
    np.testing.assert_allclose(
        array(same(images())), softmax(array(model(images())), axis=1), atol=1e-6
    )
    other = dataclasses.replace(config, rotary=50.0)
    with pytest.raises(ValueError, match=r"positions .*\(rotary"):
        keras_vit.build(other, input_shape=SHAPE, classes=5).load_weights(path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rotary": -1.0}, "rotary .*: -1.0"),
        ({"rotary": 100.0, "num_heads": 4}, "4 units.*num_heads=4"),
        ({"rotary": 100.0, "position_embedding": "relative"}, "alone .*'relative'"),
        ({"position_embedding": "none", "position_embedding_at": "every_block"}, "'every_block'"),
        (
            {"position_embedding": "relative", "position_embedding_at": "every_block_shared"},
            "nothing .*'every_block_shared'",
        ),
        ({"position_embedding": "learned_2d", "width": 9, "num_heads": 3}, "must be even .*=9"),
        ({"stochastic_depth_rate": 1.0}, "stochastic_depth_rate=1.0"),
        ({"map_num_heads": 4}, 'need classifier="map"'),
        ({"unread_class_token": True}, "that pools"),
        ({"num_registers": -1}, "num_registers=-1"),
        (
            {"classifier": "token+distillation", "representation_size": 7},
            "representation layer.*size=7",
        ),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **fields)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: keras_vit.configs.AxialConfig(4, 8, 2, 12, 2, rotary=100.0), "see lines"),
        (
            lambda: keras_vit.configs.AxialConfig(4, 8, 2, 12, 2, stochastic_depth_rate=0.1),
            "see lines",
        ),
        (
            lambda: keras_vit.configs.AxialResNetConfig((1,), num_heads=7),
            "root's width",
        ),
        (lambda: keras_vit.configs.BiTConfig(()), "needs a block"),
        (lambda: keras_vit.configs.ResNetStem((3, 0, 9)), "num_blocks"),
        (
            lambda: keras_vit.configs.ResNetStem((3, 4, 9), width_factor=0.3),
            "32 groups",
        ),
        (
            lambda: keras_vit.configs.PoolingStem((64,), width=20),
            "8 groups.*width=20",
        ),
        (lambda: keras_vit.build(SMALL, include_top=False, pooling="map"), '"map" needs'),
    ],
)
def test_other_configs_refuse_what_they_do_not_have(make, message):
    with pytest.raises(ValueError, match=message):
        make()
