"""Models that compute what their description says, and models that compute something else."""

import json
import os

import keras
import numpy as np
import pytest
from keras import layers

import keras_vit
from by_hand import array
from keras_vit import ViTConfig
from keras_vit.description import Description
from keras_vit.layers import EncoderBlock
from keras_vit.models.graph import difference
from keras_vit.models.rebuild import inference_model, with_unknown
from keras_vit.opening import open_model, open_predictor

SIZES = {"patch_size": 4, "width": 16, "depth": 2, "mlp_dim": 16, "num_heads": 2}
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 12, 12, 3)).astype("float32")
KNOWN = keras_vit.Preprocessing((12, 12))
NAMES = ("cat", "dog", "sea")


def build(**options):
    keras.utils.set_random_seed(0)
    fields = {name: options.pop(name) for name in [*options] if name in ViTConfig.__annotations__}
    options = {"input_shape": (12, 12, 3), "classes": 3, **options}
    if "input_tensor" in options:
        del options["input_shape"]
    model = keras_vit.build(ViTConfig(**{**SIZES, **fields}), **options)
    for weight in model.weights:
        weight.assign(weight + np.random.normal(0, 0.3, weight.shape))
    return model


def headed(features, body, activation="softmax"):
    """The model with a random head of the name that all applications of Keras give it."""
    scores = layers.Dense(3, activation, name="predictions", bias_initializer="normal")(features)
    return keras.Model(body.input, scores, name="mine")


def with_other_pooling():
    body = build(include_top=False)
    return headed(layers.GlobalAveragePooling2D()(body.output), body)


def with_temperature():
    logits = build(classifier_activation=None)
    return keras.Model(logits.input, layers.Softmax()(layers.Rescaling(0.5)(logits.output)))


def with_two_activations():
    model = build()
    return keras.Model(model.input, layers.Activation("softmax")(model.output))


@keras.saving.register_keras_serializable(package="test_graph")
class BlockThatDoubles(EncoderBlock):
    """A block with another output."""

    def call(self, tokens, training=False, return_attention=False, patches=None):
        return 2 * super().call(tokens, training=training)


def with_own_block():
    def clone(layer):
        kind = BlockThatDoubles if layer.name == "encoder_block_1" else type(layer)
        return kind.from_config(layer.get_config())

    model = build()
    changed = keras.models.clone_model(model, clone_function=clone)
    changed.set_weights(model.get_weights())
    return changed


def with_average_of_flipped_images():
    model = build()
    flipped = model(keras.ops.flip(model.input, axis=2))
    return keras.Model(model.input, layers.Average()([model.output, flipped]))


def cut_behind_the_first_block():
    model = build()
    return headed(model.get_layer("encoder_block_0").output[:, 0], model)


def with_another_token():
    model = build()
    return headed(model.get_layer("encoder_norm").output[:, 1], model)


def with_a_norm_in_front_of_the_head():
    body = build(include_top=False, pooling="token")
    return headed(layers.UnitNormalization()(body.output), body)


def with_dropout_in_inference():
    body = build(include_top=False, pooling="token")
    return headed(layers.Dropout(0.5, seed=0)(body.output, training=True), body)


OTHERS = {
    "another pooling": (with_other_pooling, "'global_average_pooling2d'"),
    "a temperature": (with_temperature, "'rescaling"),
    "two activations": (with_two_activations, "activation='softmax'"),
    "another block": (with_own_block, "BlockThatDoubles"),
    "averages": (with_average_of_flipped_images, "'average"),
    "fewer blocks": (cut_behind_the_first_block, "'encoder_block_0'|depth=2"),
    "another token": (with_another_token, "'get_item"),
    "a norm": (with_a_norm_in_front_of_the_head, "'unit_normalization"),
    "dropout": (with_dropout_in_inference, "'dropout"),
}


@pytest.fixture(scope="module", params=OTHERS)
def other(request, tmp_path_factory):
    """A model that computes something else than its description, its folder and its difference."""
    keras.backend.clear_session()
    make, text = OTHERS[request.param]
    model, folder = make(), tmp_path_factory.mktemp("models") / "other"
    keras_vit.save_classifier(folder, model, NAMES, KNOWN)
    return model, folder, text


def test_another_model_is_saved_and_opened_whole(other):
    model, folder, _ = other
    if any(isinstance(layer, layers.Dropout) and layer.rate for layer in model.layers):
        pytest.skip("Random in each call.")
    read = open_predictor(folder)
    np.testing.assert_allclose(array(read.model(IMAGES)), array(model(IMAGES)), atol=1e-6)
    assert read.description.config is None


def test_a_folder_of_another_model_states_no_config(other):
    stored = json.loads((other[1] / "description.json").read_text())
    assert "config" not in stored


def test_another_model_is_not_written_as_the_described_one(other, tmp_path):
    model, folder, text = other
    with pytest.raises(ValueError, match=text):
        keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    for destination, to in (("b.npz", "official"), ("c", "huggingface")):
        with pytest.raises(ValueError, match=text):
            keras_vit.export.convert(folder, tmp_path / destination, to=to)
    assert not os.listdir(tmp_path)


def test_another_model_is_not_read_as_the_described_one(other):
    _, folder, text = other
    for arguments in ({}, {"include_top": False}):
        with pytest.raises(ValueError, match=text):
            keras_vit.build(weights=folder, **arguments)
    opened = open_model(folder)
    with pytest.raises(ValueError, match=f"Another image size.*{text}"):
        opened.model((24, 24))
    with pytest.raises(ValueError, match=text):
        opened.load_into(build())


def test_another_model_is_not_described(other):
    model, folder, text = other
    with pytest.raises(ValueError, match=f"without additional layers.*{text}"):
        keras_vit.describe(model)
    assert keras_vit.describe(folder).config is None


def test_images_that_a_model_changes_are_no_part_of_its_weights(tmp_path):
    scaled = layers.Rescaling(1 / 127.5, -1)(keras.Input((12, 12, 3)))
    model = build(input_tensor=scaled)
    with pytest.raises(ValueError, match="'rescaling"):
        keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    pixels = keras_vit.Preprocessing((12, 12), value_range=(0.0, 255.0))
    keras_vit.save_classifier(tmp_path / "c", model, NAMES, pixels)
    with pytest.raises(ValueError, match="'rescaling"):
        keras_vit.export.convert(tmp_path / "c", tmp_path / "b.npz")
    assert sorted(os.listdir(tmp_path)) == ["c"]


def test_a_model_with_a_method_of_its_own_is_another_one():
    class Halved(keras.Model):
        def call(self, images, training=False):
            return super().call(images, training=training) / 2

    model = build()
    assert "Halved" in difference(Halved(model.input, model.output))


# What a file computes is compared with the model, also where the graphs are equal.


def test_a_part_of_a_block_that_was_changed_shows_at_the_input_of_a_new_head(tmp_path):
    model = keras_vit.with_new_head(build(), 5)  # Its scores are equal for all inputs.
    model.get_layer("encoder_block_0").norm_1.epsilon = 0.1
    assert difference(model) is None
    with pytest.raises(ValueError, match="differ by"):
        keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    assert not os.listdir(tmp_path)


# Models that are described


FIELDS = {
    "gap": {"classifier": "gap"},
    "map": {"classifier": "map"},
    "max": {"classifier": "max"},
    "token and mean": {"classifier": "token+gap"},
    "two heads": {"classifier": "token+distillation"},
    "registers": {"num_registers": 2},
    "hidden layer": {"representation_size": 8},
    "pooled norm": {"classifier": "gap", "final_norm": "pooled"},
    "unread token": {"classifier": "gap", "unread_class_token": True},
    "relative": {"position_embedding": "relative"},
    "positions in every block": {"position_embedding_at": "every_block_shared"},
    "training": {"dropout_rate": 0.1, "stochastic_depth_rate": 0.1, "remat": True},
}


@pytest.mark.any_backend
@pytest.mark.parametrize("name", FIELDS)
def test_what_build_returns_is_described(name):
    model = build(**FIELDS[name])
    body = build(**FIELDS[name], include_top=False)
    assert difference(model) is None
    assert difference(body) is None
    assert difference(keras_vit.features(model)) is None
    assert difference(keras_vit.with_new_head(model, 5)) is None


@pytest.mark.parametrize("pooling", ["avg", "max", "token"])
def test_a_new_head_on_a_pooled_body_is_described(pooling, tmp_path):
    body = build(include_top=False, pooling=pooling)
    model = keras_vit.with_new_head(body, 3)
    model.layers[-1].kernel.assign(np.random.default_rng(0).normal(size=(16, 3)))
    assert difference(model) is None
    model.save(tmp_path / "m.keras")
    read = keras_vit.build(weights=tmp_path / "m.keras")
    np.testing.assert_allclose(array(read(IMAGES)), array(model(IMAGES)), atol=1e-6)


def own_head_behind_dropout():
    body = build(include_top=False, pooling="token")
    return headed(layers.Dropout(0.5)(body.output), body)


def own_head_on_the_first_token():
    model = build()
    return headed(model.get_layer("encoder_norm").output[:, 0], model)


def logits_with_softmax():
    logits = build(classifier_activation=None)
    return keras.Model(logits.input, layers.Softmax()(logits.output))


def of_other_precision():
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        return build()
    finally:
        keras.config.set_dtype_policy(policy)


SAME = {
    "dropout": own_head_behind_dropout,
    "token": own_head_on_the_first_token,
    "softmax": logits_with_softmax,
    "input tensor": lambda: build(input_tensor=keras.Input((12, 12, 3))),
    "precision": of_other_precision,
    "clone": lambda: keras.models.clone_model(build()),
    "unknown": lambda: with_unknown(build(), 2.0, 0.5),
    "inference": lambda: inference_model(build(dropout_rate=0.1)),
    "ResNet": lambda: keras_vit.build(
        "BiT-R50x1", classes=3, input_shape=(32, 32, 3), num_blocks=(1, 1)
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_what_computes_the_same_is_described_and_written(name, tmp_path):
    model = SAME[name]()
    assert difference(model) is None
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    assert keras_vit.build(weights=tmp_path / "a.npz").output_shape == (None, 3)


def test_lora_and_quantised_layers_are_described():
    model = build()
    parameters = keras_vit.describe(model).parameters
    model.get_layer("encoder_block_0").attention.query.enable_lora(2)
    assert keras_vit.describe(model).parameters == parameters
    model = build()
    model.quantize("int8", filters=["encoder_block_0", "predictions"])
    assert keras_vit.describe(model).parameters == parameters


def test_the_comparison_draws_no_random_numbers():
    model = build(num_registers=3, dropout_rate=0.1)
    keras.utils.set_random_seed(0)
    expected = keras.layers.Dense(2).kernel_initializer.seed
    keras.utils.set_random_seed(0)
    difference(model)
    assert keras.layers.Dense(2).kernel_initializer.seed == expected


def test_a_model_is_described_by_what_opens_it():
    classifier = open_predictor("vit_mini4_cifar10")
    described = keras_vit.describe("vit_mini4_cifar10")
    assert described.parameters == keras_vit.describe(classifier.model).parameters
    assert keras_vit.describe(classifier) == classifier.description
    assert open_model("vit_mini4_cifar10").description == described
    assert Description.of_model(classifier.model).config == described.config
    with pytest.raises(ValueError, match="Nearest: ViT-B/16"):
        keras_vit.describe("ViT-B/61")
