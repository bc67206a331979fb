"""Every spelling of the official names means the same weights."""

import re
import warnings

import numpy as np
import pytest

import keras_vit
from keras_vit.command_line import main
from keras_vit.export.conversion import read
from keras_vit.models.outputs import array_of


def _prefixed(prefix):
    return lambda arrays: {f"{prefix}{name}": array for name, array in arrays.items()}


def _linen(arrays):
    """Modules numbered by class, as Flax does by itself."""
    numbers = {"Attention_1": "Attention_0", "LayerNorm_2": "LayerNorm_1", "Block_3": "Block_0"}
    renamed = {}
    for name, array in arrays.items():
        for old, new in numbers.items():
            name = name.replace(old, new)
        renamed[name] = array
    return renamed


def _big_vision(arrays):
    """Positions are added before the class token is there, which has no row in the table."""
    arrays = _linen(arrays)
    table = arrays.pop("Transformer/posembed_input/pos_embedding")
    arrays["cls"] = arrays["cls"] + table[:, :1]
    arrays["pos_embedding"] = table[:, 1:]
    return _prefixed("params/")(arrays)


def _stacked(arrays):
    blocks: dict = {}
    whole = {}
    for name, array in _linen(arrays).items():
        match = re.match(r"Transformer/encoderblock_(\d+)/(.*)", name)
        if match:
            blocks.setdefault(f"Transformer/encoderblock/{match[2]}", {})[int(match[1])] = array
        else:
            whole[name] = array
    for name, parts in blocks.items():
        whole[name] = np.stack([parts[index] for index in sorted(parts)])
    return _prefixed("params/img/")(whole)


def _beside_optimizer_state(arrays):
    state = {f"opt/state/{name}/grad_ema": array for name, array in arrays.items()}
    return {**_prefixed("opt/target/")(arrays), **state}


def _without_ones(arrays):
    assert arrays["gn_root/scale"].shape == (1, 1, 1, 32)
    return {k: v.reshape(-1) if "/gn" in k or k[:2] == "gn" else v for k, v in arrays.items()}


def _counted(arrays):
    return {
        re.sub(r"(standardized_conv2d|group_norm)\b", rf"\g<1>_{index}", name): array
        for index, (name, array) in enumerate(arrays.items())
    }


VARIANTS = {
    "opt/target": _prefixed("opt/target/"),
    "params": _prefixed("params/"),
    "params/img": _prefixed("params/img/"),
    "linen": _linen,
    "big_vision": _big_vision,
    "stacked": _stacked,
    "optimizer state": _beside_optimizer_state,
    "float64": lambda arrays: {name: array.astype("float64") for name, array in arrays.items()},
    "without ones": _without_ones,
    "counted": _counted,
}
CASES = [
    *(("vit_token", variant) for variant in list(VARIANTS)[:-2]),
    ("hybrid_3_stages", "without ones"),
    ("bit_r14x1", "counted"),
]


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_official_files_in_every_spelling_give_the_official_logits(
    name, variant, golden, model_of, write_npz
):
    expected, model = golden(name).load(), model_of(name)
    path = write_npz(VARIANTS[variant](golden(name).checkpoint()))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        report = keras_vit.load_checkpoint(model, path)
    assert set(report.loaded) == {weight.path for weight in model.weights}
    # float32, depth 3 at most; the official code's logits.
    np.testing.assert_allclose(array_of(model(expected["images"])), expected["logits"], atol=1e-4)


@pytest.mark.parametrize("stored_as", ["V2", "uint16"])
def test_bfloat16_is_read_from_two_bytes(stored_as, golden, model_of, write_npz):
    # The upper half of a float32 is a bfloat16; no library of ours is needed to cut it off.
    arrays = {
        name: (array.view("uint32") >> 16).astype("uint16")
        for name, array in golden("vit_token").checkpoint().items()
    }
    model = model_of("vit_token")
    keras_vit.load_checkpoint(model, write_npz({k: v.view(stored_as) for k, v in arrays.items()}))
    expected = (arrays["head/kernel"].astype("uint32") << 16).view("float32")
    np.testing.assert_array_equal(model.get_layer("predictions").kernel, expected)


def test_two_spellings_of_one_weight_are_refused(golden, model_of, write_npz):
    arrays = golden("vit_token").checkpoint()
    name = "Transformer/encoderblock_0/LayerNorm_2/scale"
    arrays[name.replace("_2", "_1")] = arrays[name]
    with pytest.raises(ValueError, match="every weight once"):
        keras_vit.load_checkpoint(model_of("vit_token"), write_npz(arrays))


# Image towers of big_vision

CONFIG = keras_vit.ViTConfig(8, 16, 2, 32, 2, classifier="map")
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 16, 24, 3)).astype("float32")


def test_a_tower_without_a_head_gives_its_pooled_features(tmp_path, capsys):
    """As big_vision names it, beside a tower of texts."""
    model = keras_vit.build(CONFIG, include_top=False, pooling="map", input_shape=(16, 24, 3))
    rng = np.random.default_rng(1)
    model.set_weights([rng.normal(size=weight.shape) / 3 for weight in model.weights])
    keras_vit.save_checkpoint(model, tmp_path / "ours.npz")
    arrays = {"params/t": np.ones(1), "params/txt/Embed_0/embedding": np.ones((4, 16))}
    with np.load(tmp_path / "ours.npz") as ours:
        for name, array in ours.items():
            for official, theirs in (
                ("Transformer/posembed_input/", ""),
                ("MultiHeadDotProductAttention_1", "MultiHeadDotProductAttention_0"),
                ("LayerNorm_2", "LayerNorm_1"),
                ("MlpBlock_3", "MlpBlock_0"),
            ):
                name = name.replace(official, theirs)
            arrays[f"params/img/{name}"] = array
    path = tmp_path / "tower.npz"
    np.savez(path, **arrays)
    assert main(["convert", str(path), str(tmp_path / "out.npz")]) == 2
    assert "(image_size, --image-size)" in capsys.readouterr().err
    converted, notes = read(path, image_size=(16, 24))
    assert converted.description.labels.names is None
    assert converted.description.config.classifier == "map"
    np.testing.assert_allclose(
        array_of(converted.model()(IMAGES)), array_of(model(IMAGES)), 0, 1e-5
    )
    assert "2 arrays other than the weights were not read" in notes
    shape = {"input_shape": (16, 24, 3), "include_top": False}
    built = keras_vit.build(CONFIG, weights=path, pooling="map", **shape)
    np.testing.assert_allclose(array_of(built(IMAGES)), array_of(model(IMAGES)), atol=1e-5)
    assert keras_vit.build(CONFIG, weights=path, **shape)(IMAGES).shape == (2, 2, 3, 16)
