"""HTTP server of a classifier: its address, its end, and what it serves."""

from __future__ import annotations

import functools
import logging
import os
import signal
import socket

from keras_vit.classifier import Classifier
from keras_vit.models.opened_classifier import open_classifier

from .connections import ConnectionLimits, bounded_protocol
from .options import PORT, TOP, ServingLimits
from .service import Service, import_server_package, local_name

_DRAIN_SECONDS = 30  # For requests in flight at the end; Kubernetes waits as long.


def serve(
    model: Classifier | str | os.PathLike,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    name: str | None = None,
    top: int = TOP,
    limits: ServingLimits | None = None,
) -> None:
    """Serves a classifier by HTTP until SIGTERM or Ctrl-C, then answers what was accepted.

    Routes:

    - `GET /`: a page to drop images on;
    - `POST /classify`: files as multipart/form-data, answered as `keras-vit predict` does;
    - `GET /v1/models/NAME`, `POST /v1/models/NAME:predict`: TensorFlow Serving's REST protocol,
      as for the signature `serve_bytes` of an exported SavedModel;
    - `GET /healthz`, `GET /metrics`: for load balancers and Prometheus.

    Args:
        model: A `Classifier`, its folder, or an export; see `open_classifier`.
        host: Address to listen on; "0.0.0.0" for all networks.
        port: Port; 0 for any free one, which is printed.
        name: NAME of the routes; by default the name of the folder or file.
        top: Classes of an answer.
        limits: Bounds of requests and batches.

    Raises:
        ValueError: If an argument is out of range, or the model cannot be opened.
        OSError: If the port is in use.
        ImportError: If the extra `serve` is not installed.
    """
    uvicorn = import_server_package("uvicorn")
    import_server_package("starlette")
    import_server_package("python_multipart")
    import_server_package("prometheus_client")
    # Warnings are of what clients send, here and in the server's log below.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    if top < 1:
        raise ValueError(f"top must be at least 1. Received: {top}")
    if not 0 <= port < 2**16:
        raise ValueError(f"port must be in 0 to {2**16 - 1}. Received: {port}")
    with bound_socket(host, port) as listener:
        classifier = open_classifier(model).answering
        service = Service(classifier, name, top, limits or ServingLimits())
        address = f"[{host}]" if ":" in host else host
        connections = ConnectionLimits.of_process()
        server = uvicorn.Server(
            uvicorn.Config(
                service.application(local_name(host)),
                http=bounded_protocol(connections),
                backlog=connections.backlog,
                ws="none",
                log_level=logging.ERROR,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="on",
                timeout_graceful_shutdown=_DRAIN_SECONDS,
            )
        )
        service.when_ready = functools.partial(
            print,
            f"{service.name}: {len(classifier.class_names)} classes, "
            f"http://{address}:{listener.getsockname()[1]}",
            flush=True,
        )
        # Uvicorn drains, then raises the signal again for the handler from before.
        handler = signal.signal(signal.SIGTERM, lambda *_: None)
        listener.listen(connections.backlog)  # Before `when_ready` says so.
        try:
            server.run(sockets=[listener])
        finally:
            signal.signal(signal.SIGTERM, handler)
            print(f"answered {service.answered} of {service.accepted} requests", flush=True)


def bound_socket(host: str, port: int) -> socket.socket:
    """Returns a TCP socket of an address, which does not listen yet.

    Raises:
        OSError: If the address is in use, or not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without a protocol in the socket, asyncio leaves Nagle's algorithm on: 40 ms an answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(f"The server cannot use {host}, port {port}: {error.strerror}.") from error
    return listener
