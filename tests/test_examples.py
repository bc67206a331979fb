"""The programs of examples/, each in a separate process and folder."""

import ast
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
from keras_vit.opening import open_predictor

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
    "several_labels": [(r"mAP +([\d.]+)", 0.65, 1), (r"exact +([\d.]+)", 20, 100)],
    "two_replicas": [
        (r"replicas: (2), losses", 2, 2),
        (r"largest difference of a loss: (\S+)", 0, 1e-5),
        (r"largest difference of a weight: (\S+)", 0, 1e-5),
    ],
}
GIVEN = {"predict_onnx": ["model.onnx", "noise.png"]}
WRITTEN = {
    "finetune_with_fit": "digits-classifier/model.keras",
    "nearest_images": "nearest.png",
    "attention_on_a_photo": "attention.png",
    "several_labels": "runs/labels/description.json",
}


def test_every_example_is_run_and_is_in_the_table():
    programs = {path.stem for path in EXAMPLES.glob("*.py")}
    tested_here = {"serve", "beam_predict", "ray_predict"}
    tested_elsewhere = {"demo", "draw_parts", "run_saved_model", "labels_to_csv"}
    assert programs == {*PRINTED, *tested_here, *tested_elsewhere}
    table = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert programs == set(re.findall(r"^\| \[(\w+)\.py\]", table, re.M))


WITH_TENSORFLOW = sorted({*PRINTED} - {"predict_onnx"})


@pytest.mark.parametrize("name", WITH_TENSORFLOW)
def test_an_example_imports_tensorflow_quietly_before_all_that_import_it(name):
    statements = ast.parse((EXAMPLES / f"{name}.py").read_text()).body
    imports = [node for node in statements if isinstance(node, ast.Import | ast.ImportFrom)]
    calls = [node for node in statements if isinstance(node, ast.Expr)][1:]  # After the docstring.
    assert ast.unparse(calls[0]) == "import_tensorflow_quietly()"
    before = [ast.unparse(node) for node in imports if node.lineno < calls[0].lineno]
    *others, quiet = before
    assert quiet == "from keras_vit.utils.quiet_tensorflow import import_tensorflow_quietly"
    assert {other.split()[1] for other in others} <= sys.stdlib_module_names


def test_the_start_of_an_example_prints_no_line():
    source = (EXAMPLES / "finetune_with_fit.py").read_text()
    last = max(n.end_lineno for n in ast.parse(source).body if isinstance(n, ast.ImportFrom))
    start = "\n".join(source.splitlines()[:last])
    code = f"{start}\nkeras.ops.convert_to_numpy(keras.ops.zeros(1))\n"  # Starts the devices.
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


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
    classifier = keras_vit.load_classifier(tmp_path / "model.onnx")
    (tmp_path / "photos.html").write_text("<p>The page</p>")
    (tmp_path / "notes.txt").write_text("no image")
    samples = open_predictor("r14_vit_micro16_cifar10").folder / "samples"
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
    classifier = open_predictor("vit_mini4_cifar10")
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
    assert [row["answer"] for row in rows] == [prediction.label for prediction in expected]
    assert {pathlib.Path(row["path"]).name for row in rows} == {
        path.name for path in (classifier.folder / "samples").iterdir()
    }


def _place_of(name, rows):
    return next(place for place, row in enumerate(rows) if row["path"].endswith(name))


NUM_PHOTOS, NUM_BROKEN, PART_SIZE = 2000, 10, 100
PIXELS_OF_ALL = NUM_PHOTOS * 160 * 144 * 3  # Bytes; the sides are 160, and 128 or 160.


@pytest.fixture(scope="module")
def photos_for_ray(tmp_path_factory):
    """A folder with an ONNX export and 2,000 photos, ten of them broken, for `ray_predict`."""
    folder = tmp_path_factory.mktemp("million")
    keras_vit.export.onnx("vit_mini4_cifar10", folder / "model.onnx")
    (folder / "photos").mkdir()
    random = np.random.default_rng(0)
    for index in range(NUM_PHOTOS):
        pixels = random.integers(0, 256, (8, 8, 3), "uint8")
        photo = Image.fromarray(pixels).resize((160, 160 if index % 2 else 128))
        photo.save(folder / "photos" / f"photo {index}#.{'jpg' if index % 4 else 'png'}")
    for index, path in enumerate(sorted((folder / "photos").iterdir())[:NUM_BROKEN]):
        path.write_bytes(path.read_bytes()[:100] if index % 2 else b"no photo")
    return folder


@pytest.fixture(scope="module")
def ray_python(tmp_path_factory):
    """The Python of an environment with Ray; `RAY_PYTHON` names one that exists already."""
    if "RAY_PYTHON" in os.environ:
        return os.environ["RAY_PYTHON"]
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    packages = ["ray[data]", "onnxruntime", "pillow"]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


@pytest.fixture(scope="module")
def cluster(ray_python):
    """The address of a local cluster; its object store holds less than the pixels of all photos."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    store = 80_000_000
    assert store < PIXELS_OF_ALL
    options = ["--head", "--block", f"--port={port}", "--num-cpus=4"]
    options += [f"--object-store-memory={store}", "--disable-usage-stats"]
    ray = pathlib.Path(ray_python).parent / "ray"
    head = subprocess.Popen(
        [ray, "start", *options, "--include-dashboard=false"], start_new_session=True
    )
    try:
        for _ in range(240):
            assert head.poll() is None, "The cluster ended."
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            time.sleep(0.5)
        yield f"127.0.0.1:{port}"
    finally:
        head.terminate()
        head.wait(timeout=60)


@pytest.fixture
def start_ray(photos_for_ray, ray_python, cluster, tmp_path):
    """Starts `ray_predict` with two workers, which writes to `tmp_path`."""

    def start():
        program = [ray_python, EXAMPLES / "ray_predict.py", "model.onnx", "photos", tmp_path]
        options = ["--workers", "2", "--top", "10", "--part-size", str(PART_SIZE)]
        environment = {**os.environ, "RAY_ADDRESS": cluster}
        return subprocess.Popen([*program, *options], cwd=photos_for_ray, env=environment)

    return start


def _ray_processes():
    """The private bytes of each process of Ray by its number, and the numbers of the workers."""
    memory, workers = {}, set()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # A process that just ended.
            name = (process / "cmdline").read_text().strip("\0")
            private = re.search(r"RssAnon:\s+(\d+)", (process / "status").read_text())
            if name.startswith("ray::") and private:
                memory[int(process.name)] = int(private[1]) * 1024
                if "Classifier" in name:
                    workers.add(int(process.name))
    return memory, workers


def _count(folder):
    return PART_SIZE * len(list(folder.glob("part-*.jsonl")))


def _wait_for(program, folder, count):
    while _count(folder) < count:
        assert program.poll() is None, "The program ended."
        time.sleep(0.1)


def _assert_each_once(folder):
    """Returns the rows by name; none is missing or double."""
    parts = list(folder.glob("part-*.jsonl"))
    rows = [json.loads(line) for part in parts for line in part.open(encoding="utf-8")]
    by_name = {pathlib.Path(row["path"]).name: row for row in rows}
    assert len(rows) == len(by_name) == NUM_PHOTOS
    assert sum("error" in row for row in rows) == NUM_BROKEN
    return by_name


@pytest.mark.slow
def test_ray_answers_each_photo_as_predict_does_in_flat_memory(photos_for_ray, start_ray, tmp_path):
    program = start_ray()
    _wait_for(program, tmp_path, NUM_PHOTOS // 4)
    (quarter, workers), most = _ray_processes(), {}
    while program.poll() is None:
        now, _ = _ray_processes()
        if _count(tmp_path) >= NUM_PHOTOS * 3 // 4:
            most |= {number: max(size, most.get(number, 0)) for number, size in now.items()}
        time.sleep(0.1)
    assert program.returncode == 0
    answers = _assert_each_once(tmp_path)
    classifier = keras_vit.load_classifier(photos_for_ray / "model.onnx")
    for expected in classifier.stream(sorted((photos_for_ray / "photos").iterdir()), 10):
        row = answers[pathlib.Path(expected.path).name]
        assert ("error" in row) == (expected.error is not None)
        if expected.error is None:
            assert row["answer"] == expected.label
            assert {entry["class"]: entry["probability"] for entry in row["top"]} == {
                name: pytest.approx(value, abs=1e-6) for name, value in expected.top
            }
    growth = {number: most[number] - quarter[number] for number in most.keys() & quarter.keys()}
    print(f"growth of private memory {growth}, workers {workers}")
    assert len(workers & growth.keys()) == 2
    # In this time each of the two workers gets three eighths of the pixels.
    assert max(growth.values()) < PIXELS_OF_ALL / 8


@pytest.mark.slow
def test_ray_answers_each_photo_once_though_a_worker_is_killed(start_ray, tmp_path):
    program = start_ray()
    _wait_for(program, tmp_path, NUM_PHOTOS // 4)
    _, workers = _ray_processes()
    os.kill(min(workers), signal.SIGKILL)
    assert _count(tmp_path) < NUM_PHOTOS
    assert program.wait() == 0
    _assert_each_once(tmp_path)


@pytest.mark.slow
def test_a_killed_ray_program_goes_on_with_the_missing_photos(start_ray, tmp_path):
    program = start_ray()
    _wait_for(program, tmp_path, NUM_PHOTOS // 4)
    program.kill()
    program.wait()
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("part-*.jsonl")}
    assert 0 < _count(tmp_path) < NUM_PHOTOS
    (tmp_path / "part-000099.unfinished").write_text('{"path": "half a li')
    assert start_ray().wait() == 0
    _assert_each_once(tmp_path)
    assert all(path.stat().st_mtime_ns == changed for path, changed in kept.items())


def test_the_notebook_opens_in_colab_and_installs_from_the_same_repository():
    path = EXAMPLES / "phone_and_browser.ipynb"
    first, install = json.loads(path.read_text())["cells"][:2]
    address = "https://colab.research.google.com/github/(.+)/blob/main/examples/"
    opened = re.search(address + re.escape(path.name), "".join(first["source"]))
    installed = re.search(r"git clone .*https://github.com/(\S+)", "".join(install["source"]))
    assert opened[1] == installed[1]


@pytest.mark.slow
def test_the_notebook_runs(tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    path = EXAMPLES / "phone_and_browser.ipynb"
    assert path.stat().st_size < 300_000
    notebook = nbformat.read(path, as_version=4)
    committed = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs for cell in committed if "print" in cell.source)
    shutil.copy(EXAMPLES / "draw_parts.py", tmp_path)
    nbclient.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": tmp_path}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    texts = "".join(output.get("text", "") for output in outputs)
    assert float(re.search(r"top-1 +([\d.]+)%", texts)[1]) > 80
    assert re.search("spring .*unknown", texts)
    assert (tmp_path / "parts.tflite").stat().st_size > 1_000_000
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 1
