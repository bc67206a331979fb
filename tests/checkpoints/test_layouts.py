"""Every spelling of the official names means the same weights."""

import re

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.checkpoint import LAYOUTS

# float32, depth 3; the official code's logits.
TOLERANCE = 1e-4


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


VARIANTS = {
    "published": lambda arrays: arrays,
    "opt/target": _prefixed("opt/target/"),
    "params": _prefixed("params/"),
    "params/img": _prefixed("params/img/"),
    "linen": _linen,
    "big_vision": _big_vision,
    "stacked": _stacked,
    "optimizer state": _beside_optimizer_state,
    "float64": lambda arrays: {name: array.astype("float64") for name, array in arrays.items()},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_spelling_gives_the_official_logits(variant, golden, model_of, write_npz):
    expected = golden("vit_token").load()
    path = write_npz(VARIANTS[variant](golden("vit_token").checkpoint()))
    model = model_of("vit_token")
    report = keras_vit.load_checkpoint(model, path)
    assert len(report.loaded) == len(model.weights)
    np.testing.assert_allclose(model(expected["images"]), expected["logits"], atol=TOLERANCE)


def test_what_lies_beside_the_weights_is_reported(golden, model_of, write_npz):
    path = write_npz(_beside_optimizer_state(golden("vit_token").checkpoint()))
    report = keras_vit.load_checkpoint(model_of("vit_token"), path)
    assert "56 arrays other than the weights were not read" in str(report)


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


def test_group_norm_arrays_may_have_leading_ones_or_not(golden, model_of, write_npz):
    arrays = golden("hybrid_3_stages").checkpoint()
    assert arrays["gn_root/scale"].shape == (1, 1, 1, 32)
    expected = golden("hybrid_3_stages").load()
    flat = {k: v.reshape(-1) if "/gn" in k or k[:2] == "gn" else v for k, v in arrays.items()}
    for variant in (arrays, flat):
        model = model_of("hybrid_3_stages")
        keras_vit.load_checkpoint(model, write_npz(variant))
        np.testing.assert_allclose(model(expected["images"]), expected["logits"], atol=TOLERANCE)


def test_counters_in_bit_names_are_passed_over(golden, model_of, write_npz):
    arrays = golden("bit_r14x1").checkpoint()
    counted = {
        re.sub(r"(standardized_conv2d|group_norm)\b", rf"\g<1>_{index}", name): array
        for index, (name, array) in enumerate(arrays.items())
    }
    expected = golden("bit_r14x1").load()
    model = model_of("bit_r14x1")
    keras_vit.load_checkpoint(model, write_npz(counted))
    np.testing.assert_allclose(model(expected["images"]), expected["logits"], atol=TOLERANCE)


def test_two_spellings_of_one_weight_are_refused(golden, model_of, write_npz):
    arrays = golden("vit_token").checkpoint()
    name = "Transformer/encoderblock_0/LayerNorm_2/scale"
    arrays[name.replace("_2", "_1")] = arrays[name]
    with pytest.raises(ValueError, match="every weight once"):
        keras_vit.load_checkpoint(model_of("vit_token"), write_npz(arrays))


def test_rows_have_the_same_numbers_on_both_sides():
    for layout in LAYOUTS:
        for rule in layout.rules:
            fields = set(re.findall(r"{(\w+)", rule.stored))
            assert all(set(re.findall(r"{(\w+)", path)) == fields for path in rule.paths), rule
