"""The programs of examples/, each in a separate process and folder."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import requests
from PIL import Image

import keras_vit

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"

# What the program prints: a pattern, and the least and the largest value of its number.
PRINTED = {
    "finetune_with_fit": [
        (r"accuracy on 226 held-out digits: ([\d.]+)%", 75, 100),
        (r"digit.png is \('digit 0', ([\d.]+)\)", 0.5, 1),
    ],
    "freeze_and_probe": [
        (r"accuracy of the probe: ([\d.]+)%", 85, 100),
        (r"accuracy of the whole model: ([\d.]+)%", 85, 100),
        (r"features: (\d+) numbers an image", 128, 128),
    ],
    "nearest_images": [(r"same class as the nearest image: ([\d.]+)%", 70, 100)],
    "attention_on_a_photo": [
        (r"00.jpg is airplane \((\d+)%\)", 60, 80),
        (r"most attention: .*, ([\d.]+) times the mean", 1.5, 4),
        (r"layer 5: .* about (\d+) of 65", 30, 60),
    ],
    "predict_onnx": [(r"^([\d.]+)%  unknown", 66, 67)],
    "digits": [
        (r"its own 0-4: ([\d.]+)%", 97, 100),
        (r"after transfer to 5-9: ([\d.]+)%", 97, 100),
        (r"same answer: ([\d.]+)%", 100, 100),
    ],
    "several_labels": [(r"mAP +([\d.]+)", 0.65, 1), (r"exact +([\d.]+)", 20, 100)],
    "two_replicas": [
        (r"replicas: (2), losses", 2, 2),
        (r"largest difference of a loss: (\S+)", 0, 1e-5),
        (r"largest difference of a weight: (\S+)", 0, 1e-5),
    ],
}
GIVEN = {"predict_onnx": ["model.onnx", "noise.png"], "digits": ["demo"]}
WRITTEN = {
    "finetune_with_fit": "digits-classifier/model.keras",
    "nearest_images": "nearest.png",
    "attention_on_a_photo": "attention.png",
    "several_labels": "runs/labels/description.json",
}


def test_every_example_is_run_and_is_in_the_table():
    programs = {path.stem for path in EXAMPLES.glob("*.py")}
    assert programs == {*PRINTED, "serve", "beam_predict", "run_saved_model"}
    table = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert programs == set(re.findall(r"^\| \[(\w+)\.py\]", table, re.M))


def write_given(folder):
    """Writes an ONNX export of a classifier with "unknown", and a picture of nothing."""
    keras_vit.export.onnx("vit_mini4_cifar10", folder / "model.onnx")
    noise = np.random.default_rng(0).integers(0, 256, (40, 48, 3), "uint8")
    Image.fromarray(noise).save(folder / "noise.png")


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs(name, tmp_path):
    if name == "predict_onnx":
        write_given(tmp_path)
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *GIVEN.get(name, ())],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for pattern, least, most in PRINTED[name]:
        found = re.search(pattern, done.stdout)
        assert found, done.stdout
        assert least <= float(found[1]) <= most, found[0]
    if name in WRITTEN:
        assert (tmp_path / WRITTEN[name]).stat().st_size > 0
    if name == "freeze_and_probe":
        assert "the body is unchanged: True" in done.stdout


def wait_until_it_answers(server, address):
    for _ in range(240):
        assert server.poll() is None, "The server ended."
        with contextlib.suppress(requests.ConnectionError):
            if requests.get(f"{address}/health", timeout=10).ok:
                return
        time.sleep(0.5)
    raise TimeoutError


@pytest.mark.slow
def test_the_server_answers_clients_as_predict_does_and_has_the_page(tmp_path):
    pytest.importorskip("litserve")
    write_given(tmp_path)
    classifier = keras_vit.export.load_artefact(tmp_path / "model.onnx")
    (tmp_path / "photos.html").write_text("<p>The page</p>")
    (tmp_path / "notes.txt").write_text("no image")
    samples = keras_vit.load_classifier("r14_vit_micro16_cifar10").folder / "samples"
    photos = [*sorted(samples.iterdir())[:6], tmp_path / "noise.png", tmp_path / "notes.txt"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"

    def answer(photo):
        files = {"image": (photo.name, photo.read_bytes())}
        response = requests.post(f"{address}/classify", files=files, timeout=100)
        assert response.status_code == 200, response.text
        return response.json()

    options = ["model.onnx", "--port", str(port), "--page", "photos.html"]
    server = subprocess.Popen(
        [sys.executable, EXAMPLES / "serve.py", *options],
        cwd=tmp_path,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        start_new_session=True,
    )
    try:
        wait_until_it_answers(server, address)
        assert requests.get(f"{address}/page", timeout=10).text == "<p>The page</p>"
        with ThreadPoolExecutor(len(photos)) as clients:
            received = list(clients.map(answer, photos))
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    for ours, expected in zip(received, classifier.predict(photos), strict=True):
        assert ours.get("error") == expected.error
        assert {row["class"]: row["probability"] for row in ours["top"]} == {
            name: pytest.approx(value, abs=1e-5) for name, value in expected.top
        }
    assert received[6]["answer"] == "unknown"


@pytest.mark.slow
def test_a_beam_pipeline_answers_each_photo_once_as_the_classifier_does(tmp_path):
    """In an environment without this package; `BEAM_PYTHON` names one that exists already."""
    python = os.environ.get("BEAM_PYTHON")
    if python is None:
        subprocess.run([sys.executable, "-m", "venv", tmp_path / "environment"], check=True)
        python = tmp_path / "environment" / "bin" / "python"
        packages = ["apache-beam", "onnxruntime", "pillow"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    classifier = keras_vit.load_classifier("vit_mini4_cifar10")
    keras_vit.export.onnx(classifier, tmp_path / "cifar10.onnx")
    shutil.copytree(classifier.folder / "samples", tmp_path / "photos")
    (tmp_path / "photos" / "notes.png").write_text("no photo")
    program = [python, EXAMPLES / "beam_predict.py", "cifar10.onnx", "photos/*", "answers"]
    subprocess.run([*program, "--runner", "DirectRunner"], cwd=tmp_path, check=True)
    rows = [json.loads(line) for file in tmp_path.glob("answers-*") for line in file.open()]
    assert "cannot identify image file" in rows.pop(_place_of("notes.png", rows))["error"]
    expected = classifier.predict(
        [tmp_path / "photos" / pathlib.Path(r["path"]).name for r in rows]
    )
    assert [row["answer"] for row in rows] == [prediction.answer for prediction in expected]
    assert {pathlib.Path(row["path"]).name for row in rows} == {
        path.name for path in (classifier.folder / "samples").iterdir()
    }


def _place_of(name, rows):
    return next(place for place, row in enumerate(rows) if row["path"].endswith(name))


def test_the_notebook_opens_in_colab_and_installs_from_the_same_repository():
    path = EXAMPLES / "phone_and_browser.ipynb"
    first, install = json.loads(path.read_text())["cells"][:2]
    address = "https://colab.research.google.com/github/(.+)/blob/main/examples/"
    opened = re.search(address + re.escape(path.name), "".join(first["source"]))
    installed = re.search('@ git\\+https://github.com/([^"]+)"', "".join(install["source"]))
    assert opened[1] == installed[1]


@pytest.mark.slow
def test_the_notebook_runs(tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    path = EXAMPLES / "phone_and_browser.ipynb"
    assert path.stat().st_size < 300_000
    notebook = nbformat.read(path, as_version=4)
    committed = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs for cell in committed if "report" in cell.source)
    nbclient.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": tmp_path}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    texts = "".join(output.get("text", "") for output in outputs)
    assert float(re.search(r"top-1 +([\d.]+)", texts)[1]) > 0.8
    assert (tmp_path / "photos.tflite").stat().st_size > 1_000_000
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 2
