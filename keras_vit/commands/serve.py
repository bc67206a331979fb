"""`keras-vit serve`: a classifier as an HTTP server."""

import dataclasses

from keras_vit.commands.shared_arguments import add_classifier
from keras_vit.export.options import PORT, TOP, ServingLimits

EPILOG = (
    "SIGTERM stops it: no new connection is accepted, every accepted request is answered, and "
    "the exit code is 0. There is no password and no encryption: behind a proxy of your own it may "
    "listen on other addresses than 127.0.0.1."
)

LIMITS = {
    "max_batch": (int, "N", "images that the model computes at once"),
    "batch_wait": (float, "MS", "milliseconds that a batch waits for images being decoded"),
    "max_queue": (int, "N", "images of all requests that wait for their answer; beyond it 503"),
    "max_body": (float, "MB", "megabytes of a request; beyond it 413"),
    "max_pixels": (int, "N", "largest image, height times width"),
}


def add_arguments(parser):
    """Declares the command's arguments."""
    parser.epilog = EPILOG
    add_classifier(parser)
    parser.add_argument("--host", default="127.0.0.1", help="(default: %(default)s)")
    parser.add_argument(
        "--port", type=int, default=PORT, help="0 for any free one (default: %(default)s)"
    )
    parser.add_argument(
        "--name", help="the model's name in routes; by default that of its folder or file"
    )
    parser.add_argument(
        "--top",
        type=int,
        default=TOP,
        metavar="K",
        help="classes of an answer (default: %(default)s)",
    )
    for name, (kind, metavar, text) in LIMITS.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=kind,
            default=getattr(ServingLimits, name),
            metavar=metavar,
            help=f"{text} (default: %(default)s)",
        )


def run(arguments):
    """Serves until SIGTERM."""
    names = [field.name for field in dataclasses.fields(ServingLimits)]
    limits = ServingLimits(**{name: getattr(arguments, name) for name in names})

    from keras_vit.export.server import serve

    serve(
        arguments.model,
        host=arguments.host,
        port=arguments.port,
        name=arguments.name,
        top=arguments.top,
        limits=limits,
    )
