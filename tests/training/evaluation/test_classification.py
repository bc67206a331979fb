import csv
import dataclasses
import json
import re
import shutil
import sys

import keras
import numpy as np
import pytest
from PIL import Image

from keras_vit.description.class_labels import Labels
from keras_vit.predictor import Predictor
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import labelled_files, open_source
from keras_vit.training.evaluation import classification, measures, reports_by_task
from keras_vit.training.evaluation.classification import evaluate_classifier
from makers import write_classes

NAMES = ("ant", "bee", "crow", "dog", "emu", "fox", "gnu")
COUNTS = (3, 1, 5, 2, 4, 3, 2)
PREPROCESSING = Preprocessing((8, 8))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name, count in zip(NAMES, COUNTS, strict=True):
        write_classes(folder, count, {name: None}, size=(9, 10), rng=rng)
    return folder


@pytest.fixture(scope="module")
def examples(data):
    return open_source(data, holdout=0, verify=False).splits["train"]


@pytest.fixture(scope="module")
def model():
    images = keras.Input((8, 8, 3))
    keras.utils.set_random_seed(1)
    x = keras.layers.Flatten()(images)
    return keras.Model(images, keras.layers.Dense(len(NAMES), "softmax")(x))


@pytest.fixture(scope="module")
def scores(model, data):
    """Probabilities and labels, computed by Keras alone of files read by Pillow."""
    images, labels = [], []
    for label, name in enumerate(NAMES):
        for path in sorted((data / name).iterdir()):
            array = keras.ops.image.resize(np.asarray(Image.open(path), "float32"), (8, 8))
            images.append(np.asarray(array) / 127.5 - 1)
            labels.append(label)
    return model.predict(np.stack(images), verbose=0), np.array(labels)


@pytest.fixture(scope="module")
def report(model, data):
    return evaluate_classifier(Predictor(model, NAMES, PREPROCESSING), data, batch_size=6)


def test_the_numbers_equal_keras_metrics(report, scores):
    probabilities, labels = scores
    top_1 = keras.metrics.sparse_categorical_accuracy(labels, probabilities)
    top_5 = keras.metrics.sparse_top_k_categorical_accuracy(labels, probabilities, k=5)
    loss = keras.losses.sparse_categorical_crossentropy(labels, probabilities)
    assert report.top_1 == pytest.approx(float(np.mean(top_1)))
    assert report.top_5 == pytest.approx(float(np.mean(top_5)))
    assert report.loss == pytest.approx(float(np.mean(loss)), abs=1e-5)
    right = probabilities.argmax(axis=1) == labels
    whole = measures.calibration_of(probabilities.max(axis=1), right)
    assert report.calibration.expected_error == pytest.approx(whole.expected_error, abs=1e-5)
    assert f"ECE     {whole.expected_error:.4f}" in str(report)
    assert 0 < report.top_1 < report.top_5 < 1


def test_the_confusion_matrix_is_scikit_learns(report, scores):
    confusion_matrix = pytest.importorskip("sklearn.metrics").confusion_matrix
    probabilities, labels = scores
    expected = confusion_matrix(labels, probabilities.argmax(axis=1))
    np.testing.assert_array_equal(report.confusion, expected)
    np.testing.assert_allclose(report.columns["accuracy"], np.diag(expected) / COUNTS)
    counts = [(NAMES[i], NAMES[j], expected[i, j]) for i, j in np.argwhere(expected)]
    assert report.confusion_pairs() == counts


@pytest.mark.parametrize("from_logits", [False, True])
def test_twenty_thousand_classes_take_no_matrix_and_sum_to_one(data, examples, from_logits):
    # 1e-7 in each class, where the loss is clipped, would add up to 0.002.
    names = [*NAMES, *map(str, range(20_000))]
    images = keras.Input((8, 8, 3))
    head = keras.layers.Dense(
        len(names), None if from_logits else "softmax", bias_initializer=first_classes
    )
    wide = keras.Model(images, head(keras.layers.Flatten()(images)))
    found = evaluated(wide, examples, names, from_logits=from_logits)
    assert found.count == sum(COUNTS)
    assert len(found.confusion_pairs()) <= sum(COUNTS)
    assert found.calibration.count == sum(COUNTS)


def first_classes(shape, dtype=None):
    """A bias by which the first classes have nearly all of the probability."""
    return np.where(np.arange(shape[0]) < len(NAMES), 30.0, 0.0).astype(dtype)


def evaluated(model, examples, names=NAMES, **options):
    """Evaluates a model on images that are known to be good."""
    return classification.evaluate(
        model, examples, Labels(names), preprocessing=PREPROCESSING, batch_size=20, **options
    )


def test_logits_give_the_same_numbers(report, model, examples):
    dense = model.layers[-1]
    logits = keras.layers.Dense(len(NAMES))
    inputs = keras.Input((8, 8, 3))
    twin = keras.Model(inputs, logits(keras.layers.Flatten()(inputs)))
    logits.set_weights(dense.get_weights())
    again = evaluated(twin, examples, from_logits=True)
    np.testing.assert_array_equal(again.confusion, report.confusion)
    assert again.loss == pytest.approx(report.loss, abs=1e-5)


def test_classes_are_matched_by_name_not_by_place(report, model, data):
    order = [6, 2, 0, 1, 5, 3, 4]
    images = keras.Input((8, 8, 3))
    shuffled = keras.Model(images, keras.ops.take(model(images), np.array(order), axis=1))
    names = [NAMES[k] for k in order]
    again = evaluate_classifier(Predictor(shuffled, names, PREPROCESSING), data)
    assert again.top_1 == report.top_1
    np.testing.assert_array_equal(again.counts.images, np.array(COUNTS)[order])


@pytest.fixture
def with_damage(data, tmp_path):
    """The data with a file that is cut short, and a TIFF that is called JPEG."""
    folder = shutil.copytree(data, tmp_path / "data")
    cut = folder / "ant" / "cut.png"
    cut.write_bytes((folder / "ant" / "0.png").read_bytes()[:60])
    Image.new("RGB", (9, 9), "red").save(folder / "bee" / "tiff.jpg", "TIFF")
    return folder, str(cut)


def test_damaged_files_are_noticed_when_they_are_evaluated(report, model, with_damage, monkeypatch):
    folder, cut = with_damage
    classifier = Predictor(model, NAMES, PREPROCESSING)
    verified = evaluate_classifier(trained_on(folder, model), folder)
    monkeypatch.setattr(labelled_files, "verify_files", None)  # Nothing is decoded twice.
    found = evaluate_classifier(classifier, folder, batch_size=6)
    assert [path for path, _ in found.skipped] == [cut]
    assert found.skipped == verified.skipped
    more = found.confusion - report.confusion
    assert (more.sum(), more[NAMES.index("bee")].sum()) == (1, 1)
    np.testing.assert_array_equal(found.confusion, verified.confusion)
    assert found.examples.names == verified.examples.names
    assert cut not in found.examples.names


def trained_on(folder, model):
    """A classifier whose run skipped a file, so that what it held out depends on the files."""
    data = {"data": str(folder), "holdout": 0.0}
    recipe = {"settings": {}, "data": data, "images": {"skipped": 1}}
    return Predictor(model, NAMES, PREPROCESSING, recipe)


def test_equal_scores_are_no_better_than_chance(examples):
    images = keras.Input((8, 8, 3))
    zeros = keras.layers.Dense(len(NAMES), "softmax", kernel_initializer="zeros")
    constant = keras.Model(images, zeros(keras.layers.Flatten()(images)))
    again = evaluated(constant, examples)
    assert again.correct == COUNTS[0]
    assert again.in_top_5 == sum(COUNTS[:5])


def test_the_files_hold_the_numbers_without_matplotlib(report, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    written = report.write(tmp_path / "new" / "folder")
    assert sorted(path.name for path in written) == [
        *("answers.csv", "calibration.csv", "confusion.csv", "facts.csv"),
        *("metrics.json", "per_class.csv", "report.html"),
    ]
    with open(tmp_path / "new/folder/confusion.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["true", "answer", "images"]
    assert [(*names, int(count)) for *names, count in rows] == report.confusion_pairs()
    metrics = json.loads((tmp_path / "new/folder/metrics.json").read_text())
    assert metrics["top_1"] == report.top_1
    assert list(metrics["by_class"]) == list(NAMES)
    with open(tmp_path / "new/folder/per_class.csv", newline="") as file:
        assert [row["F1"] for row in csv.DictReader(file)] == [
            f"{f1:.6g}" for f1 in report.counts.f1
        ]


def test_top_1_of_unequal_classes_has_the_balanced_accuracy_beside_it():
    report = reports_by_task.ClassificationReport(
        class_names=("fine", "broken"),
        true=np.repeat([0, 1], [95, 5]),
        given=np.zeros(100, "int64"),
        probability=np.ones(100),
        in_top_5=100,
        loss=1.0,
    )
    remark = "; 95% of them are fine, balanced accuracy 50.0%, nothing right of broken (0 of 5)"
    assert f"of 100 images{remark}; not shown to be better than always fine" in report.summary
    assert f"95 of 100{remark} (95% interval" in str(report)
    even = dataclasses.replace(report, true=np.repeat([0, 1], [79, 21]))
    assert "of 100 images; not shown to be better" in even.summary


def test_a_class_without_images_has_no_numbers_and_three_classes_no_top_5(tmp_path):
    report = reports_by_task.ClassificationReport(
        class_names=("ant", "bee", "crow"),
        true=np.array([0, 0, 1]),
        given=np.array([0, 2, 1]),
        probability=np.array([0.5, 0.6, 0.7]),
        in_top_5=3,
        loss=1.0,
    )
    report.write(tmp_path)
    text, table = str(report), (tmp_path / "per_class.csv").read_text()
    metrics = (tmp_path / "metrics.json").read_text()
    for shown in (text, report.summary, metrics):  # Five classes are always all of the five.
        assert "top_5" not in shown
        assert "top-5" not in shown
    assert not any("nan" in written.lower() for written in (text, table, metrics))
    assert "\nnot in the means, as no image has it: crow\n" in text
    assert json.loads(metrics)["by_class"]["crow"]["recall"] is None


def test_precision_recall_and_f1_are_those_of_scikit_learn(report, scores):
    metrics = pytest.importorskip("sklearn.metrics")
    predicted, labels = scores[0].argmax(axis=1), scores[1]
    options = {"labels": range(len(NAMES)), "zero_division": 0}
    expected = metrics.precision_recall_fscore_support(labels, predicted, **options)
    found = report.counts
    for ours, theirs in zip(
        (found.precision, found.recall, found.f1, found.images), expected, strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    means = report.means
    balanced = metrics.balanced_accuracy_score(labels, predicted)
    assert means["balanced_accuracy"] == pytest.approx(balanced, abs=1e-6)
    f1 = metrics.f1_score(labels, predicted, average="macro", **options)
    assert means["macro_F1"] == pytest.approx(f1, abs=1e-6)
    assert f"{balanced:.1%} (balanced accuracy)" in str(report)


def test_every_answer_is_a_row_and_the_most_confident_errors_are_shown(
    report, scores, data, tmp_path
):
    report.write(tmp_path)
    with open(tmp_path / "answers.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    probabilities, labels = scores
    given = probabilities.argmax(axis=1)
    assert [row["true"] for row in rows] == [NAMES[k] for k in labels]
    assert [row["answer"] for row in rows] == [NAMES[k] for k in given]
    found = [float(row["probability"]) for row in rows]
    np.testing.assert_allclose(found, probabilities.max(axis=1), rtol=1e-4)
    assert [row["right"] == "1" for row in rows] == (given == labels).tolist()
    wrong = sorted(
        (row for row in rows if row["right"] == "0"), key=lambda r: -found[rows.index(r)]
    )
    page = (tmp_path / "report.html").read_text().partition('id="most-confident-errors"')[2]
    assert re.findall(r'href="file://([^"]*)"', page) == [row["image"] for row in wrong]
    assert page.count('src="data:image/jpeg;base64,') == 2 * len(wrong)  # And what the model saw.
    assert f"{len(wrong)} of {len(rows)} images have a wrong answer." in page


def test_a_class_that_the_classifier_does_not_know_is_named(model, data):
    names = ("cat", *NAMES[1:])
    with pytest.raises(ValueError, match="Received: .* with ant"):
        evaluate_classifier(Predictor(model, names, PREPROCESSING), data)
