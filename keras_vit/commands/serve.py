"""`keras-vit serve`: a classifier as an HTTP server."""

from __future__ import annotations

import dataclasses

from keras_vit.commands import Command, shared_arguments
from keras_vit.export.options import PORT, TOP, ServingLimits
from keras_vit.utils.fields import part, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Serve(Command):
    """Serve a classifier by HTTP, with a page for uploads.

    SIGTERM stops it: no new connection is accepted, every accepted request is answered, and the
    exit code is 0. There is no password and no encryption: behind a proxy of your own it may
    listen on other addresses than 127.0.0.1.
    """

    model: str = shared_arguments.classifier()
    host: str = setting("127.0.0.1", "the address to listen on")
    port: int = setting(PORT, "0 for any free one")
    name: str | None = setting(
        None, "the model's name in routes; by default the name of its folder or file"
    )
    top: int = setting(TOP, "classes of an answer", unit="K")
    limits: ServingLimits = part(ServingLimits)

    @property
    def needs_tensorflow(self) -> bool:
        """Whether TensorFlow is needed: not for an export in another runtime."""
        from keras_vit.models.opened_classifier import runs_without_tensorflow

        return not runs_without_tensorflow(self.model)

    def run(self) -> None:
        """Serves until SIGTERM."""
        from keras_vit.export.server import serve

        serve(
            self.model,
            host=self.host,
            port=self.port,
            name=self.name,
            top=self.top,
            limits=self.limits,
        )
