"""Facts that sources of weights state about their model."""

import pathlib
import re

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.facts import Facts
from keras_vit.checkpoints.formats import write_safetensors
from keras_vit.checkpoints.save import facts_of, stored_arrays
from keras_vit.checkpoints.torch_names import TIMM
from keras_vit.configs.blocks import UNSEEN_FEATURES
from keras_vit.models.opening import open_model
from makers import tiny_config

pytest.importorskip("safetensors")

ROOT = pathlib.Path(keras_vit.__path__[0])
STATED = {
    "gelu": "quick",
    "norm_epsilon": 1e-3,
    "position_embedding_at": "every_block_shared",
    "position_resize": "bicubic",
    "rotary": 50.0,
}


@pytest.mark.parametrize("field", STATED)
def test_a_field_that_a_file_states_reaches_the_built_model(field, tmp_path):
    keras.utils.set_random_seed(0)
    config = tiny_config(**{field: STATED[field]}, patch_size=4, width=16, num_heads=2)
    model = keras_vit.build(config, input_shape=(8, 8, 3), classes=3)
    model.get_layer("predictions").kernel.assign(np.random.randn(16, 3))
    path = tmp_path / "model.safetensors"
    write_safetensors(path, stored_arrays(model, TIMM), facts_of(model))
    opened = open_model(path, normalization="half")
    assert opened.description.config == config
    images = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")
    np.testing.assert_allclose(opened.to_model()[0](images), model(images), atol=1e-6)


def test_files_between_a_source_and_a_layer_name_no_feature_of_a_block():
    for name in (
        "checkpoints/checkpoint.py",
        "checkpoints/checkpoint_description.py",
        "checkpoints/facts.py",
        "checkpoints/formats.py",
        "checkpoints/load.py",
        "checkpoints/match.py",
        "checkpoints/metadata.py",
        "checkpoints/save.py",
        "layers/model_description.py",
        "models/build.py",
        "models/functional.py",
        "models/opened_model.py",
        "models/opening.py",
        "models/rebuild.py",
        "configs/recognition.py",
    ):
        found = re.findall(rf"\b(?:{'|'.join(UNSEEN_FEATURES)})\b", (ROOT / name).read_text())
        assert not found, f"{name} names {found}"


def test_facts_are_completed_by_another_source():
    first = Facts({"gelu": "exact", "num_heads": None}, position_grid=(2, 3))
    second = Facts({"gelu": "tanh", "num_heads": 4}, image_size=(8, 12))
    both = first.over(second)
    assert both == Facts({"gelu": "exact", "num_heads": 4}, (2, 3), (8, 12))


@pytest.mark.parametrize(
    ("note", "message"),
    [
        ({"gelu": "silu"}, "gelu must be"),
        ({"num_heads": "two"}, "num_heads must be .*int"),
        ({"rotary": {"turns": 2}}, "must match a block's"),
        ({"rotary": [1]}, "must match a block's"),
        ({"position_grid": [0, 4]}, "must be positive"),
        ({"position_embedding_at": "head"}, "position_embedding_at must be"),
        ({"epsilon_in": "mean"}, "epsilon_in must be"),
        ({"position_resize": "nearest"}, "position_resize must be"),
    ],
)
def test_a_wrong_value_of_a_fact_is_refused(note, message):
    with pytest.raises(ValueError, match=message):
        Facts.from_note(note)


def test_a_field_is_kept_as_the_config_holds_it():
    facts = Facts.from_note({"rotary": 50, "unknown": 1})
    assert facts.fields == {"rotary": 50.0}
