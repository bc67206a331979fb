"""Multi-label classifiers in their folder."""

import json

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit.classifier import save_classifier
from keras_vit.opening import open_predictor
from keras_vit.predictor import Predictor
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.evaluation.classification import multilabel_report
from makers import tiny_config

NAMES = ("cat", "dog", "sea")
PREPROCESSING = Preprocessing((8, 8))


def built(activation):
    keras.utils.set_random_seed(0)
    return keras_vit.build(
        tiny_config(), input_shape=(8, 8, 3), classes=3, classifier_activation=activation
    )


@pytest.fixture(scope="module")
def model():
    model = built("sigmoid")
    # Logits 2, -2 and 0.5 of every image.
    model.get_layer("predictions").bias.assign([2.0, -2.0, 0.5])
    return model


@pytest.fixture
def folder(model, tmp_path):
    options = {"task": "multilabel", "thresholds": (0.5, 0.1, 0.7)}
    save_classifier(tmp_path / "several", model, NAMES, PREPROCESSING, **options)
    return tmp_path / "several"


def test_task_and_thresholds_are_in_the_description(folder, model):
    labels = json.loads((folder / "description.json").read_text())["labels"]
    assert (labels["task"], labels["thresholds"]) == ("multilabel", [0.5, 0.1, 0.7])
    classifier = open_predictor(folder)
    assert (classifier.task, classifier.thresholds) == ("multilabel", (0.5, 0.1, 0.7))
    assert keras_vit.describe(model).labels.task == "multilabel"


def test_the_labels_of_an_image_are_those_above_their_thresholds(folder, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    Image.new("RGB", (9, 9)).save(images / "image.png")
    (images / "broken.png").write_bytes(b"no image")
    broken, prediction = open_predictor(folder).predict(images, top=2)
    # Probabilities 0.88, 0.12 and 0.62.
    assert prediction.labels == ("cat", "dog")
    assert [name for name, _ in prediction.top] == ["cat", "sea"]
    assert prediction.top[0][1] == pytest.approx(1 / (1 + np.exp(-2)), abs=1e-6)
    assert broken.error
    assert broken.labels == ()


def test_the_label_of_a_multi_class_image_is_the_most_probable_class():
    plain = Predictor(built("softmax"), NAMES, PREPROCESSING)
    assert (plain.task, plain.thresholds) == ("multiclass", None)
    (prediction,) = plain.predict(np.zeros((9, 9, 3), "uint8"))
    assert prediction.labels == (prediction.top[0][0],)


def test_a_probability_of_exactly_its_threshold_is_no_label(tmp_path):
    model = built("sigmoid")  # A head of zeros: 0.5 for every class.
    options = {"task": "multilabel", "thresholds": (0.5, 0.4999, 0.5)}
    save_classifier(tmp_path / "several", model, NAMES, PREPROCESSING, **options)
    image = np.zeros((8, 8, 3), "uint8")
    (prediction,) = open_predictor(tmp_path / "several").predict(image)
    assert prediction.labels == ("dog",)


def test_evaluation_counts_no_label_at_exactly_its_threshold():
    labels, halves = np.array([[1, 0, 1]]), np.full((1, 3), 0.5, "float32")
    report = multilabel_report(labels, halves, NAMES, (0.5, 0.4999, 0.5))
    assert report.given.tolist() == [[False, True, False]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"task": "regression"}, "regression"),
        ({"thresholds": [0.5]}, "Thresholds must be probabilities"),
        ({"thresholds": [0.5, 0.5, 1.0]}, r"probabilities in \[0, 1\)"),
        ({"thresholds": {"cat": 0.5}}, "thresholds"),
    ],
    ids=str,
)
def test_a_damaged_file_is_one_line(folder, content, message):
    path = folder / "description.json"
    described = json.loads(path.read_text())
    described["labels"] |= content
    path.write_text(json.dumps(described))
    with pytest.raises(ValueError, match=message):
        open_predictor(folder)


MULTILABEL = {"task": "multilabel"}


@pytest.mark.parametrize(
    ("activation", "names", "options", "message"),
    [
        ("softmax", NAMES, MULTILABEL, 'classifier_activation="sigmoid"'),
        (None, NAMES, MULTILABEL, 'classifier_activation="sigmoid"'),
        ("sigmoid", NAMES, {}, 'classifier_activation="softmax"'),
        ("sigmoid", NAMES, {"task": "several"}, "task='several'"),
        ("sigmoid", NAMES, {**MULTILABEL, "thresholds": (0.5,)}, r"3 classes.*: \[0.5\]"),
        ("sigmoid", NAMES, {"thresholds": (0.5,) * 3}, "Thresholds .*task='multilabel'"),
        ("sigmoid", ("cat", "dog;cow", "sea"), MULTILABEL, 'must not hold ";"'),
    ],
)
def test_what_does_not_fit_is_refused(activation, names, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        save_classifier(tmp_path / "new", built(activation), names, PREPROCESSING, **options)
    assert not (tmp_path / "new").exists()
