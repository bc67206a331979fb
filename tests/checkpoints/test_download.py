"""Downloads from a server on this machine that serves, stalls, breaks off and lies."""

import base64
import contextlib
import dataclasses
import hashlib
import http.server
import os
import threading
import time
from typing import ClassVar

import numpy as np
import pytest

from keras_vit.checkpoints import catalogue, fetching, official_weights


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    content = b""
    behaviour = "serve"
    requests = 0
    headers: ClassVar[dict[str, str]] = {}


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        server.requests += 1
        if server.behaviour == "missing":
            self.send_error(404)
            return
        half = len(server.content) // 2
        length = {"shorter": half, "longer": 2 * len(server.content), "unknown": None}
        length = length.get(server.behaviour, len(server.content))
        self.send_response(200)
        for name, value in server.headers.items():
            self.send_header(name, value)
        if length is not None:
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
            elif server.behaviour == "drip":  # Never a second without a byte.
                for byte in server.content:
                    self.wfile.write(bytes([byte]))
                    time.sleep(0.05)
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
    catalogue.rows()  # Their paths are below the real address.
    monkeypatch.setattr(catalogue, "BASE_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setattr(official_weights, "TIMEOUT", 0.5)
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def row():
    return catalogue.find("ViT-B/16", "imagenet21k")


def _cache(tmp_path):
    return sorted(path.name for path in (tmp_path / "keras" / "models").iterdir())


@pytest.mark.parametrize("behaviour", ["serve", "unknown"])
def test_a_file_comes_whole_and_once(behaviour, server, row, tmp_path, capsys):
    server.behaviour = behaviour
    path = official_weights.download(row)
    assert path == tmp_path / "keras" / "models" / "vit_b16_augreg_imagenet21k.npz"
    assert path.read_bytes() == server.content
    assert row.url in capsys.readouterr().out
    assert official_weights.download(row) == path
    assert server.requests == 1
    assert _cache(tmp_path) == [path.name, f"{path.name}.sha256"]


@pytest.mark.parametrize(
    "behaviour", ["stall", "drip", "break off", "shorter", "longer", "missing", "error page"]
)
def test_what_did_not_come_whole_is_not_kept(behaviour, server, row, tmp_path):
    server.behaviour = behaviour
    start = time.monotonic()
    with pytest.raises(OSError, match="could not be downloaded") as error:
        official_weights.download(row)
    assert time.monotonic() - start < 15
    assert f"fetch {row.url} by other means and put it at {tmp_path}" in str(error.value)
    assert "\n" not in str(error.value)
    assert _cache(tmp_path) == []
    server.behaviour = "serve"
    assert official_weights.download(row).read_bytes() == server.content


def test_without_a_network_the_message_says_what_to_fetch(monkeypatch, row, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setattr(catalogue, "BASE_URL", "http://127.0.0.1:9")
    with pytest.raises(OSError, match=r"fetch http://127.0.0.1:9/vit_models/augreg/B_16-.*put it"):
        official_weights.download(row)


def test_a_file_put_there_by_hand_is_taken(monkeypatch, server, row, tmp_path):
    folder = tmp_path / "keras" / "models"
    folder.mkdir(parents=True)
    (folder / f"{row.key}.npz").write_bytes(server.content)
    assert official_weights.download(row) == folder / f"{row.key}.npz"
    assert server.requests == 0


def test_a_damaged_file_in_the_cache_is_replaced(server, row, tmp_path, capsys):
    folder = tmp_path / "keras" / "models"
    folder.mkdir(parents=True)
    (folder / f"{row.key}.npz").write_bytes(server.content[:-100])
    assert official_weights.download(row).read_bytes() == server.content
    assert "is damaged and will be downloaded again" in capsys.readouterr().out
    assert (folder / f"{row.key}.npz.damaged").read_bytes() == server.content[:-100]


def test_a_bit_that_flips_in_the_cache_is_noticed_and_the_file_is_fetched_once_more(
    server, row, tmp_path
):
    path = official_weights.download(row)
    changed = bytearray(server.content)
    changed[len(changed) // 2] ^= 1  # Among the values: only a checksum shows it.
    for has_note in (True, False):
        path.write_bytes(changed)
        if not has_note:
            path.with_name(f"{path.name}.sha256").unlink()
        assert official_weights.download(row).read_bytes() == server.content
    assert official_weights.download(row) == path
    assert server.requests == 3


def test_a_flipped_bit_on_the_way_is_not_kept(server, row, tmp_path):
    good, changed = server.content, bytearray(server.content)
    changed[len(changed) // 2] ^= 1
    server.content = bytes(changed)
    with pytest.raises(OSError, match=r"could not be downloaded.*Bad CRC-32|another checksum"):
        official_weights.download(row)
    assert _cache(tmp_path) == []
    server.content = good
    assert official_weights.download(row).read_bytes() == good


def _md5(content):
    return base64.b64encode(hashlib.md5(content).digest()).decode()


@pytest.mark.parametrize(
    "headers",
    [
        {"x-goog-hash": "crc32c=AAAAAA==,md5={md5}"},
        {"x-goog-hash": "crc32c={crc32c}"},
        {"Content-MD5": "{md5}"},
        {"ETag": '"{hex}"'},
    ],
    ids=lambda headers: next(iter(headers)),
)
def test_the_checksum_of_the_server_is_compared(headers, server, row, tmp_path):
    (tmp_path / "content").write_bytes(server.content)
    crc = fetching.crc32c(tmp_path / "content").to_bytes(4, "big")
    right = {
        "md5": _md5(server.content),
        "hex": hashlib.md5(server.content).hexdigest(),
        "crc32c": base64.b64encode(crc).decode(),
    }
    wrong = {"md5": _md5(b""), "hex": hashlib.md5(b"").hexdigest(), "crc32c": "AAAAAA=="}
    server.headers = {name: value.format(**wrong) for name, value in headers.items()}
    with pytest.raises(OSError, match=r"the (md5|crc32c) of the file is .* and the server sent"):
        official_weights.download(row)
    assert _cache(tmp_path) == []
    server.headers = {name: value.format(**right) for name, value in headers.items()}
    assert official_weights.download(row).read_bytes() == server.content


def test_an_etag_that_is_no_hash_of_the_content_is_not_compared(server, row):
    encrypted = {"ETag": f'"{"0" * 32}"', "x-amz-server-side-encryption": "aws:kms"}
    for number, server.headers in enumerate(({"ETag": '"0-12"'}, encrypted)):
        assert official_weights.download(dataclasses.replace(row, key=f"{number}")).exists()


def test_crc32c_is_that_of_rfc_3720_and_of_tensorflow(tmp_path):
    path = tmp_path / "content"
    for content, expected in (
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (b"", 0),
    ):
        path.write_bytes(content)
        assert fetching.crc32c(path) == expected
    content = np.random.default_rng(0).bytes(3 * 2**20 + 77)  # More than a chunk.
    path.write_bytes(content)
    tf = pytest.importorskip("tensorflow")
    with tf.io.TFRecordWriter(str(tmp_path / "record")) as writer:
        writer.write(content)
    masked = int.from_bytes((tmp_path / "record").read_bytes()[-4:], "little")
    turned = (masked - 0xA282EAD8) % 2**32  # By the format of TFRecord files.
    assert fetching.crc32c(path) == (turned >> 17 | turned << 15) % 2**32


def test_a_known_hash_is_compared(server, row, tmp_path):
    digest = hashlib.sha256(server.content).hexdigest()
    assert official_weights.download(dataclasses.replace(row, sha256=digest)).exists()
    with pytest.raises(OSError, match=f"SHA-256 .* must be {'0' * 64}. Received: {digest}"):
        official_weights.download(dataclasses.replace(row, key="other", sha256="0" * 64))
    assert _cache(tmp_path) == [f"{row.key}.npz", f"{row.key}.npz.sha256"]


def test_an_interrupt_leaves_nothing_behind(server, row, tmp_path, monkeypatch):
    def interrupted(url, path, timeout):
        path.write_bytes(server.content[:100])
        raise KeyboardInterrupt

    monkeypatch.setattr(official_weights, "fetch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        official_weights.download(row)
    assert _cache(tmp_path) == []


def test_leftovers_of_a_killed_process_are_removed_a_day_later(server, row, tmp_path):
    folder = tmp_path / "keras" / "models"
    folder.mkdir(parents=True)
    old, new = (f".{letter * 32}-{row.key}.npz" for letter in "ab")
    for age, name in ((2 * 86400, old), (60, new)):
        leftover = folder / name
        leftover.write_bytes(b"x")
        os.utime(leftover, (time.time() - age,) * 2)
    official_weights.download(row)
    assert _cache(tmp_path) == [
        new,
        f"{row.key}.npz",
        f"{row.key}.npz.sha256",
    ]
