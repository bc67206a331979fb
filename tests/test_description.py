"""What a model is: held by the model, and the same in every file made from it."""

import dataclasses
import json

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.classifier import save_classifier
from keras_vit.configs.recognition import config_of
from keras_vit.description import Description, Labels, set_description
from keras_vit.models.rebuild import float32_model, inference_model
from keras_vit.opening import open_model, open_predictor
from keras_vit.preprocessing import Preprocessing

CONFIG = keras_vit.ViTConfig(
    4, 16, 2, 32, 2, classifier="map", num_registers=2, dropout_rate=0.1, gelu="exact"
)
NAMES = ("cat", "dog", "sea")
KNOWN = Description(
    name="pets",
    config=CONFIG,
    input_shape=(8, 12, 3),
    position_grid=(2, 3),
    classes=3,
    preprocessing=Preprocessing((8, 12), "torchvision", (0.0, 1.0)),
    labels=Labels(NAMES, "multilabel", (0.5, 0.25, 0.75)),
    origins={"pixels": "config.json", "evaluation": "config.json"},
    notes=("a note",),
)


@pytest.fixture
def model():
    built = keras_vit.build(
        CONFIG, input_shape=(8, 12, 3), classes=3, classifier_activation="sigmoid"
    )
    set_description(built, KNOWN)
    return built


def test_json_has_what_differs_from_the_defaults():
    assert KNOWN.to_json() == {
        "name": "pets",
        "config": {
            "type": "ViTConfig",
            **{"patch_size": 4, "width": 16, "depth": 2, "mlp_dim": 32, "num_heads": 2},
            **{"classifier": "map", "dropout_rate": 0.1, "gelu": "exact", "num_registers": 2},
        },
        "input_shape": [8, 12, 3],
        "position_grid": [2, 3],
        "classes": 3,
        "preprocessing": {
            "image_size": [8, 12],
            "evaluation": "torchvision",
            "value_range": [0.0, 1.0],
        },
        "labels": {
            "names": ["cat", "dog", "sea"],
            "task": "multilabel",
            "thresholds": [0.5, 0.25, 0.75],
        },
        "origins": {"pixels": "config.json", "evaluation": "config.json"},
        "notes": ["a note"],
    }
    assert Description().to_json() == {}
    assert Description.from_json(dict.fromkeys(("labels", "origins", "notes"))) == Description()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "x.json .*'list'"),
        ({"colour": "red"}, "newer version .*colour"),
        ({"name": 3}, "name must be str"),
        ({"input_shape": [8, 8]}, "input_shape .*3 positive"),
        ({"input_shape": [None, 8, 0]}, "input_shape .*3 positive"),
        ({"input_shape": [8, 8, None]}, "input_shape .*3 positive"),
        ({"position_grid": [2, None]}, "position_grid .*2 positive"),
        ({"config": {"type": "ViTConfig"}}, "fields .*ViTConfig"),
        ({"config": {"type": "os.system"}}, "'os.system'"),
        ({"labels": {"names": ["a"], "task": "both"}}, "task='both'"),
        ({"labels": {"shape": 3}}, "'shape'"),
        ({"preprocessing": {"evaluation": "resize"}}, "A preprocessing"),
        ({"notes": ["a", 3]}, "texts.*: 3"),
        ({"origins": {"pixels": None}}, "texts.*: None"),
    ],
    ids=str,
)
def test_a_wrong_description_is_one_line(content, message):
    with pytest.raises(ValueError, match=message):
        Description.from_json(content, "x.json")


def test_saving_cloning_and_another_precision_keep_it(model, tmp_path):
    model.save(tmp_path / "model.keras")
    for other in (
        keras.saving.load_model(tmp_path / "model.keras"),
        keras.models.clone_model(model),
        float32_model(model),
    ):
        assert Description.of_model(other) == KNOWN


def test_it_is_kept_by_from_config_by_lora_inside_another_model_and_in_a_part(model):
    assert Description.of_model(keras.Model.from_config(model.get_config())) == KNOWN
    outer = keras.Sequential([model, keras.layers.Dense(2)])
    assert config_of(outer.layers[0]) == CONFIG
    model.get_layer("encoder_block_0").attention.query.enable_lora(2)
    assert config_of(model) == CONFIG
    part = keras.Model(model.inputs, model.get_layer("encoder_block_0").output)
    assert config_of(part) == CONFIG


def test_a_quantized_model_keeps_it(model):
    model.quantize("int8", filters=["description", "predictions"])  # All layers take 5 s.
    assert Description.of_model(model) == KNOWN
    assert model.get_layer("predictions").kernel.dtype == "int8"


def test_a_model_for_inference_has_no_dropout_and_all_else(model):
    held = Description.of_model(inference_model(model, activation="sigmoid"))
    assert held.config.dropout_rate == 0
    assert (held.labels, held.preprocessing) == (KNOWN.labels, KNOWN.preprocessing)


def test_a_model_that_is_cut_out_of_another_one_says_what_it_is(model):
    features = keras.Model(model.input, model.get_layer("representation").output)
    described = keras_vit.describe(features)
    assert described.config == CONFIG
    assert (described.classes, described.labels) == (0, Labels())
    assert described.parameters == features.count_params()


def test_a_part_of_a_model_says_what_is_missing(model):
    part = keras.Model(model.input, model.get_layer("encoder_block_0").output)
    with pytest.raises(ValueError, match="'encoder_block_0'"):
        keras_vit.describe(part)


def test_a_file_of_another_library_has_no_config():
    other = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Flatten()])
    assert Description.of_model(other).config is None


def test_weights_bring_their_facts_with_them(model, tmp_path):
    save_classifier(
        tmp_path / "pets",
        model,
        KNOWN.labels.names,
        KNOWN.preprocessing,
        task="multilabel",
        thresholds=KNOWN.labels.thresholds,
    )
    loaded = open_predictor(tmp_path / "pets").model
    assert keras_vit.describe(loaded).labels == KNOWN.labels
    alone = keras.saving.load_model(tmp_path / "pets" / "model.keras")
    assert keras_vit.describe(alone).preprocessing == KNOWN.preprocessing
    opened = open_model(tmp_path / "pets" / "model.keras")
    assert opened.description.labels == KNOWN.labels
    with pytest.warns(UserWarning, match="pixels of 0 to 1"):
        built = keras_vit.build(
            CONFIG, weights=tmp_path / "pets" / "model.keras", classes=3, input_shape=(16, 12, 3)
        )
    assert keras_vit.describe(built).preprocessing.image_size == (16, 12)
    assert keras_vit.describe(built).labels.names == KNOWN.labels.names


def test_weights_without_tables_of_positions_fit_images_of_another_size(tmp_path):
    config = keras_vit.ViTConfig(4, 16, 1, 16, 2, position_embedding="none")
    first, second = (
        keras_vit.build(config, input_shape=(*size, 3), classes=2) for size in ((8, 8), (12, 16))
    )
    known = Preprocessing((8, 8), "torchvision", resize_size=10)
    set_description(first, dataclasses.replace(Description.of_model(first), preprocessing=known))
    first.save_weights(tmp_path / "a.weights.h5")
    second.load_weights(tmp_path / "a.weights.h5")
    np.testing.assert_array_equal(second.get_weights()[0], first.get_weights()[0])
    assert keras_vit.describe(second).preprocessing == known.with_image_size((12, 16))
    free = keras_vit.build(config, include_top=False, input_shape=(None, None, 3))
    free.load_weights(tmp_path / "a.weights.h5")
    assert keras_vit.describe(free).preprocessing == known


def test_another_head_does_not_take_the_names_of_the_classes(model, tmp_path):
    model.save_weights(tmp_path / "a.weights.h5")
    other = keras_vit.build(CONFIG, input_shape=(8, 12, 3), classes=2)
    with pytest.warns(UserWarning, match="could not be loaded|predictions"):
        other.load_weights(tmp_path / "a.weights.h5", skip_mismatch=True)
    assert (keras_vit.describe(other).classes, keras_vit.describe(other).labels) == (2, Labels())
    assert keras_vit.describe(other).preprocessing == KNOWN.preprocessing
    other.save(tmp_path / "other.keras")
    with pytest.raises(ValueError, match="must have names"):
        open_model(tmp_path / "other.keras").classifier()


def test_two_descriptions_in_a_folder_must_agree(model, tmp_path):
    save_classifier(
        tmp_path / "pets", model, ("a", "b", "c"), KNOWN.preprocessing, task="multilabel"
    )
    content = json.loads((tmp_path / "pets" / "description.json").read_text())
    content["config"]["gelu"] = "tanh"
    (tmp_path / "pets" / "description.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="description must match"):
        open_predictor(tmp_path / "pets")


def test_a_class_name_of_marks_that_would_be_sorted_for_hours_is_refused():
    marks = "".join(chr(0x0300 + k % 0x40) for k in range(100_000))
    with pytest.raises(ValueError, match="4096.*100000"):
        Labels((marks, "cat"))


def test_what_has_no_description_is_refused_by_its_type():
    with pytest.raises(TypeError, match="int"):
        keras_vit.describe(3)
