"""Multi-label training, from a CSV file to a classifier's folder."""

import csv
import dataclasses
import json
import re

import numpy as np
import pytest
import tensorflow as tf
from runs import tiny_settings

import keras_vit.export
from keras_vit.command_line import main
from keras_vit.description.run_record import RunRecord
from keras_vit.export import convert
from keras_vit.models.rebuild import inference_model
from keras_vit.opening import open_model, open_predictor
from keras_vit.predictor import Predictor
from keras_vit.training.data import DataSpec, open_source
from keras_vit.training.data.spec import spec_of_run
from keras_vit.training.evaluation.classification import evaluate_classifier
from keras_vit.training.evaluation.results import Result
from keras_vit.training.run.finetune import finetune
from makers import write_picture

CHANNELS = ("red", "green", "blue")
SETTINGS = tiny_settings(
    image_size=(8, 8), steps=40, batch_size=8, learning_rate=3e-3, optimizer="adam",
    evaluate_every=20, validation=0.25, augmentation="none", mixup=0.1, samples=None,
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Noise in which each colour is bright where the image has its label, or none is."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    rows = ["path,label,split"]
    for number in range(64):
        bright = [bool(number >> bit & 1) for bit in range(3)]
        pixels = rng.normal(np.where(bright, 200, 50), 25, (9, 8, 3))
        write_picture(folder / f"{number}.png", pixels)
        names = ";".join(name for name, is_on in zip(CHANNELS, bright, strict=True) if is_on)
        rows.append(f"{number}.png,{names},{'test' if number < 16 else 'train'}")
    path = folder / "labels.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def done(data, tmp_path_factory):
    output, lines = tmp_path_factory.mktemp("runs") / "several", []
    finished = finetune(data, output, SETTINGS, command="keras-vit finetune", log=lines.append)
    return finished, output, "\n".join(lines)


def test_a_classifier_learns_labels(done):
    finished, _, _ = done
    report = finished.report
    assert (report.count, report.counts.images.tolist()) == (16, [8, 8, 8])
    assert report.score > 0.95
    assert report.macro_f1 > 0.9


def test_the_written_classifier_gives_each_image_its_labels(done, data):
    _, output, _ = done
    classifier = open_predictor(output)
    assert classifier.task == "multilabel"
    assert classifier.class_names == ("blue", "green", "red")
    (both,) = classifier.predict(data.parent / "5.png")  # Bits 0 and 2.
    assert set(both.labels) == {"red", "blue"}
    (nothing,) = classifier.predict(data.parent / "8.png")
    assert nothing.labels == ()
    assert len(nothing.top) == 3


def test_the_recipe_has_the_loss_of_the_task(done):
    finished, _, _ = done
    assert finished.classifier.recipe["settings"]["loss"] == "sigmoid"
    assert finished.classifier.recipe["task"] == "multilabel"


def test_the_printed_numbers_are_of_the_task(done):
    _, _, text = done
    assert "multi-label" in text
    assert "probability above (best F1 in validation): blue 0." in text
    assert re.search(r"^test    16 images\nmAP     [01]\.", text, re.M)


def test_the_history_has_the_measures_of_the_task(done):
    finished, output, _ = done
    with open(output / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {"label_accuracy", "validation_mAP", "validation_loss"} < set(rows[-1])
    assert not {"accuracy", "validation_accuracy"} & set(rows[-1])
    best = finished.classifier.recipe["best"]
    assert best["mAP"] == pytest.approx(max(float(row["validation_mAP"]) for row in rows), abs=1e-5)


def test_thresholds_are_those_of_the_validation_images(done, data):
    finished, output, _ = done
    recipe = RunRecord.from_json(finished.classifier.recipe)
    validation = open_source(spec_of_run(recipe, DataSpec(data)), 0.25)
    examples = validation.splits["validation"]
    classifier = open_predictor(output)
    found = classifier.predict(examples.names, top=3)
    f1_score = pytest.importorskip("sklearn.metrics").f1_score
    assert len(classifier.class_names)
    for number, name in enumerate(classifier.class_names):
        scores = np.array([dict(prediction.top)[name] for prediction in found])
        label, threshold = examples.labels[:, number], classifier.thresholds[number]
        best = max(f1_score(label, scores >= score) for score in scores)
        assert f1_score(label, scores > threshold) == pytest.approx(best)


def test_the_model_card_and_the_result_have_the_numbers(done):
    finished, output, _ = done
    score = f"mAP {finished.report.score:.4f}, F1"
    assert score in (output / "README.md").read_text()
    result = Result.of_run(output)
    assert (result.protocol, result.images) == ("multilabel", 16)
    assert result.metrics["mAP"] == finished.report.score


def test_softmax_is_refused_before_anything_is_written(data, tmp_path):
    settings = dataclasses.replace(SETTINGS, loss="softmax")
    with pytest.raises(ValueError, match="sigmoid .--loss"):
        finetune(data, tmp_path / "new", settings, log=lambda text: None)
    assert not list(tmp_path.iterdir())


def test_a_classifier_of_one_class_does_not_take_several_labels(done, data, tmp_path):
    finished, _, _ = done
    plain = inference_model(finished.classifier.model)
    names, preprocessing = finished.classifier.class_names, finished.classifier.preprocessing
    with pytest.raises(ValueError, match="--task multilabel"):
        evaluate_classifier(Predictor(plain, names, preprocessing), data)


@pytest.mark.slow
def test_the_head_is_kept_by_name(done, data, tmp_path):
    finished, output, _ = done
    settings = dataclasses.replace(
        SETTINGS, model=None, weights=str(output), head="keep", learning_rate=1e-6, steps=1,
        evaluate_every=1, validation=0.0,
    )  # fmt: skip
    again = finetune(data, tmp_path / "again", settings, log=lambda text: None)
    assert again.report.score == pytest.approx(finished.report.score, abs=1e-3)
    assert again.classifier.thresholds == (0.5, 0.5, 0.5)  # Without validation images.
    assert open_source(data).task == "multilabel"


@pytest.mark.slow
def test_a_saved_model_gives_the_labels(done, data, tmp_path):
    finished, output, _ = done
    report = keras_vit.export.saved_model(output, tmp_path / "1")
    assert report.agreement == 1
    files = [data.parent / f"{number}.png" for number in range(10)]
    loaded = tf.saved_model.load(report.path)
    encoded = [*(file.read_bytes() for file in files), b"no image"]
    answer = loaded.signatures["serve_bytes"](images=tf.constant(encoded))
    names = finished.classifier.class_names
    given = [{names[k] for k in np.flatnonzero(row)} for row in answer["predicted"].numpy()]
    assert given[:-1] == [set(found.labels) for found in finished.classifier.predict(files)]
    assert given[-1] == set()  # It is not valid.


@pytest.fixture
def predict(done, data, capsys):
    """Prints the labels of two images in a format."""
    _, output, _ = done
    files = [str(data.parent / name) for name in ("5.png", "8.png")]

    def printed(form):
        assert main(["predict", str(output), *files, "--format", form]) == 0
        return capsys.readouterr().out

    return printed


def test_predict_shows_the_labels(predict):
    text = predict("text")
    assert re.search(r"5.png\n  labels: (red, blue|blue, red)\n", text)
    assert "8.png\n  labels: none\n" in text


def test_csv_of_predict_has_the_labels(predict):
    rows = list(csv.DictReader(predict("csv").splitlines()))
    assert set(rows[0]["labels"].split(";")) == {"red", "blue"}


def test_json_of_predict_has_the_labels(predict):
    assert [len(entry["labels"]) for entry in json.loads(predict("json"))] == [2, 0]


@pytest.mark.parametrize("to", ["huggingface", "official"])
def test_converters_keep_several_labels(done, tmp_path, to):
    finished, output, _ = done
    place = tmp_path / ("out.npz" if to == "official" else "out")
    notes = convert(output, place, to=to)
    assert any("thresholds of the labels have no place" in note for note in notes)
    if to == "huggingface":
        config = json.loads((place / "config.json").read_text())
        assert config["problem_type"] == "multi_label_classification"
    assert "multi-label" in open_model(place).description.facts
    assert "multi-label and has no thresholds; each is 0.5" in " ".join(
        convert(place, tmp_path / "back")
    )
    back = open_predictor(tmp_path / "back")
    assert (back.task, back.thresholds) == ("multilabel", (0.5, 0.5, 0.5))
    images = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")
    np.testing.assert_allclose(back.model(images), finished.classifier.model(images), atol=1e-6)
