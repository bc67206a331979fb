"""An export in another runtime than TensorFlow is run without TensorFlow, Keras and SciPy."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit.answering import decision_hash
from keras_vit.classifier import Classifier
from keras_vit.description.decision import Decision
from keras_vit.training.evaluation.classification import evaluate_classifier
from makers import write_classes

PROGRAM = """
import sys

class Absent:
    def find_spec(name, path=None, target=None):
        if name in ("tensorflow", "keras", "jax", "scipy"):
            raise ModuleNotFoundError(f"No module named {name}")

sys.meta_path.insert(0, Absent)
from keras_vit.command_line import main
sys.exit(main(sys.argv[1:]))
"""


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    path = tmp_path_factory.mktemp("photo") / "photo.jpg"
    values = np.random.RandomState(1).randint(0, 256, (6, 8, 3), dtype="uint8")
    Image.fromarray(values).resize((83, 61)).save(path)
    return path


def test_predict_needs_neither_and_answers_as_the_classifier(path_of, classifier, photo):
    done = run("predict", path_of("onnx"), photo, "--format", "json", "--top", "2")
    assert done.returncode == 0, done.stderr
    (received,) = json.loads(done.stdout)
    (expected,) = classifier.predict(photo, top=2)
    assert {entry["class"]: entry["probability"] for entry in received["top"]} == {
        label: pytest.approx(value, abs=1e-5) for label, value in expected.top
    }


@pytest.mark.parametrize("form", ["folder", "table"])
def test_evaluate_needs_neither_and_gives_the_figures_of_the_keras_model(
    path_of, classifier, tmp_path, form
):
    data = tmp_path / "data"
    write_classes(data, 3, {"grey owl": 90, "red fox": (200, 80, 30)}, suffix=".jpg")
    (data / "red fox" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    if form == "table":
        data = tmp_path / "table.csv"
        rows = [f"{file},{file.parent.name}" for file in sorted(tmp_path.rglob("*.jpg"))]
        data.write_text("\n".join(["path,label", *rows]))
    report = tmp_path / "report"
    done = run("evaluate", path_of("onnx"), "--data", data, "--output", report)
    assert done.returncode == 0, done.stderr
    received = json.loads((report / "metrics.json").read_text())
    expected = evaluate_classifier(classifier, data).to_json()
    assert [path for path, _ in received.pop("skipped")] == [
        path for path, _ in expected.pop("skipped")
    ]
    for numbers in (received, expected):
        del numbers["images_per_second"]
    assert received.pop("loss") == pytest.approx(expected.pop("loss"), abs=1e-4)
    assert received.pop("calibration") == {
        name: pytest.approx(value, abs=1e-4) for name, value in expected.pop("calibration").items()
    }
    assert received == json.loads(json.dumps(expected))


def test_an_evaluation_with_unknown_needs_neither_and_gives_the_figures_of_the_keras_model(
    classifier, tmp_path
):
    decision = Decision(temperature=1.5, threshold=0.98, sha256=decision_hash(classifier.model, {}))
    description = dataclasses.replace(classifier.description, decision=decision)
    deciding = Classifier.of(classifier.model, description)
    path, data = tmp_path / "animals.onnx", tmp_path / "data"
    keras_vit.export.onnx(deciding, path, check_images=classifier.folder / "samples")
    write_classes(data, 9, {"grey owl": 90, "red fox": (200, 80, 30)}, suffix=".jpg", noise=60)

    expected = evaluate_classifier(deciding, data)
    assert 0 < expected.selective.answered < expected.count
    report = tmp_path / "report"
    done = run("evaluate", path, "--data", data, "--output", report)
    assert done.returncode == 0, done.stderr
    assert expected.selective.lines()[0] in done.stdout  # With its exact interval.
    received = json.loads((report / "metrics.json").read_text())["decision"]
    before = received.pop("uncalibrated")
    wanted = expected.to_json()["decision"]
    assert before["expected_error"] == pytest.approx(
        wanted.pop("uncalibrated")["expected_error"],
        abs=1e-4,  # Logarithms of float32 probabilities.
    )
    assert received == wanted


@pytest.mark.parametrize("name", ["onnx", "tflite"])
def test_verify_needs_neither(path_of, name):
    done = run("verify", path_of(name))
    assert done.returncode == 0, done.stderr
    assert "Golden samples: pixels equal" in done.stdout


@pytest.mark.parametrize("name", ["saved_model", "tflite"])  # The TFLite file takes no pixels.
def test_an_export_that_needs_tensorflow_says_so_in_its_last_line(path_of, photo, name):
    done = run("predict", path_of(name), photo)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == "keras-vit: No module named tensorflow"
