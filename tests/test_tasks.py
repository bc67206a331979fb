"""The task of a classifier in its folder."""

import json

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit.classifier import Classifier
from keras_vit.classifier_folder import load_classifier, save_classifier
from keras_vit.description.class_labels import task_of_model
from keras_vit.preprocessing import Preprocessing
from makers import tiny_config

NAMES = ("cat", "dog", "sea")
PREPROCESSING = Preprocessing((8, 8))


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    config = tiny_config()
    model = keras_vit.build(
        config, input_shape=(8, 8, 3), classes=3, classifier_activation="sigmoid"
    )
    # Logits 2, -2 and 0.5 of every image.
    model.get_layer("predictions").bias.assign([2.0, -2.0, 0.5])
    return model


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifiers") / "several"
    save_classifier(
        folder, model, NAMES, PREPROCESSING, task="multilabel", thresholds=(0.5, 0.1, 0.7)
    )
    return folder


def test_task_and_thresholds_are_in_the_description(folder):
    labels = json.loads((folder / "description.json").read_text())["labels"]
    assert (labels["task"], labels["thresholds"]) == ("multilabel", [0.5, 0.1, 0.7])
    classifier = load_classifier(folder)
    assert (classifier.task, classifier.thresholds) == ("multilabel", (0.5, 0.1, 0.7))


def test_one_class_an_image_has_no_thresholds(tmp_path):
    config = tiny_config()
    plain = keras_vit.build(config, input_shape=(8, 8, 3), classes=3)
    save_classifier(tmp_path / "plain", plain, NAMES, PREPROCESSING)
    classifier = load_classifier(tmp_path / "plain")
    assert (classifier.task, classifier.thresholds) == ("multiclass", None)
    Image.new("RGB", (9, 9)).save(tmp_path / "image.png")
    (prediction,) = classifier.predict(tmp_path / "image.png")
    assert prediction.labels == (prediction.top[0][0],)


def test_the_labels_of_an_image_are_those_above_their_thresholds(folder, tmp_path):
    Image.new("RGB", (9, 9)).save(tmp_path / "image.png")
    (tmp_path / "broken.png").write_bytes(b"no image")
    broken, prediction = load_classifier(folder).predict(tmp_path, top=2)
    # Probabilities 0.88, 0.12 and 0.62.
    assert prediction.labels == ("cat", "dog")
    assert [name for name, _ in prediction.top] == ["cat", "sea"]
    assert prediction.top[0][1] == pytest.approx(1 / (1 + np.exp(-2)), abs=1e-6)
    assert broken.error
    assert broken.labels == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"task": "regression"}, "regression"),
        ({"thresholds": [0.5]}, "Thresholds must be probabilities"),
        ({"thresholds": [0.5, 0.5, 1.5]}, r"probabilities in \[0, 1\)"),
        ({"thresholds": {"cat": 0.5}}, "thresholds"),
    ],
    ids=str,
)
def test_a_damaged_file_is_one_line(folder, tmp_path, content, message):
    path = folder / "description.json"
    whole = path.read_text()
    described = json.loads(whole)
    try:
        path.write_text(json.dumps({**described, "labels": {**described["labels"], **content}}))
        with pytest.raises(ValueError, match=message):
            load_classifier(folder)
    finally:
        path.write_text(whole)


@pytest.mark.parametrize("activation", ["softmax", None])
def test_a_model_of_another_activation_is_refused(activation, tmp_path):
    config = tiny_config()
    other = keras_vit.build(
        config, input_shape=(8, 8, 3), classes=3, classifier_activation=activation
    )
    with pytest.raises(ValueError, match='classifier_activation="sigmoid"'):
        save_classifier(tmp_path / "new", other, NAMES, PREPROCESSING, task="multilabel")


def test_sigmoids_are_not_one_class_an_image(model, tmp_path):
    with pytest.raises(ValueError, match='classifier_activation="softmax"'):
        save_classifier(tmp_path / "new", model, NAMES, PREPROCESSING)
    assert task_of_model(model) == "multilabel"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "several"}, "task must be one of"),
        ({"task": "multilabel", "thresholds": (0.5,)}, "one for each of the 3 classes"),
        ({"thresholds": (0.5, 0.5, 0.5)}, "Thresholds are for task='multilabel'"),
    ],
    ids=str,
)
def test_a_wrong_task_is_refused(model, options, message):
    with pytest.raises(ValueError, match=message):
        Classifier(model, NAMES, PREPROCESSING, **options)


def test_a_class_name_must_not_hold_the_separator(model):
    with pytest.raises(ValueError, match='must not hold ";"'):
        Classifier(model, ("cat", "dog;cow", "sea"), PREPROCESSING, task="multilabel")
