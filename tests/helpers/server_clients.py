"""A client of the server in process, and what tests send to it."""

import base64
import contextlib
import threading

import numpy as np
import uvicorn
from starlette.testclient import TestClient

from keras_vit.export.options import ServingLimits
from keras_vit.export.server import bound_socket
from keras_vit.export.service import Service

BROKEN = b"\x89PNG\r\n\x1a\nno image"


@contextlib.contextmanager
def client_of(classifier, name="animals", top=2, **limits):
    service = Service(classifier, name, top, ServingLimits(**limits))
    with TestClient(service.application(), raise_server_exceptions=False) as client:
        yield client
    assert service.accepted == service.answered


def uploads(contents, names=None):
    return [
        ("images", (names[index] if names else f"{index}.png", content))
        for index, content in enumerate(contents)
    ]


def b64(content):
    return {"b64": base64.b64encode(content).decode()}


def metric(client, name):
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


class Constant:
    """A model that gives the same row for every image; it runs once `release` is set."""

    input_shape, output_shape, name = (None, 32, 24, 3), (None, 3), "constant"

    def __init__(self, row):
        self.row = np.array(row, "float32")
        self.entered, self.release = threading.Event(), threading.Event()
        self.release.set()
        self.batches = []

    def predict_on_batch(self, images):
        self.entered.set()
        self.release.wait()
        self.batches.append(len(images))
        return np.repeat(self.row[np.newaxis], len(images), axis=0)


@contextlib.contextmanager
def served(classifier):
    """Yields the address of `keras-vit serve`."""
    with bound_socket("127.0.0.1", 0) as listener:
        service = Service(classifier, "animals", 2, ServingLimits())
        ready = threading.Event()
        service.when_ready = ready.set
        config = uvicorn.Config(service.application(), log_level="warning", lifespan="on")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        ready.wait()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
