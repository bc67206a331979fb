import csv
import io
import json
import pathlib
import shutil
import sys

import numpy as np
import pytest

from keras_vit.checkpoints.catalogue import RELEASED
from keras_vit.command_line import main
from keras_vit.opening import open_predictor


@pytest.fixture
def images(colors, tmp_path):
    folder = tmp_path / "images"
    shutil.copytree(colors / "test", folder)
    return folder


@pytest.fixture
def with_damage(images):
    (images / "red" / "broken.png").write_bytes(b"no image")
    return images


@pytest.fixture
def predicted(command, tiny, images):
    """Returns the classifier's predictions, and a function that prints them in a format."""

    def printed(form):
        outcome = command("predict", tiny, images, "--format", form, "--top", 2)
        assert outcome.code == 0, outcome.err
        return outcome.out

    return open_predictor(tiny).predict(images, top=2), printed


def test_json_has_the_predictions(predicted):
    expected, printed = predicted
    for entry, prediction in zip(json.loads(printed("json")), expected, strict=True):
        assert entry["path"] == prediction.path
        top = [(item["class"], item["probability"]) for item in entry["top"]]
        assert top == [(name, pytest.approx(p, abs=1e-6)) for name, p in prediction.top]


def test_csv_has_a_row_for_each_class_of_an_image(predicted):
    expected, printed = predicted
    rows = csv.DictReader(io.StringIO(printed("csv")))
    assert [(row["path"], row["rank"], row["class"]) for row in rows] == [
        (prediction.path, str(rank), name)
        for prediction in expected
        for rank, (name, _) in enumerate(prediction.top, 1)
    ]


def test_csv_has_the_probabilities_to_six_digits(predicted):
    expected, printed = predicted
    found = [float(row["probability"]) for row in csv.DictReader(io.StringIO(printed("csv")))]
    wanted = [probability for prediction in expected for _, probability in prediction.top]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


def test_text_has_the_classes_in_percent(predicted):
    expected, printed = predicted
    text = printed("text")
    assert len(expected)
    for prediction in expected:
        assert f"{prediction.path}\n" in text
        assert f"{prediction.top[0][1]:7.2%}  {prediction.top[0][0]}" in text


@pytest.mark.parametrize("form", ["json", "csv"])
def test_json_and_csv_are_utf_8_whatever_the_console(form, tiny, images, tmp_path, monkeypatch):
    image = shutil.copy(images / "red" / "0.png", tmp_path / "\u043a.png")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="cp1252"))
    assert main(["predict", str(tiny), str(image), "--format", form]) == 0
    assert str(image).encode() in sys.stdout.buffer.getvalue()


def test_the_classifiers_of_the_package_are_taken_by_name(command):
    sample = sorted((RELEASED[0].folder / "samples").iterdir())[0]
    outcome = command("predict", "cifar10", sample, "--top", "10")
    assert outcome.code == 0
    assert all(name in outcome.out for name in ("airplane", "truck"))


def test_samples_are_the_photos_in_the_folder_of_the_classifier(command):
    outcome = command("predict", "cifar10", "samples", "--format", "json")
    assert outcome.code == 0
    names = [pathlib.Path(entry["path"]).name for entry in json.loads(outcome.out)]
    assert names == [f"{number:02}.jpg" for number in range(32)]
    folder = pathlib.Path(json.loads(outcome.out)[0]["path"]).parent
    assert outcome.err.splitlines()[-1] == f"keras-vit: the photos in {folder}"


def test_a_folder_called_samples_comes_first(command, tiny, images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images.rename("samples")
    outcome = command("predict", tiny, "samples", "--format", "json")
    paths = [entry["path"] for entry in json.loads(outcome.out)]
    assert paths == [str(path) for path in sorted(pathlib.Path("samples").rglob("*.png"))]


def test_a_classifier_without_samples_is_named(refused, tiny, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(tiny, bare, ignore=shutil.ignore_patterns("samples"))
    assert f"Received: {bare}, " in refused("predict", bare, "samples")


@pytest.mark.parametrize("form", ["text", "json", "csv"])
def test_a_corrupt_image_is_reported_and_the_others_are_predicted(command, tiny, with_damage, form):
    outcome = command("predict", tiny, with_damage, "--format", form)
    assert outcome.code == 1
    assert "broken.png" in outcome.out
    assert len([line for line in outcome.err.splitlines() if "broken.png: " in line]) == 1
    if form == "json":
        entries = json.loads(outcome.out)
        assert len(entries) == 7
        assert [bool(entry["top"]) for entry in entries].count(True) == 6
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(outcome.out)))
        assert [row["path"].endswith("broken.png") for row in rows if row["error"]] == [True]
