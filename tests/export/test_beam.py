"""Beam jobs, in a separate environment, since apache-beam replaces protobuf 7 by 6."""

import contextlib
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import types
from unittest.mock import Mock

import numpy as np
import pytest

from keras_vit import command_line
from keras_vit.models.rebuild import feature_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "export" / "programs" / "beam_jobs.py"
START = "import sys; from keras_vit.command_line import main; sys.exit(main(sys.argv[1:]))"
TWO_PROCESSES = "--direct_running_mode=multi_processing --direct_num_workers=2"

# Names the Python of an environment that has apache-beam and TensorFlow already.
PYTHON = "BEAM_PYTHON"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Returns the Python of an environment with the extra `beam`."""
    if PYTHON in os.environ:
        return os.environ[PYTHON]
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--editable", f"{ROOT}[beam]"]
    subprocess.run(install, check=True)
    return str(python)


def predict(python, classifier, images, output):
    return subprocess.Popen(
        [python, "-P", "-c", START, "predict", str(classifier.folder), *map(str, images)]
        + ["--beam-runner", "DirectRunner", f"--beam-options={TWO_PROCESSES}"]
        + ["--output", str(output), "--batch-size", "4"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def processes_with(path):
    """Returns the other processes that have a file open."""
    found = set()
    for link in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # A process that has ended, or of another user.
            if os.readlink(link) == str(path):
                found.add(int(link.parts[2]))
    return found - {os.getpid()}


def read(output):
    """Returns the answers in files of lines of JSON, by path."""
    lines = [
        json.loads(line)
        for file in sorted(output.parent.glob(f"{output.stem}-*-of-*{output.suffix}"))
        for line in file.read_text().splitlines()
    ]
    answers = {line["path"]: line for line in lines}
    assert len(answers) == len(lines)  # Each image once.
    return answers


def check_equal(answers, predictions):
    assert set(answers) == {prediction.path for prediction in predictions}
    for prediction in predictions:
        ours, theirs = answers[prediction.path], prediction.to_json()
        assert ours.get("error") == theirs.get("error")
        assert [row["class"] for row in ours["top"]] == [row["class"] for row in theirs["top"]]
        for row, expected in zip(ours["top"], theirs["top"], strict=True):
            assert row["probability"] == pytest.approx(expected["probability"], abs=1e-5)


@pytest.fixture
def module(monkeypatch):
    """The module with a Beam that has nothing but what a handler calls."""
    names = ("", ".io", ".io.fileio", ".io.filesystems", ".ml", ".ml.inference")
    stubs = {f"apache_beam{name}": types.ModuleType(f"apache_beam{name}") for name in names}
    base = stubs["apache_beam.ml.inference.base"] = types.ModuleType("base")
    base.ModelHandler = type("ModelHandler", (), {"__init__": lambda self, **_: None})
    counter = types.SimpleNamespace(inc=lambda: None)
    metrics = types.SimpleNamespace(counter=lambda *_: counter)
    stubs["apache_beam"].metrics = types.SimpleNamespace(Metrics=metrics)
    for name, stub in stubs.items():
        monkeypatch.setitem(sys.modules, name, stub)
    spec = importlib.util.find_spec("keras_vit.export.beam")
    loaded = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, loaded)  # Dataclasses look for it.
    spec.loader.exec_module(loaded)
    return loaded


def test_a_bundle_that_is_lost_in_its_middle_is_answered_when_it_comes_again(
    module, classifier, files, monkeypatch
):
    handler = module.ClassifyImages(classifier.folder, top=3)
    loaded = handler.load_model()
    images = [str(path) for path in files[:6]]

    def answers(paths):
        return {answer.path: answer.to_json() for answer in handler.run_inference(paths, loaded)}

    compute = loaded.classifier.probabilities
    with monkeypatch.context() as patched:
        failing = Mock(side_effect=[RuntimeError("a lost worker"), compute])
        patched.setattr(type(loaded.classifier), "probabilities", failing)
        with pytest.raises(RuntimeError, match="a lost worker"):
            answers(images)
    interrupted = handler.run_inference(images, loaded)
    next(interrupted)
    interrupted.close()  # An exception behind the handler in the pipeline.
    expected = {each.path: each.to_json() for each in classifier.predict(files[:6], top=3)}
    again = answers(images[:4]) | answers([images[5], images[4], images[5]])  # Other bundles.
    assert set(again) == set(expected)
    for path, answer in again.items():
        for row, other in zip(answer["top"], expected[path]["top"], strict=True):
            assert row["class"] == other["class"]
            assert row["probability"] == pytest.approx(other["probability"], abs=1e-5)


@pytest.mark.slow
def test_two_processes_answer_as_predict_does_and_each_image_once(
    python, classifier, files, tmp_path
):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    images = [*files, broken]
    job = predict(python, classifier, images, tmp_path / "answers.jsonl")
    _, messages = job.communicate()
    assert job.returncode == 1, messages[-3000:]
    assert messages.splitlines()[-1] == "keras-vit: 1 images could not be read"
    check_equal(read(tmp_path / "answers.jsonl"), classifier.predict(images))


@pytest.mark.slow
def test_a_killed_worker_loses_nothing(python, classifier, files, tmp_path):
    waiting = tmp_path / "waiting.png"
    os.mkfifo(waiting)
    job = predict(python, classifier, [*files, waiting], tmp_path / "answers.jsonl")
    with open(waiting, "wb"):  # Once a worker opens it to read.
        (reader,) = processes_with(waiting)
        os.kill(reader, signal.SIGKILL)
        while pathlib.Path(f"/proc/{reader}").exists():  # It closes the file last.
            time.sleep(0.1)
    with open(waiting, "wb") as pipe:
        pipe.write(files[5].read_bytes())
    _, messages = job.communicate(timeout=300)
    assert job.returncode == 0, messages[-3000:]
    assert "The pipeline failed and is run again" in messages
    answers = read(tmp_path / "answers.jsonl")
    same = classifier.predict(files[5])[0]._replace(path=str(waiting))
    check_equal(answers, [*classifier.predict(files), same])


@pytest.fixture(scope="module")
def jobs(python, classifier, files, tmp_path_factory):
    """Returns the folder with the answers of the program."""
    folder = tmp_path_factory.mktemp("jobs")
    subprocess.run(
        [python, "-P", PROGRAM, classifier.folder, files[0].parent, folder / "answers"],
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return folder


@pytest.mark.slow
def test_a_handler_takes_bytes_and_gives_features(jobs, classifier, files):
    lines = [path.read_text().splitlines() for path in jobs.glob("answers-*")]
    answers = dict(json.loads(line) for line in sum(lines, []))
    (expected,) = classifier.predict(files[0], top=2)
    probabilities = [row["probability"] for row in answers["bytes"]["top"]]
    np.testing.assert_allclose(probabilities, [value for _, value in expected.top], atol=1e-5)
    assert answers["bytes"]["path"] == ""
    assert "No such file" in answers["missing"]["error"]
    images = classifier.input_of(files[0].read_bytes())[np.newaxis]
    values = feature_model(classifier.model).predict_on_batch(images)[0]
    np.testing.assert_allclose(answers["features"], values, atol=1e-5)


@pytest.mark.slow
def test_models_and_folders_of_images_may_be_urls(jobs, classifier, files):
    predictions = classifier.predict(files)
    of_urls = [each._replace(path=f"copied:/{each.path}") for each in predictions]
    check_equal(read(jobs / "answers_of_urls"), of_urls)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "answers.jsonl"], "--output goes with --beam-runner"),
        (["--beam-options=--region=x"], "--beam-options goes with --beam-runner"),
        (["--beam-runner", "DirectRunner"], "--beam-runner needs --output"),
        (
            ["--beam-runner", "DirectRunner", "--output", "answers.jsonl", "--format", "csv"],
            "--beam-runner needs --output, and goes without --strict and --format",
        ),
    ],
)
def test_options_that_do_not_go_together_are_one_line(
    classifier, files, capsys, arguments, message
):
    assert command_line.main(["predict", str(classifier.folder), str(files[0]), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.skipif(importlib.util.find_spec("apache_beam") is not None, reason="Beam is installed")
def test_without_beam_the_extra_is_named(classifier, files, capsys, tmp_path):
    arguments = ["--beam-runner", "DirectRunner", "--output", str(tmp_path / "answers.jsonl")]
    assert command_line.main(["predict", str(classifier.folder), str(files[0]), *arguments]) == 2
    assert ".[beam]" in capsys.readouterr().err
