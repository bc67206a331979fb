"""The server in process: its routes and answers."""

import asyncio
import collections
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import numpy as np
import pytest
from server_clients import BROKEN, Constant, b64, client_of, uploads

from keras_vit import command_line
from keras_vit.classifier import Classifier
from keras_vit.classifier_folder import load_classifier
from keras_vit.export import server
from keras_vit.export.artefacts import load_artefact
from keras_vit.export.serving_messages import served_name
from keras_vit.preprocessing import Preprocessing


@pytest.fixture(scope="module")
def client(classifier):
    with client_of(classifier, max_body=1, max_pixels=6000, max_queue=40) as client:
        yield client


def test_uploads_are_answered_as_predict_answers_files(client, classifier, files, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(BROKEN)
    paths = [files[0], broken, *files[1:6]]
    contents = [path.read_bytes() for path in paths]
    response = client.post("/classify", files=uploads(contents, [str(path) for path in paths]))
    assert response.status_code == 200
    answers = response.json()["predictions"]
    expected = [prediction.to_json() for prediction in classifier.predict(paths, top=2)]
    assert len(answers) == len(expected) == 7
    for ours, theirs in zip(answers, expected, strict=True):
        assert {"path", "error"} & ours.keys() == {"path", "error"} & theirs.keys()
        assert (ours["path"], ours.get("error")) == (theirs["path"], theirs.get("error"))
        assert [row["class"] for row in ours["top"]] == [row["class"] for row in theirs["top"]]
        assert [row["probability"] for row in ours["top"]] == pytest.approx(
            [row["probability"] for row in theirs["top"]], abs=1e-6
        )


def test_top_is_a_parameter(client, files):
    image = uploads([files[0].read_bytes()])
    answer = client.post("/classify?top=1", files=image).json()
    assert len(answer["predictions"][0]["top"]) == 1
    for top in ("0", "-1", "all", "²"):
        response = client.post(f"/classify?top={top}", files=image)
        assert response.status_code == 400
        assert "at least 1" in response.json()["error"]


def test_an_image_of_too_many_pixels_is_marked_with_the_limit(client, files):
    (answer,) = client.post("/classify", files=uploads([files[9].read_bytes()])).json()[
        "predictions"
    ]
    assert answer["top"] == []
    assert "at most 6000 pixels. Received: height and width 60 103" in answer["error"]


@pytest.mark.parametrize(
    "request_of",
    [
        {},
        {"data": {"name": "text without a file"}},
        {"content": BROKEN, "headers": {"Content-Type": "image/png"}},
        {"content": b"--x", "headers": {"Content-Type": "multipart/form-data; boundary=x"}},
        {"content": b"--x", "headers": {"Content-Type": "multipart/form-data"}},
    ],
)
def test_a_request_without_files_is_refused_in_words(client, request_of):
    response = client.post("/classify", **request_of)
    assert response.status_code == 400
    assert response.json()["error"]


def test_a_body_beyond_the_limit_is_413_declared_or_not(client):
    body = bytes(1_000_001)
    assert client.post("/classify", files=uploads([body])).status_code == 413
    parts = (body[:500_000] for _ in range(3))
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    head = b'--x\r\nContent-Disposition: form-data; name="i"; filename="i"\r\n\r\n'
    response = client.post("/classify", content=_chunks(head, parts), headers=headers)
    assert response.status_code == 413
    assert "at most 1,000,000 bytes" in response.json()["error"]
    assert client.post("/v1/models/animals:predict", content=body).status_code == 413


def _chunks(head, parts):
    yield head
    yield from parts


def test_more_images_than_the_queue_holds_are_413(client, files):
    response = client.post("/v1/models/animals:predict", json={"instances": [b64(BROKEN)] * 41})
    assert response.status_code == 413
    assert "at most 40 images" in response.json()["error"]


@pytest.mark.slow
@pytest.mark.parametrize("wrapped", [True, False])
def test_tensorflow_servings_protocol_gives_what_the_saved_model_gives(
    client, files, saved_model, wrapped
):
    import tensorflow as tf

    contents = [files[0].read_bytes(), BROKEN, files[5].read_bytes()]
    entries = [{"images": b64(content)} if wrapped else b64(content) for content in contents]
    request = {"signature_name": "serve_bytes", "instances": entries}
    response = client.post("/v1/models/animals:predict", json=request)
    assert response.status_code == 200
    rows = response.json()["predictions"]
    loaded = tf.saved_model.load(saved_model.path)  # Exported with top=2.
    answer = loaded.signatures["serve_bytes"](images=tf.constant(contents))
    names = [[name.decode() for name in row] for row in answer["classes"].numpy()]
    assert [row["classes"] for row in rows] == names
    assert [row["valid"] for row in rows] == answer["valid"].numpy().tolist() == [True, False, True]
    for key in ("probabilities", "top_probabilities"):
        np.testing.assert_allclose([row[key] for row in rows], answer[key], atol=1e-6)
    assert set(rows[0]) == set(answer)
    columns = client.post(
        "/v1/models/animals/versions/1:predict",
        json={
            "signature_name": "serve_bytes",
            "inputs": {"images": entries} if wrapped else entries,
        },
    ).json()["outputs"]
    assert columns.keys() == rows[0].keys()
    assert columns["classes"] == names
    for key in ("probabilities", "top_probabilities"):
        np.testing.assert_allclose(columns[key], answer[key], atol=1e-6)


def test_the_model_is_reported_as_available(client):
    for path in ("/v1/models/animals", "/v1/models/animals/versions/1"):
        (version,) = client.get(path).json()["model_version_status"]
        assert (version["version"], version["state"]) == ("1", "AVAILABLE")
        assert version["status"]["error_code"] == "OK"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models/plants", 404),
        ("GET", "/v1/models/animals/versions/2", 404),
        ("POST", "/v1/models/plants:predict", 404),
        ("GET", "/nothing", 404),
        ("GET", "/classify", 405),
    ],
)
def test_other_routes_are_refused_in_json(client, method, path, status):
    response = client.request(method, path)
    assert response.status_code == status
    assert response.json()["error"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "must be JSON"),
        ("[1]", "must have"),
        ('{"instances": []}', "must have"),
        ('{"instances": [{"b64": "AA=="}], "inputs": [{"b64": "AA=="}]}', "must have"),
        ('{"instances": [[0.5]]}', "An image must be"),
        ('{"instances": ["\\ud800"]}', "An image must be"),  # UTF-8 has no such character.
        ('{"instances": [{"b64": "*"}]}', "base64"),
        ('{"instances": [{"b64": "AA==", "key": 1}]}', "An image must be"),
        ('{"signature_name": "serve", "instances": [{"b64": "AA=="}]}', 'must be "serve_bytes"'),
        ("[" * 80, "must be JSON"),
    ],
)
def test_wrong_json_is_400_with_what_would_be_right(client, body, message):
    response = client.post("/v1/models/animals:predict", content=body)
    assert response.status_code == 400
    assert message in response.json()["error"]


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "dynamic_int8"])
def test_an_export_is_served_in_batches_of_its_own(tflite, files, precision):
    artefact = load_artefact(tflite[precision].path)  # One image a call.
    contents = [path.read_bytes() for path in files]
    with client_of(artefact, max_batch=4) as client:
        answers = client.post("/classify", files=uploads(contents)).json()["predictions"]
    for answer, prediction in zip(answers, artefact.predict(files, top=2), strict=True):
        assert [row["probability"] for row in answer["top"]] == pytest.approx(
            [probability for _, probability in prediction.top], abs=1e-6
        )


def test_a_multi_label_answer_applies_the_thresholds(files):
    classifier = Classifier(
        Constant([0.4, 0.6, 0.9]),
        ("a", "b", "c"),
        Preprocessing((32, 24)),
        task="multilabel",
        thresholds=(0.3, 0.7, 0.5),
    )
    with client_of(classifier) as client:
        content = files[5].read_bytes()
        (uploaded,) = client.post("/classify", files=uploads([content])).json()["predictions"]
        assert uploaded["labels"] == ["c", "a"]
        request = {"instances": [b64(content), b64(BROKEN)]}
        rows = client.post("/v1/models/animals:predict", json=request).json()["predictions"]
        assert [row["predicted"] for row in rows] == [[True, False, True], [False] * 3]


def test_the_page_loads_nothing_from_elsewhere(client):
    response = client.get("/")
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert "<html" in response.text
    assert "http" not in response.text.replace("http-equiv", "")


def test_the_page_has_the_classes_of_images_alone():
    deciding = load_classifier("vit_mini4_cifar10").answering
    with client_of(deciding) as client:
        facts = re.search(r"= (\{.*\});", client.get("/").text)[1]
    assert json.loads(facts)["classNames"] == list(deciding.class_names[:10])


def test_malformed_requests_are_answered_in_a_short_line(client):
    path = "/v1/models/animals:predict"
    for request, message in (
        ({"signature_name": "x" * 1000, "instances": [b64(BROKEN)]}, "signature_name must be"),
        ({"instances": [{"b64": "ä"}]}, "An image must be a file in base64"),
    ):
        response = client.post(path, json=request)
        assert response.status_code == 400
        assert response.json()["error"].startswith(message)
        assert len(response.content) < 200


def test_an_export_in_a_numbered_folder_is_a_version(classifier, tmp_path):
    assert served_name(classifier) == ("animals", "1")
    assert served_name(Classifier(Constant([1, 0, 0]), "abc", Preprocessing((32, 24)))) == (
        "constant",
        "1",
    )
    numbered = Classifier(
        Constant([1, 0, 0]), "abc", Preprocessing((32, 24)), folder=tmp_path / "pets" / "7"
    )
    assert served_name(numbered) == ("pets", "7")
    of_year = tmp_path / "runs" / "2024"
    of_year.mkdir(parents=True)
    (of_year / "model.keras").touch()
    trained = Classifier(Constant([1, 0, 0]), "abc", Preprocessing((32, 24)), folder=of_year)
    assert served_name(trained) == ("2024", "1")
    file = tmp_path / "cats.onnx"
    file.touch()
    of_file = Classifier(Constant([1, 0, 0]), "abc", Preprocessing((32, 24)), folder=file)
    assert served_name(of_file) == ("cats", "1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--max-batch", "0"), "max_batch"),
        (("--max-body", "nan"), "max_body"),
        (("--batch-wait", "-1"), "batch_wait"),
        (("--top", "0"), "top must be at least 1"),
        (("--name", "a/b"), "must not hold"),
        (("--port", "70000"), "port"),
        (("--host", "no.such.host.invalid"), "no.such.host.invalid"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(classifier, capsys, arguments, message):
    call = ["serve", str(classifier.folder), "--port", "0", *arguments]
    assert command_line.main(call) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error


@pytest.mark.parametrize(
    "module", ["starlette", "uvicorn", "python_multipart", "prometheus_client"]
)
def test_without_the_extra_it_is_named(module, classifier, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    assert command_line.main(["serve", str(classifier.folder), "--port", "0"]) == 2
    assert "[serve]" in capsys.readouterr().err


def test_no_such_model_is_one_line(tmp_path, capsys):
    assert command_line.main(["serve", str(tmp_path / "none"), "--port", "0"]) == 2
    assert "No such folder" in capsys.readouterr().err


def test_the_answer_is_strict_json(client, files):
    text = client.post("/classify", files=uploads([files[1].read_bytes(), BROKEN])).text
    json.loads(text, parse_constant=pytest.fail)


def test_answers_are_sent_at_once():
    """Nagle's algorithm would hold back their second packet until the first is acknowledged."""
    options = []

    class Connection(asyncio.Protocol):
        def connection_made(self, transport):
            accepted = transport.get_extra_info("socket")
            options.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            transport.close()

    async def connect(listener):
        async with await asyncio.get_running_loop().create_server(Connection, sock=listener):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            await reader.read()
            writer.close()

    with server.bound_socket("127.0.0.1", 0) as listener:
        asyncio.run(connect(listener))
    assert options == [1]


def test_a_port_in_use_is_one_line(classifier, capsys):
    with server.bound_socket("127.0.0.1", 0) as listener:
        listener.listen()
        port = listener.getsockname()[1]
        assert command_line.main(["serve", str(classifier.folder), "--port", str(port)]) == 2
    assert f"127.0.0.1, port {port}: Address already in use" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_answers_all_that_it_accepted_under_load_and_after_sigterm(
    classifier, files, tmp_path
):
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(files[0].read_bytes()[:200])
    paths = [*files, broken]
    contents = {str(path): path.read_bytes() for path in paths}
    expected = {p.path: p.to_json() for p in classifier.predict(paths, top=3)}
    code = "import sys; from keras_vit.command_line import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["serve", str(classifier.folder), "--port", "0", "--top", "3"]
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    ready = process.stdout.readline()
    assert ready.startswith("animals: 3 classes, http://127.0.0.1:")
    address = ready.split(", ")[1].strip()
    answered, refused, stopping = collections.Counter(), [], threading.Event()

    def ask(client, chosen):
        """One request of several files, each answer compared with `predict`."""
        images = uploads([contents[path] for path in chosen], chosen)
        response = client.post("/classify", files=images)
        assert response.status_code == 200
        received = response.json()["predictions"]
        assert [answer["path"] for answer in received] == chosen
        for answer in received:
            theirs = expected[answer["path"]]
            assert answer.get("error") == theirs.get("error")
            ours = {row["class"]: row["probability"] for row in answer["top"]}
            assert ours == pytest.approx(
                {row["class"]: row["probability"] for row in theirs["top"]}, abs=1e-5
            )

    def use(seed):
        rng = np.random.default_rng(seed)
        with httpx2.Client(base_url=address, timeout=60) as client:
            while True:
                chosen = rng.choice(list(contents), rng.integers(1, 6)).tolist()
                try:
                    ask(client, chosen)
                except httpx2.TransportError as error:
                    refused.append(error)
                    return stopping.is_set()
                answered[seed] += 1

    with ThreadPoolExecutor(8) as pool:
        users = [pool.submit(use, seed) for seed in range(8)]
        while min(answered[seed] for seed in range(8)) < 10 and not any(u.done() for u in users):
            time.sleep(0.05)
        stopping.set()
        process.send_signal(signal.SIGTERM)
        assert all(user.result() for user in users)
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    total = sum(answered.values())
    assert rest == f"answered {total} of {total} requests\n"
    assert len(refused) == 8
