"""Heads that users put on a body, and models with several outputs or inputs."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_vit
from by_hand import array
from keras_vit.models.rebuild import class_layer
from keras_vit.opening import open_model

CONFIG = keras_vit.ViTConfig(4, 16, 2, 16, 2)
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 12, 12, 3)).astype("float32")
KNOWN = keras_vit.Preprocessing((12, 12))


def body(**options):
    keras.utils.set_random_seed(0)
    options = {"include_top": False, "pooling": "token", **options}
    return keras_vit.build(CONFIG, input_shape=(12, 12, 3), **options)


def hidden(features):
    return layers.Dense(5, "relu")(features)


# What stands between the features and the output, and how many layers in front of the head.
HEADS = {
    "dense": (lambda x: layers.Dense(3, "softmax")(x), 0),
    "dropout": (lambda x: layers.Dense(3, "softmax")(layers.Dropout(0.5)(x)), 0),
    "logits": (lambda x: layers.Dense(3)(x), 0),
    "softmax": (lambda x: layers.Softmax()(layers.Dense(3)(x)), 0),
    "temperature": (lambda x: layers.Activation("softmax")(layers.Dense(3)(x) / 2), 0),
    "labels": (lambda x: layers.Dense(3, "sigmoid")(x), 0),
    "hidden": (lambda x: layers.Dense(3, "softmax")(hidden(x)), 1),
}


@pytest.mark.parametrize("name", HEADS)
def test_features_are_the_input_of_the_head_whatever_its_name(name, tmp_path):
    head, num_hidden = HEADS[name]
    vit = body()
    model = keras.Model(vit.input, head(vit.output))
    features = keras_vit.features(model)
    expected = array(vit(IMAGES))
    if num_hidden:
        dense = next(layer for layer in model.layers if getattr(layer, "units", 0) == 5)
        expected = array(dense(expected))
    np.testing.assert_allclose(array(features(IMAGES)), expected, atol=1e-6)
    changed = keras_vit.with_new_head(model, 7)
    assert changed.get_layer("predictions").kernel.shape == (expected.shape[1], 7)


def test_features_of_a_folder_are_those_of_its_model(tmp_path):
    vit = body()
    model = keras.Model(vit.input, layers.Dense(3, "softmax")(vit.output))
    keras_vit.save_classifier(tmp_path / "c", model, ("a", "b", "c"), KNOWN)
    features = keras_vit.features(tmp_path / "c")
    np.testing.assert_allclose(array(features(IMAGES)), array(vit(IMAGES)), atol=1e-6)


def test_an_output_of_features_is_no_head():
    vit = body()
    assert class_layer(vit) is None
    assert class_layer(keras.Model(vit.input, hidden(vit.output))) is None
    assert keras_vit.features(keras.Model(vit.input, hidden(vit.output))).output_shape == (None, 5)


def test_scores_of_a_model_within_another_are_refused_by_its_name():
    inner = body(include_top=True, pooling=None, classes=3, name="inner")
    images = keras.Input((12, 12, 3))
    outer = keras.Model(images, inner(layers.Rescaling(0.5)(images)))
    for verb in (keras_vit.features, lambda model: keras_vit.with_new_head(model, 3)):
        with pytest.raises(ValueError, match=r"pass model.get_layer\('inner'\)"):
            verb(outer)


def test_scores_of_a_convolution_are_refused():
    vit = body(pooling=None)
    scores = layers.GlobalAveragePooling2D()(layers.Conv2D(3, 1)(vit.output))
    with pytest.raises(ValueError, match="output of such"):
        keras_vit.features(keras.Model(vit.input, layers.Softmax()(scores)))


@pytest.mark.parametrize("classifier", ["token", "token+distillation"])
def test_a_head_is_replaced_again_and_again(classifier):
    config = keras_vit.ViTConfig(4, 16, 2, 16, 2, classifier=classifier)
    model = keras_vit.build(config, input_shape=(12, 12, 3), classes=3)
    changed = keras_vit.with_new_head(keras_vit.with_new_head(model, 4), 5)
    assert changed.output_shape == (None, 5)
    assert keras_vit.describe(changed).config == config
    expected = array(keras_vit.features(model)(IMAGES))
    np.testing.assert_allclose(array(keras_vit.features(changed)(IMAGES)), expected, atol=1e-6)


def test_what_a_user_put_behind_the_representation_is_kept():
    model = body(include_top=True, pooling=None, classes=3)
    behind = hidden(model.get_layer("representation").output)
    changed = keras_vit.with_new_head(keras.Model(model.input, layers.Dense(3)(behind)), 4)
    assert changed.get_layer("predictions").kernel.shape == (5, 4)


# Several outputs or inputs


def two_outputs_within():
    images = keras.Input((12, 12, 3))
    vector = body()(images)
    outputs = {"species": layers.Dense(3, "softmax")(vector), "age": layers.Dense(1)(vector)}
    return keras.Model(images, outputs)


def two_outputs():
    vit = body()
    return keras.Model(vit.input, [layers.Dense(3, "softmax")(vit.output), vit.output])


def two_inputs():
    vit, weight = body(), keras.Input((1,), name="weight")
    features = layers.Concatenate()([vit.output, weight])
    return keras.Model([vit.input, weight], layers.Dense(3, "softmax")(features))


SEVERAL = {
    "within": (two_outputs_within, "one output.*2 outputs: species, age"),
    "outputs": (two_outputs, "one output.*2 outputs: dense"),
    "inputs": (two_inputs, "one input.*2 inputs: images, weight"),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_outputs_or_inputs_are_refused_by_every_verb(name, tmp_path):
    make, message = SEVERAL[name]
    model, file = make(), tmp_path / "m.keras"
    model.save(file)
    verbs = (
        lambda: keras_vit.describe(model),
        lambda: keras_vit.features(model),
        lambda: keras_vit.with_new_head(model, 3),
        lambda: keras_vit.save_checkpoint(model, tmp_path / "m.npz"),
        lambda: keras_vit.save_classifier(tmp_path / "c", model, ("a", "b", "c"), KNOWN),
        lambda: keras_vit.Classifier(model, ("a", "b", "c"), KNOWN),
        lambda: open_model(file),
        lambda: keras_vit.describe(file),
        lambda: keras_vit.features(file),
        lambda: keras_vit.export.convert(file, tmp_path / "hf", to="huggingface"),
    )
    for verb in verbs:
        with pytest.raises(ValueError, match=message):
            verb()


def one_sigmoid():
    vit = body()
    return keras.Model(vit.input, layers.Dense(1, "sigmoid", name="predictions")(vit.output))


@pytest.mark.parametrize("names", [("cat",), ("cat", "dog")])
def test_one_sigmoid_unit_is_told_of_both_ways_out(names, tmp_path):
    with pytest.raises(ValueError, match=r'task="multilabel".*with_new_head\(model, 2\)'):
        keras_vit.save_classifier(tmp_path / "c", one_sigmoid(), names, KNOWN)


def test_one_sigmoid_unit_is_one_label(tmp_path):
    keras_vit.save_classifier(tmp_path / "c", one_sigmoid(), ("cat",), KNOWN, task="multilabel")
    read = keras_vit.load_classifier(tmp_path / "c")
    np.testing.assert_allclose(array(read.model(IMAGES)), array(one_sigmoid()(IMAGES)), atol=1e-6)


# Notes and files of another kind


def test_a_model_of_calibrated_weights_is_converted_without_a_word_about_unknown(tmp_path):
    pytest.importorskip("safetensors")
    model = keras_vit.build(weights="vit_mini4_cifar10")
    keras_vit.save_classifier(tmp_path / "c", model, [str(k) for k in range(10)])
    notes = keras_vit.export.convert(tmp_path / "c", tmp_path / "hf", to="huggingface")
    assert not [note for note in notes if "unknown" in note]
    notes = keras_vit.export.convert("vit_mini4_cifar10", tmp_path / "hf2", to="huggingface")
    assert len([note for note in notes if "unknown" in note]) == 1


@pytest.mark.of_tensorflow
@pytest.mark.parametrize("own", [True, False])
def test_a_whole_model_in_h5_is_one_line(own, tmp_path):
    other = [keras.Input((12, 12, 3)), layers.Flatten(), layers.Dense(2)]
    model = body() if own else keras.Sequential(other)
    model.save(tmp_path / "m.h5")
    for verb in (keras_vit.load_classifier, lambda path: keras_vit.build(weights=path)):
        with pytest.raises(ValueError, match="as .keras"):
            verb(tmp_path / "m.h5")
