"""The server's connections: deadlines, their number, and what each costs."""

import asyncio
import contextlib
import io
import json
import resource
import signal
import socket
import subprocess
import sys
import tracemalloc

import httpx2
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from keras_vit.export import connections, server
from keras_vit.export.connections import ConnectionLimits, bounded_protocol
from keras_vit.export.options import ServingLimits
from keras_vit.export.service import Service, local_name

SERVE = """
import sys
from keras_vit.command_line import main
sys.exit(main(sys.argv[1:]))
"""
SILENT, HALF_HEAD = b"", b"GET /healthz HTTP/1.1\r\nHost: local"
HALF_BODY = (
    b"POST /v1/models/animals:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
)


@contextlib.contextmanager
def running(classifier, max_files=None):
    """The address of `keras-vit serve` in a process, and the process."""
    limit = max_files and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (max_files,) * 2))
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", SERVE, "serve", str(classifier.folder), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
    )
    try:
        ready = process.stdout.readline()
        yield ready.split(", ")[1].strip(), process
    finally:
        process.kill()
        process.communicate()


def test_a_server_answers_while_others_hold_more_connections_than_it_may_open(classifier):
    with running(classifier, max_files=256) as (address, process):
        host, port = address.removeprefix("http://").split(":")
        for start in (SILENT, HALF_HEAD, HALF_BODY):
            with contextlib.ExitStack() as stack:
                for _ in range(300):
                    held = stack.enter_context(socket.create_connection((host, int(port)), 30))
                    held.send(start)
                assert httpx2.get(f"{address}/healthz", timeout=30).status_code == 200, start
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "Traceback" not in errors
        assert "Too many open files" not in errors


async def _closed_after(connection_type, start, is_read=True):
    """Seconds until a server closes a connection that sends `start`, and what it answered."""
    import uvicorn

    async def application(scope, receive, send):
        while is_read and (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"an answer"})

    config = uvicorn.Config(application, http=connection_type, log_level="critical", lifespan="off")
    with server.bound_socket("127.0.0.1", 0) as listener:
        running_server = uvicorn.Server(config)
        task = asyncio.create_task(running_server.serve([listener]))
        while not running_server.started:
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(start)
        began = asyncio.get_running_loop().time()
        try:
            received = await asyncio.wait_for(reader.read(), 10)
        except ConnectionResetError:
            received = b""
        seconds = asyncio.get_running_loop().time() - began
        writer.close()
        running_server.should_exit = True
        await task
    return seconds, received


@pytest.mark.parametrize("start", [SILENT, HALF_HEAD])
def test_a_connection_without_a_whole_head_is_closed(start, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    seconds, received = asyncio.run(
        _closed_after(bounded_protocol(ConnectionLimits(10, 10)), start)
    )
    assert received == b""
    assert 0.2 < seconds < 5


def test_a_body_that_goes_on_behind_its_answer_is_closed(monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    start = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
    limits = ConnectionLimits(10, 10)
    seconds, received = asyncio.run(_closed_after(bounded_protocol(limits), start, is_read=False))
    assert received.startswith(b"HTTP/1.1 200")
    assert seconds < 5


def test_the_number_of_connections_stays_below_the_limit_of_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        limits = ConnectionLimits.of_process()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert limits.most + 2 * limits.backlog < 256
    assert limits.most >= 100


@pytest.fixture
def service(classifier):
    return Service(classifier, "animals", 2, ServingLimits(max_queue=4))


def test_entries_of_json_are_counted_before_they_are_parsed(service):
    body = json.dumps({"instances": [{}] * 300_000}).encode()
    with TestClient(service.application()) as client:
        client.get("/healthz")
        tracemalloc.start()
        answer = client.post("/v1/models/animals:predict", content=body)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert answer.status_code == 413
    assert "at most 4 images" in answer.json()["error"]
    assert peak < 8 * len(body)  # Parsed, they are 70 times the bytes.


def test_too_many_files_are_413(service):
    files = [("images", (f"{index}.png", b"x")) for index in range(9)]
    with TestClient(service.application()) as client:
        answer = client.post("/classify", files=files)
    assert answer.status_code == 413
    assert "at most 4 images" in answer.json()["error"]


def test_a_lone_surrogate_in_a_request_is_400(service):
    with TestClient(service.application(), raise_server_exceptions=False) as client:
        body = b'{"instances": ["\\ud800"]}'
        answer = client.post("/v1/models/animals:predict", content=body)
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:8501"}, 200),
        ({"Host": "127.0.0.1:8501"}, 200),
        ({"Host": "[::1]:8501"}, 200),
        ({"Host": "LOCALHOST"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost.evil.example:8501"}, 403),
        ({"Host": "localhost", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "localhost", "Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_pages_of_other_sites_do_not_reach_a_server_of_this_machine(service, headers, status):
    with TestClient(service.application("127.0.0.1")) as client:
        assert client.get("/healthz", headers=headers).status_code == status
    with TestClient(service.application()) as client:  # Behind a proxy, for all networks.
        assert client.get("/healthz", headers=headers).status_code == 200


def test_the_loopback_is_known_by_its_addresses_and_its_name():
    hosts = ["127.0.0.1", "::1", "localhost", "0.0.0.0", "192.168.0.2", "example.org"]
    assert [local_name(host) for host in hosts] == [*hosts[:3], None, None, None]


def test_a_tiff_gives_the_pixels_of_its_png(classifier):
    Image.new("RGB", (300, 200), "red").save(file := io.BytesIO(), "TIFF", compression="lzw")
    image = classifier.input_of(file.getvalue())
    expected = classifier.input_of(_png(file.getvalue()))
    np.testing.assert_array_equal(image, expected)


def _png(tiff):
    Image.open(io.BytesIO(tiff)).save(written := io.BytesIO(), "PNG")
    return written.getvalue()


def test_a_body_cut_short_by_the_end_of_the_server_is_503_and_no_traceback(classifier):
    with running(classifier) as (address, process):
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), 60) as client:
            client.send(HALF_BODY)
            assert httpx2.get(f"{address}/healthz").status_code == 200
            process.send_signal(signal.SIGTERM)
            assert client.recv(100).startswith(b"HTTP/1.1 503")
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert rest == "answered 1 of 1 requests\n"
