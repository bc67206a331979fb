"""Downloads from a server on this machine that serves, stalls, breaks off and lies."""

import contextlib
import dataclasses
import hashlib
import http.server
import json
import threading
import time

import keras
import numpy as np
import PIL.Image
import pytest

import keras_vit
from keras_vit import configs
from keras_vit.checkpoints import catalogue
from keras_vit.command_line import main
from makers import tiny_config, write_classes


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
    with pytest.raises(OSError, match="be downloaded") as error:
        catalogue.download(row)
    assert time.monotonic() - start < 15
    assert f"fetch {row.url} by other means and put it at ~/.keras/models/" in str(error.value)
    assert 'no download: weights="r14_vit_micro16_cifar10" (--weights)' in str(error.value)
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
        with pytest.raises(OSError, match="file hash"):
            catalogue.download(dataclasses.replace(row, key="other", sha256="0" * 64))


PATCH = 32  # As the official file of 224 pixels has: 7x7 patches.


@pytest.fixture(scope="module")
def small_official_file(tmp_path_factory):
    """An official file of a small ViT with the 1,000 classes, whose answers depend on the photo."""
    keras.utils.set_random_seed(0)
    model = keras_vit.build(tiny_config(patch_size=PATCH), classes=1000)
    rng = np.random.default_rng(0)
    model.get_layer("predictions").kernel.assign(rng.normal(size=(16, 1000)))
    path = tmp_path_factory.mktemp("official") / "a.npz"
    keras_vit.save_checkpoint(model, path)
    return path.read_bytes()


@pytest.fixture
def imagenet(server, small_official_file, monkeypatch):
    """ViT-B/16 is that small model, and all of its official files are on this machine's server."""
    server.content = small_official_file
    url = f"http://127.0.0.1:{server.server_port}/a.npz"
    rows = [dataclasses.replace(row, url=url, sha256="") for row in catalogue.rows()]
    monkeypatch.setattr(catalogue, "rows", lambda: tuple(rows))
    monkeypatch.setitem(configs.MODELS, "ViT-B/16", tiny_config(patch_size=PATCH))
    return server


@pytest.fixture
def photos(tmp_path):
    """Photos in folders of two classes, of any size."""
    return write_classes(
        tmp_path / "photos", 2, {"goldfish": (220, 120, 20), "crane (134)": (20, 60, 220)}, noise=60
    )


def decoded(photo):
    """What the parts of the package answer, one by one: the rule for pixels, names and scores."""
    model = keras_vit.ViTB16()
    images = keras_vit.describe(model).preprocessing([PIL.Image.open(photo)])
    return keras_vit.decode_predictions(model.predict(images, verbose=0), top=3)[0]


def test_imagenet_answers_with_the_names_of_decode_predictions(imagenet, photos):
    photo = photos / "goldfish" / "0.png"
    classifier = keras_vit.load_classifier("imagenet")
    assert "1000 classes (tench, goldfish, great_white_shark, ...)" in repr(classifier)
    answer = classifier(photo, top=3)
    expected = [(name, pytest.approx(score, abs=1e-6)) for _, name, score in decoded(photo)]
    assert answer.top == expected
    assert (answer.label, answer.probability) == answer.top[0]


def test_imagenet_is_downloaded_at_its_first_use_and_once(imagenet):
    keras_vit.describe("imagenet")  # Needs no weights.
    assert imagenet.requests == 0
    for _ in range(2):
        keras_vit.load_classifier("imagenet")
    assert imagenet.requests == 1


def test_two_classes_of_one_name_have_their_numbers(imagenet):
    names = keras_vit.load_classifier("vit_b16_augreg_imagenet21k_to_imagenet_224").class_names
    assert (names[134], names[517], len(set(names))) == ("crane (134)", "crane (517)", 1000)
    assert (names[264], names[474]) == ("Cardigan", "cardigan")


@pytest.mark.parametrize(
    "name", ["imagenet21k", "vit_b16_augreg_imagenet21k", "vit_l16_imagenet21k"]
)
def test_weights_without_names_are_refused_before_a_download(name, imagenet):
    with pytest.raises(ValueError, match="names.*finetune --weights .*imagenet") as error:
        keras_vit.load_classifier(name)
    assert "\n" not in str(error.value)
    assert imagenet.requests == 0


def test_the_commands_take_imagenet(imagenet, photos, tmp_path, capsys):
    photo = photos / "goldfish" / "0.png"
    keras_vit.load_classifier("imagenet")  # The download prints its progress.
    capsys.readouterr()
    assert main(["predict", "imagenet", str(photo), "--format", "json", "--top", "3"]) == 0
    (printed,) = json.loads(capsys.readouterr().out)
    assert [entry["class"] for entry in printed["top"]] == [name for _, name, _ in decoded(photo)]
    assert main(["evaluate", "imagenet", "--data", str(photos)]) == 0
    assert "images  4 (each once)" in capsys.readouterr().out
    export = tmp_path / "imagenet.onnx"
    assert main(["export", "imagenet", "--to", "onnx", "--output", str(export)]) == 0
    answers = [keras_vit.load_classifier(each)(photo).label for each in ("imagenet", export)]
    assert answers[0] == answers[1]
