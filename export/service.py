"""Routes of the server: uploads, TensorFlow Serving's REST protocol, health and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import ipaddress
import logging
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from keras_vit.classifier import Classifier
from keras_vit.prediction import Prediction, highest
from keras_vit.utils.optional_packages import import_optional
from keras_vit.utils.safe_text import for_json

from .batching import Batcher, Overloaded
from .browser_templates import page, script
from .options import ServingLimits
from .serving_messages import files_of_json, served_name

# Scripts and styles of the page itself only.
_PAGE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self';"
    " img-src blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_BODIES = 8  # Bodies of all requests together, in units of `max_body`.
_BODY_SECONDS = 60  # For a client to send a body.
# Brackets, braces or commas that an image has in JSON: {"images": {"b64": "..."}}.
_MARKS_PER_IMAGE = 2
_CLIENT_GONE = 499  # As nginx logs it; nobody receives it.


def import_server_package(module: str) -> Any:
    """Returns a module of the extra `serve`; see `import_optional`."""
    return import_optional(module, "A server", "serve")


class Service:
    """The routes of a server and what they share; `application` is the ASGI application.

    The model runs once with one image and once with a whole batch, which compiles it.

    Args:
        classifier: The classifier.
        name: Name of the model in routes; None for the name of its folder or file.
        top: Classes of an answer.
        limits: Bounds of requests and batches.
    """

    def __init__(
        self,
        classifier: Classifier,
        name: str | None,
        top: int,
        limits: ServingLimits,
    ):
        self.name, self.version = served_name(classifier, name)
        self.accepted = self.answered = 0  # Requests with images.
        self.when_ready = lambda: None
        self._classifier, self._top, self._limits = classifier, top, limits
        self._held = 0  # Bytes of all bodies.
        self._parsing = asyncio.Lock()  # JSON becomes several times its bytes.
        self._batcher: Batcher
        self._responses = import_server_package("starlette.responses")
        self._exceptions = import_server_package("starlette.exceptions")
        self._disconnect = import_server_package("starlette.requests").ClientDisconnect
        self._prometheus = import_server_package("prometheus_client")
        self._add_metrics()
        self._warm_up()

    def application(self, local_name: str | None = None) -> Any:
        """Returns the Starlette application; its lifespan starts and ends the threads.

        Args:
            local_name: The name of a server that only this machine reaches; see
                `refusal_of_sender`.
        """
        starlette = import_server_package("starlette.applications")
        middleware = import_server_package("starlette.middleware")
        route = import_server_package("starlette.routing").Route
        model = "/v1/models/{name}"
        version = model + "/versions/{version}"
        return starlette.Starlette(
            routes=[
                route("/", self.page),
                route("/classify", self.classify, methods=["POST"]),
                *(
                    route(f"{path}:predict", self.predict, methods=["POST"])
                    for path in (model, version)
                ),
                *(route(path, self.status) for path in (model, version)),
                route("/healthz", self.healthz),
                route("/metrics", self.metrics),
            ],
            middleware=[middleware.Middleware(_Accounting, service=self, local_name=local_name)],
            exception_handlers={self._exceptions.HTTPException: self._refused},
            lifespan=self._lifespan,
        )

    async def page(self, request: Any) -> Any:
        """The page of `keras_vit.export.html`, with the answers of this server."""
        names = self._classifier.known_classes
        text = page(self.name, script("on_server.js", {"classNames": names, "top": self._top}))
        headers = {"Content-Security-Policy": _PAGE_POLICY, "X-Content-Type-Options": "nosniff"}
        return self._responses.HTMLResponse(text, headers=headers)

    async def healthz(self, request: Any) -> Any:
        """Whether the server answers, which it does once the model has run."""
        return self._responses.JSONResponse({"status": "ok", "model": self.name})

    async def metrics(self, request: Any) -> Any:
        """Counts and times for Prometheus."""
        text = self._prometheus.generate_latest(self._registry)
        return self._responses.Response(text, media_type=self._prometheus.CONTENT_TYPE_LATEST)

    async def classify(self, request: Any) -> Any:
        """Predictions of uploaded files, as `keras-vit predict --format json` prints them."""
        top = self._requested_top(request)
        most = self._limits.max_queue + 1  # One more is refused with the number.
        async with self._in_time(), self._form(request, most) as form:
            uploads = [value for _, value in form.multi_items() if not isinstance(value, str)]
            files = [await upload.read() for upload in uploads]
        if not files:
            raise self._error(
                400, "A request must be whole multipart/form-data with image files. Received: none"
            )
        answers = await self._answers(request, files)
        predictions = []
        for upload, answer in zip(uploads, answers, strict=True):
            path = for_json(upload.filename or "")
            if isinstance(answer, str):
                prediction = Prediction(path, [], answer)
            else:
                prediction = self._classifier.prediction(path, answer, top)
            predictions.append(prediction.to_json(self._classifier.task))
        return self._responses.JSONResponse({"predictions": predictions})

    async def predict(self, request: Any) -> Any:
        """The same with TensorFlow Serving's messages."""
        self._check_served(request)
        async with self._in_time():
            body = await request.body()
        entries = max(map(body.count, (b"{", b"[", b",")))
        if entries > _MARKS_PER_IMAGE * (self._limits.max_queue + 1):  # Before it takes memory.
            raise self._too_many(f"{entries} brackets or commas")
        async with self._parsing:
            try:
                files, by_name = await asyncio.to_thread(files_of_json, body)
            except ValueError as error:
                raise self._error(400, str(error)) from error
        rows = [self._row(answer) for answer in await self._answers(request, files)]
        if by_name:
            return self._responses.JSONResponse(
                {"outputs": {name: [row[name] for row in rows] for name in rows[0]}}
            )
        return self._responses.JSONResponse({"predictions": rows})

    async def status(self, request: Any) -> Any:
        """The state of the model, as TensorFlow Serving reports it."""
        self._check_served(request)
        status = {"error_code": "OK", "error_message": ""}
        version = {"version": self.version, "state": "AVAILABLE", "status": status}
        return self._responses.JSONResponse({"model_version_status": [version]})

    async def _answers(self, request, files):
        """Returns a row of probabilities for each file, or the reason why it cannot be read."""
        if len(files) > self._limits.max_queue:
            raise self._too_many(len(files))
        try:
            waiting = self._batcher.submit(files)
        except Overloaded as error:
            headers = {"Retry-After": str(error.retry_after)}
            raise self._error(503, str(error), headers) from error
        answers = asyncio.gather(*map(asyncio.wrap_future, waiting))
        gone = asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait((answers, gone), return_when=asyncio.FIRST_COMPLETED)
            is_answered = answers.done()
        finally:
            answers.cancel()  # Files that are not yet decoded never will be.
            gone.cancel()
            await asyncio.gather(answers, gone, return_exceptions=True)
        if not is_answered:
            raise self._gone()
        for answer in answers.result():
            result = "unreadable" if isinstance(answer, str) else "classified"
            self._num_images.labels(result).inc()
        return answers.result()

    def _row(self, answer):
        """An answer as the outputs of the signature `serve_bytes`, as types of JSON."""
        names, thresholds = self._classifier.class_names, self._classifier.thresholds
        top = min(self._top, len(names))
        valid = not isinstance(answer, str) and bool(np.isfinite(answer).all())
        probabilities = answer if valid else np.zeros(len(names), "float32")
        order = highest(probabilities, top)
        row = {
            "probabilities": probabilities.tolist(),
            "classes": [names[k] if valid else "" for k in order],
            "top_probabilities": probabilities[order].tolist(),
            "valid": valid,
        }
        if thresholds is not None:
            row["predicted"] = (probabilities > np.array(thresholds)).tolist()
        return row

    def _requested_top(self, request):
        text = request.query_params.get("top", str(self._top))
        if not text.isdecimal() or not int(text[:9]) >= 1:
            raise self._error(400, f"top must be a number of classes, at least 1. Received: {text}")
        return int(text[:9])

    def _check_served(self, request):
        name, version = (request.path_params.get(key) for key in ("name", "version"))
        if name != self.name or version not in (None, self.version):
            raise self._error(
                404,
                f"The model must be {self.name}, version {self.version}. "
                f"Received: {name}" + (f", version {version}" if version else ""),
            )

    @contextlib.asynccontextmanager
    async def _form(self, request, most):
        """The form of a request with at most `most` files."""
        try:
            async with request.form(max_files=most) as form:
                yield form
        except self._exceptions.HTTPException as error:
            if "Too many files" in error.detail:  # Starlette says 400.
                raise self._too_many("more") from error
            raise

    @contextlib.asynccontextmanager
    async def _in_time(self):
        """Ends a request whose body does not arrive, also with its connection."""
        close = {"Connection": "close"}
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                yield
        except TimeoutError as error:
            raise self._error(
                408, f"A request must be sent within {_BODY_SECONDS} seconds.", close
            ) from error
        except asyncio.CancelledError as error:
            raise self._error(503, "The server ends.", close) from error
        except self._disconnect as error:
            raise self._gone() from error

    def take(self, size: int, received: int) -> None:
        """Counts bytes of a body, and refuses what is beyond the limits.

        Args:
            size: Bytes that arrived.
            received: Bytes of this body until now.
        """
        largest = int(self._limits.max_body * 1e6)
        if received > largest:
            raise self._error(413, f"A request may have at most {largest:,} bytes.")
        if self._held + size > _BODIES * largest:
            raise self._error(
                503, "The server holds as many requests as it can.", {"Retry-After": "1"}
            )
        self._held += size

    def release(self, size: int) -> None:
        """Forgets the bytes of a body."""
        self._held -= size

    def count(self, scope: Any, status: int, seconds: float) -> None:
        """Counts an answer."""
        route = getattr(scope.get("endpoint"), "__name__", "unknown")
        self._num_requests.labels(route, status).inc()
        self._request_seconds.labels(route).observe(seconds)

    def refusal_of_sender(self, headers: Mapping[bytes, bytes], local_name: str) -> Any:
        """Returns the answer to a page of another site that made a browser send; None to others.

        A server of this machine alone must not answer to a foreign name that was pointed at
        127.0.0.1, nor compute for foreign pages.

        Args:
            headers: Headers of the request by their lower-case name.
            local_name: The name under which the server listens.
        """
        host = headers.get(b"host", b"").decode("latin-1")
        name = host[: host.find("]") + 1].strip("[]") or host.partition(":")[0]
        is_named = name.lower() in ("", "localhost", local_name.lower())
        if not is_named and _ip_address(name) is None:
            reason = f"The host must be localhost or an IP address. Received: {name}"
        elif headers.get(b"sec-fetch-site") == b"cross-site":
            reason = "A page of another site may not use this server."
        else:
            return None
        return self._response(self._error(403, reason))

    def _too_many(self, received):
        return self._error(
            413,
            f"A request may have at most {self._limits.max_queue} images. Received: {received}",
        )

    def _gone(self):
        return self._error(_CLIENT_GONE, "The client has closed the connection.")

    def _error(self, status, detail, headers=None):
        return self._exceptions.HTTPException(status, detail, headers)

    async def _refused(self, request, error):
        return self._response(error)

    def _response(self, error):
        return self._responses.JSONResponse(
            {"error": for_json(error.detail)}, status_code=error.status_code, headers=error.headers
        )

    def failed(self) -> Any:
        """Prints the error that ended a request, and returns the response to it."""
        logging.getLogger(__name__).exception("A request failed.")
        return self._responses.JSONResponse(
            {"error": "The request failed; the server's output says why."}, status_code=500
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, application):
        self._batcher = Batcher(self._classifier, self._limits, self._observe_batch)
        self.when_ready()
        yield
        await asyncio.to_thread(self._batcher.close)

    def _warm_up(self):
        file = io.BytesIO()
        Image.new("RGB", (64, 64)).save(file, "PNG")
        image = self._classifier.input_of(file.getvalue())
        for size in (1, self._limits.max_batch):
            self._classifier.probabilities([image] * size)

    def _observe_batch(self, images, seconds):
        self._batch_images.observe(images)
        self._model_seconds.observe(seconds)

    def _add_metrics(self):
        registry = self._registry = self._prometheus.CollectorRegistry()
        self._prometheus.ProcessCollector(registry=registry)  # Memory, CPU time; on Linux.
        counter = functools.partial(self._prometheus.Counter, registry=registry)
        histogram = functools.partial(self._prometheus.Histogram, registry=registry)
        sizes = [2**power for power in range(11) if 2**power < self._limits.max_batch]
        self._num_requests = counter(
            "keras_vit_requests", "Requests that were answered.", ["route", "status"]
        )
        self._request_seconds = histogram(
            "keras_vit_request_seconds", "From the head of a request to the end of its answer.",
            ["route"],
        )  # fmt: skip
        self._num_images = counter(
            "keras_vit_images", "Images, classified or unreadable.", ["result"]
        )
        self._batch_images = histogram(
            "keras_vit_batch_images", "Images that the model computed at once.",
            buckets=[*sizes, self._limits.max_batch],
        )  # fmt: skip
        self._model_seconds = histogram("keras_vit_model_seconds", "Time of a batch in the model.")
        waiting = self._prometheus.Gauge(
            "keras_vit_waiting_images", "Images accepted and not yet answered.", registry=registry
        )
        waiting.set_function(lambda: self._batcher.waiting)


class _Accounting:
    """ASGI middleware that bounds the bodies of requests and counts requests and answers."""

    def __init__(self, app: Any, service: Service, local_name: str | None):
        self._app, self._service, self._local_name = app, service, local_name

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        service, began = self._service, time.perf_counter()
        received, status, headers = 0, 0, dict(scope["headers"])
        declared = int(headers.get(b"content-length", 0))
        has_images = scope["method"] == "POST"
        service.accepted += has_images

        async def bounded_receive():
            nonlocal received
            service.take(0, declared)  # Before the client is asked to send it.
            message = await receive()
            size = len(message.get("body", b""))
            service.take(size, received + size)
            received += size
            return message

        async def counting_send(message):
            nonlocal status
            status = message.get("status", status)
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                service.answered += has_images

        try:
            refusal = self._local_name and service.refusal_of_sender(headers, self._local_name)
            await (refusal or self._app)(scope, bounded_receive, counting_send)
        except Exception:
            if status:  # The answer has begun.
                raise
            await service.failed()(scope, receive, counting_send)
        finally:
            service.release(received)
            service.count(scope, status, time.perf_counter() - began)


def local_name(host: str) -> str | None:
    """Returns the address of a server that only this machine reaches; None for any other."""
    address = _ip_address(host)
    is_local = host.lower() == "localhost" if address is None else address.is_loopback
    return host if is_local else None


def _ip_address(name):
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
