"""Exports run with the packages that docs/export.md installs, without TensorFlow and Keras."""

import importlib.metadata
import json
import pathlib
import re
import subprocess
import sys

import pytest
from packaging.requirements import Requirement

from makers import write_classes

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORMATS = ("onnx", "tflite", "openvino")

# Runs commands where only some of the installed distributions can be imported.
PROGRAM = """
import contextlib, importlib.metadata, io, json, sys

commands, present = json.load(sys.stdin)
distributions = importlib.metadata.packages_distributions()

class Absent:
    def find_spec(name, path=None, target=None):
        of_name = {d.replace("_", "-") for d in distributions.get(name.partition(".")[0], ())}
        if of_name and not of_name & set(present):
            raise ModuleNotFoundError(f"No module named {name}")

sys.meta_path.insert(0, Absent)
from keras_vit.command_line import main
results = []
for command in commands:
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        code = main(command)
    results.append((code, out.getvalue(), err.getvalue()))
json.dump(results, sys.stdout)
"""


def installed_by_the_page():
    """What its line installs, the other two runtimes, and what all of them require."""
    page = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"pip install --no-deps \. && pip install (.*)", page)
    found, waiting = {"keras-vit-applications"}, [*line.split(), "ai-edge-litert", "openvino"]
    while waiting:
        name = waiting.pop().replace("_", "-")
        if name not in found:
            found.add(name)
            needed = map(Requirement, importlib.metadata.requires(name) or ())
            waiting += [each.name for each in needed if not each.marker or each.marker.evaluate()]
    return sorted(found)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    return write_classes(data, 3, {"grey owl": 90, "red fox": (200, 80, 30)}, suffix=".jpg")


@pytest.fixture(scope="module")
def results(path_of, photos):
    """Exit code, output and errors of commands, by name, all run in one process."""
    commands = {"predict saved_model": ["predict", str(path_of("saved_model")), str(photos)]}
    for name in FORMATS:
        path = str(path_of(name))
        commands[f"predict {name}"] = ["predict", path, str(photos), "--format", "json"]
        commands[f"verify {name}"] = ["verify", path]
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM],
        input=json.dumps([list(commands.values()), installed_by_the_page()]),
        stdout=subprocess.PIPE,  # A failure is shown with the rest of the output.
        text=True,
        check=True,
    )
    return dict(zip(commands, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("name", FORMATS)
def test_predict_and_verify_need_neither_and_answer_as_the_classifier(
    results, classifier, photos, name
):
    code, output, errors = results[f"predict {name}"]
    assert code == 0, errors
    for received, expected in zip(json.loads(output), classifier.predict(photos), strict=True):
        assert {entry["class"]: entry["probability"] for entry in received["top"]} == {
            label: pytest.approx(value, abs=1e-5) for label, value in expected.top
        }
    code, output, errors = results[f"verify {name}"]
    assert code == 0, errors
    assert "Golden samples: probabilities" in output


def test_an_export_that_needs_tensorflow_says_so_in_its_last_line(results):
    code, output, errors = results["predict saved_model"]
    assert (code, output) == (2, "")
    assert errors.splitlines()[-1] == "keras-vit: No module named tensorflow"
