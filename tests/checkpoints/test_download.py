"""Downloads from a server on this machine that serves, stalls, breaks off and lies."""

import contextlib
import dataclasses
import hashlib
import http.server
import threading
import time

import numpy as np
import pytest

from keras_vit.checkpoints import catalogue


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    content = b""
    behaviour = "serve"
    requests = 0


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        server.requests += 1
        if server.behaviour == "missing":
            self.send_error(404)
            return
        half = len(server.content) // 2
        length = half if server.behaviour == "shorter" else len(server.content)
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            if server.behaviour == "stall":
                self.wfile.write(server.content[:half])
                self.wfile.flush()
                server.released.wait(20)
            elif server.behaviour == "break off":
                self.wfile.write(server.content[:half])
            elif server.behaviour == "error page":
                self.wfile.write(b"<html>Sign in</html>".ljust(length))
            else:
                self.wfile.write(server.content)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch, tmp_path, write_npz):
    server = _Server(("127.0.0.1", 0), _Handler)
    server.released = threading.Event()
    weights = np.random.default_rng(0).normal(size=(100, 100))
    server.content = write_npz({"head/kernel": weights}).read_bytes()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    (tmp_path / "keras").mkdir()
    monkeypatch.setattr(catalogue, "TIMEOUT", 0.5)
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def row(server):
    url = f"http://127.0.0.1:{server.server_port}/a.npz"
    return dataclasses.replace(catalogue.find("ViT-B/16", "imagenet21k"), url=url)


def test_a_file_comes_whole_and_once(server, row, tmp_path, capsys):
    path = catalogue.download(row)
    assert path == tmp_path / "keras" / "models" / "vit_b16_augreg_imagenet21k.npz"
    assert path.read_bytes() == server.content
    assert row.url in capsys.readouterr().out
    assert catalogue.download(row) == path
    assert server.requests == 1
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("behaviour", ["stall", "break off", "shorter", "missing", "error page"])
def test_what_did_not_come_whole_is_not_kept(behaviour, server, row, tmp_path):
    server.behaviour = behaviour
    start = time.monotonic()
    with pytest.raises(OSError, match="could not be downloaded") as error:
        catalogue.download(row)
    assert time.monotonic() - start < 15
    assert f"fetch {row.url} by other means and put it at ~/.keras/models/" in str(error.value)
    assert "\n" not in str(error.value)
    assert not any((tmp_path / "keras" / "models").iterdir())
    server.behaviour = "serve"
    assert catalogue.download(row).read_bytes() == server.content


def test_a_copy_that_was_cut_off_or_has_a_flipped_bit_is_fetched_once_more(server, row, tmp_path):
    path = catalogue.download(row)
    flipped = bytearray(server.content)
    flipped[len(flipped) // 2] ^= 1  # Among the values: only a checksum shows it.
    for content in (bytes(flipped), server.content[:-100]):
        path.write_bytes(content)
        assert catalogue.download(row).read_bytes() == server.content
    assert server.requests == 3


def test_a_known_hash_is_compared(server, row, tmp_path):
    digest = hashlib.sha256(server.content).hexdigest()
    assert catalogue.download(dataclasses.replace(row, sha256=digest)).exists()
    for _ in range(2):
        with pytest.raises(OSError, match="file hash does not match the provided value"):
            catalogue.download(dataclasses.replace(row, key="other", sha256="0" * 64))
