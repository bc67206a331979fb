"""Average precision, F1 and thresholds of multi-label images, against scikit-learn."""

import csv

import keras
import numpy as np
import pytest

from keras_vit.description.class_labels import Labels
from keras_vit.images.decoding import apply_preprocessing, decode_image
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import open_source
from keras_vit.training.evaluation import classification
from keras_vit.training.evaluation.measures import best_threshold
from makers import write_classes

NAMES = ("ant", "bee", "crow", "dog", "emu")
LABELS = Labels(NAMES[:3], "multilabel")


def drawn(seed=0, count=200, ties=True):
    """Random labels, some rare, and probabilities in float32, many of them equal."""
    rng = np.random.default_rng(seed)
    labels = (rng.random((count, len(NAMES))) < [0.02, 0.1, 0.3, 0.5, 0.9]).astype("uint8")
    labels[0] = 1
    scores = 0.6 * rng.random(labels.shape) + 0.3 * labels
    return labels, (np.round(scores, 1) if ties else scores).astype("float32")


@pytest.mark.parametrize("ties", [True, False])
def test_the_numbers_are_scikit_learns(ties):
    metrics = pytest.importorskip("sklearn.metrics")
    labels, scores = drawn(ties=ties)
    thresholds = (0.31, 0.45, 0.5, 0.6, 0.99)  # The last is above all: no image gets the label.
    report = classification.multilabel_report(labels, scores, NAMES, thresholds)
    given = scores > np.array(thresholds)
    for ours, expected in [
        (report.score, metrics.average_precision_score(labels, scores, average="macro")),
        (report.micro_average_precision,
         metrics.average_precision_score(labels, scores, average="micro")),
        (report.average_precisions, metrics.average_precision_score(labels, scores, average=None)),
        (report.macro_f1, metrics.f1_score(labels, given, average="macro", zero_division=0)),
        (report.counts.micro_f1, metrics.f1_score(labels, given, average="micro")),
        (report.subset_accuracy, metrics.accuracy_score(labels, given)),
    ]:  # fmt: skip
        np.testing.assert_allclose(ours, expected, atol=1e-6)
    counts = report.counts
    np.testing.assert_allclose(
        [counts.precision, counts.recall, counts.f1, counts.images],
        metrics.precision_recall_fscore_support(labels, given, average=None, zero_division=0),
        atol=1e-6,
    )


@pytest.mark.parametrize("ties", [True, False])
def test_the_threshold_has_the_best_f1_of_all(ties):
    f1_score = pytest.importorskip("sklearn.metrics").f1_score
    labels, scores = drawn(1, 60, ties)
    for label, score in zip(labels.T, scores.T, strict=True):
        threshold = best_threshold(label, score)
        values = np.unique(score).astype("float64")
        tried = (np.append(0.0, values[:-1]) + values) / 2
        f1 = np.array([f1_score(label, score > t, zero_division=0) for t in tried])
        assert threshold in tried
        assert f1_score(label, score > threshold) == f1.max()
        assert threshold == tried[f1 == f1.max()].max()


def test_a_class_without_images_is_left_out_of_the_means():
    labels, scores = drawn()
    labels[:, 0] = 0
    report = classification.multilabel_report(labels, scores, NAMES, loss=1.0)
    rest = classification.multilabel_report(labels[:, 1:], scores[:, 1:], NAMES[1:])
    assert (report.score, report.macro_f1) == (rest.score, rest.macro_f1)
    assert "not in the means, as no image has it: ant" in str(report)
    assert report.to_json()["by_class"]["ant"]["AP"] is None
    assert "nan" not in str(report)
    assert report.best_thresholds[0] == 0.5


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    names = dict.fromkeys(NAMES[:3])
    folder = write_classes(tmp_path_factory.mktemp("images"), 3, names, size=(8, 8))
    source = open_source(folder, holdout=0, verify=False, task="multilabel")
    return source.splits["train"]


def test_the_loss_is_keras_binary_cross_entropy_times_the_classes(examples):
    images = keras.Input((8, 8, 3))
    keras.utils.set_random_seed(1)
    logits = keras.layers.Dense(3)(keras.layers.Flatten()(images))
    model = keras.Model(images, logits)
    with_sigmoid = keras.Model(images, keras.layers.Activation("sigmoid")(logits))
    options = {"preprocessing": Preprocessing((8, 8)), "batch_size": 4}
    report = classification.evaluate(model, examples, LABELS, from_logits=True, **options)
    again = classification.evaluate(with_sigmoid, examples, LABELS, **options)
    assert report.count == 9
    assert again.loss == pytest.approx(report.loss, rel=1e-5)
    assert again.score == pytest.approx(report.score)
    inputs = [image for image, _ in examples.encoded()]
    inputs = np.stack([apply_preprocessing(decode_image(i), Preprocessing((8, 8))) for i in inputs])
    expected = keras.losses.BinaryCrossentropy(from_logits=True)(examples.labels, model(inputs))
    assert report.loss == pytest.approx(3 * float(expected), rel=1e-5)


def test_the_answers_name_the_labels_and_the_most_confident_wrong_decision(examples, tmp_path):
    images = keras.Input((8, 8, 3))
    keras.utils.set_random_seed(2)
    model = keras.Model(images, keras.layers.Dense(3)(keras.layers.Flatten()(images)))
    options = {"preprocessing": Preprocessing((8, 8)), "from_logits": True}
    report = classification.evaluate(model, examples, LABELS, **options)
    assert tmp_path / "report.html" in report.write(tmp_path)
    with open(tmp_path / "answers.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    inputs = [decode_image(image) for image, _ in examples.encoded()]
    inputs = np.stack([apply_preprocessing(image, Preprocessing((8, 8))) for image in inputs])
    probabilities = np.asarray(keras.ops.sigmoid(model(inputs)))
    for row, of_image, label in zip(rows, probabilities, examples.labels, strict=True):
        given = of_image > 0.5
        assert row["true"] == ";".join(np.array(NAMES[:3])[label > 0])
        assert row["answer"] == ";".join(np.array(NAMES[:3])[given])
        confidence = np.where(given, of_image, 1 - of_image)
        wrong = given != (label > 0)
        assert row["right"] == str(int(not wrong.any()))
        expected = confidence[wrong].max() if wrong.any() else confidence.min()
        assert float(row["probability"]) == pytest.approx(expected, rel=1e-4)
