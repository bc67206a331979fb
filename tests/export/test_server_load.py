"""The server in process under load: its bounds, batches and failures."""

import asyncio
import json
import os
import threading

import numpy as np
import pytest
from PIL import Image
from server_clients import BROKEN, Constant, b64, client_of, metric, uploads

from keras_vit.classifier import Classifier
from keras_vit.export.options import ServingLimits
from keras_vit.export.service import Service
from keras_vit.preprocessing import Preprocessing


@pytest.fixture
def held(files):
    """A model that waits, its classifier, and an image."""
    model = Constant([0.7, 0.2, 0.1])
    return model, Classifier(model, ("a", "b", "c"), Preprocessing((32, 24))), files[5].read_bytes()


def test_overload_is_503_with_retry_after_and_what_was_accepted_is_answered(held):
    model, classifier, content = held
    with client_of(classifier, max_queue=2, max_batch=1) as client:
        model.release.clear()
        model.entered.clear()
        answers = []
        accepted = threading.Thread(
            target=lambda: answers.append(client.post("/classify", files=uploads([content] * 2)))
        )
        accepted.start()
        model.entered.wait()  # Two images are accepted; there is no room for a third.
        refused = client.post("/classify", files=uploads([content]))
        assert refused.status_code == 503
        assert 1 <= int(refused.headers["Retry-After"]) <= 60
        assert metric(client, "keras_vit_waiting_images") == 2
        assert client.get("/healthz").status_code == 200
        model.release.set()
        accepted.join()
        assert [len(answer.json()["predictions"]) for answer in answers] == [2]
        assert client.post("/classify", files=uploads([content])).status_code == 200
        assert metric(client, "keras_vit_waiting_images") == 0


def test_bodies_of_all_requests_together_are_bounded(held):
    model, classifier, content = held
    files = uploads([content, bytes(900_000)])
    with client_of(classifier, max_body=1) as client:
        model.release.clear()
        threads = [
            threading.Thread(target=client.post, args=("/classify",), kwargs={"files": files})
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        while metric(client, "keras_vit_waiting_images") < 8:  # The zeros are no images.
            pass
        refused = client.post("/classify", files=files)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        model.release.set()
        for thread in threads:
            thread.join()
        assert client.post("/classify", files=files).status_code == 200


def post_raw(service, body, receive_rest, *, whole, at_end=lambda: None):
    """The messages that answer a POST of a client that then does what `receive_rest` does."""
    first, sent = [{"type": "http.request", "body": body, "more_body": not whole}], []

    async def receive():
        return first.pop() if first else await receive_rest()

    async def send(message):
        sent.append(message)

    async def ask():
        application = service.application()
        path = "/v1/models/animals:predict"
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": []}
        async with application.router.lifespan_context(application):
            await application(scope, receive, send)
            await asyncio.sleep(0)  # For callbacks of what was cancelled.
            at_end()

    asyncio.run(ask())
    assert service.accepted == service.answered == 1
    return sent


def test_the_images_of_a_client_that_went_away_are_not_decoded(held, monkeypatch):
    _, classifier, content = held
    service = Service(classifier, "animals", 2, ServingLimits())
    begun, released, decoded = threading.Event(), threading.Event(), []

    def input_of(file, max_pixels):
        begun.set()
        released.wait()
        decoded.append(file)
        raise ValueError("No matter.")

    monkeypatch.setattr(classifier, "input_of", input_of)

    async def go_away():
        await asyncio.to_thread(begun.wait)
        return {"type": "http.disconnect"}

    threads = os.cpu_count()
    body = json.dumps({"instances": [b64(content)] * (threads + 20)}).encode()
    sent = post_raw(service, body, go_away, whole=True, at_end=released.set)
    assert sent[0]["status"] == 499
    assert 1 <= len(decoded) <= threads


def test_a_client_that_goes_away_within_the_body_is_no_error(held, caplog):
    model, classifier, content = held
    service = Service(classifier, "animals", 2, ServingLimits())

    async def go_away():
        return {"type": "http.disconnect"}

    assert post_raw(service, b"{", go_away, whole=False)[0]["status"] == 499
    assert not caplog.records


class Brightness:
    """A model of uint8 pixels of any size, which gives their mean."""

    input_shape, output_shape, name = (None, None, None, 3), (None, 2), "brightness"
    takes_pixels = True

    def predict_on_batch(self, images):
        assert images.dtype == np.uint8
        means = images.mean(axis=(1, 2, 3)) / 255
        return np.stack([means, 1 - means], axis=1)


def test_a_model_of_pixels_gets_images_of_their_own_sizes(files):
    classifier = Classifier(Brightness(), ("light", "dark"), Preprocessing((32, 24)))
    contents = [path.read_bytes() for path in files[5:]] * 3
    with client_of(classifier) as client:
        answers = client.post("/classify", files=uploads(contents)).json()["predictions"]
    for answer, path in zip(answers, files[5:] * 3, strict=True):
        light = np.asarray(Image.open(path)).mean() / 255
        found = {row["class"]: row["probability"] for row in answer["top"]}
        assert found == pytest.approx({"light": light, "dark": 1 - light})


def test_images_that_are_ready_have_the_bytes_of_one_largest_image(held):
    model, classifier, content = held  # Its input has 9,216 bytes, and max_pixels are 21,600.
    model.batches.clear()
    with client_of(classifier, max_pixels=7200, max_batch=8, batch_wait=10_000) as client:
        model.batches.clear()
        client.post("/classify", files=uploads([content] * 7))
    assert model.batches == [2, 2, 2, 1]


def test_a_body_that_does_not_arrive_is_408(held, monkeypatch):
    monkeypatch.setattr("keras_vit.export.service._BODY_SECONDS", 0.01)
    _, classifier, _ = held
    service = Service(classifier, "animals", 2, ServingLimits())
    sent = post_raw(service, b"{", asyncio.Event().wait, whole=False)
    assert sent[0]["status"] == 408


def test_images_of_many_requests_share_batches(held):
    model, classifier, content = held
    with client_of(classifier, max_batch=4, batch_wait=10_000) as client:
        assert model.batches == [1, 4]  # The warm-up.
        model.release.clear()
        model.entered.clear()
        threads = [
            threading.Thread(target=client.post, args=("/classify",), kwargs=request)
            for request in [{"files": uploads([content])}] * 9
        ]
        threads[0].start()
        model.entered.wait()  # The first image is alone; all others come while it is computed.
        for thread in threads[1:]:
            thread.start()
        while metric(client, "keras_vit_waiting_images") < 9:
            pass
        model.release.set()
        for thread in threads:
            thread.join()
    assert model.batches[2:] == [1, 4, 4]


def test_a_model_that_fails_is_500_and_the_server_goes_on(held, caplog):
    model, classifier, content = held
    with client_of(classifier) as client:
        row, model.row = model.row, None
        response = client.post("/classify", files=uploads([content]))
        assert response.status_code == 500
        assert "TypeError" in caplog.text
        assert metric(client, 'keras_vit_requests_total{route="classify",status="500"}') == 1
        assert "The request failed" in response.json()["error"]
        model.row = row
        assert client.post("/classify", files=uploads([content])).status_code == 200


def test_probabilities_that_are_not_finite_are_marked(held):
    model, classifier, content = held
    with client_of(classifier) as client:
        model.row[0] = np.nan
        (answer,) = client.post("/classify", files=uploads([content])).json()["predictions"]
        assert (answer["top"], "not finite" in answer["error"]) == ([], True)
        request = {"instances": [b64(content)]}
        (row,) = client.post("/v1/models/animals:predict", json=request).json()["predictions"]
        assert (row["valid"], row["probabilities"]) == (False, [0, 0, 0])


def test_metrics_count_requests_images_and_batches(held):
    _, classifier, content = held
    with client_of(classifier) as client:
        client.post("/classify", files=uploads([content, BROKEN, content]))
        client.get("/nothing")
        assert metric(client, 'keras_vit_images_total{result="classified"}') == 2
        assert metric(client, 'keras_vit_images_total{result="unreadable"}') == 1
        assert metric(client, 'keras_vit_requests_total{route="classify",status="200"}') == 1
        assert metric(client, 'keras_vit_requests_total{route="unknown",status="404"}') == 1
        assert metric(client, "keras_vit_batch_images_sum") == 2
        assert client.get("/metrics").headers["content-type"].startswith("text/plain")
