"""Connections of the server: a deadline for each head, and a bound of their number."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_vit.utils.optional_packages import import_optional

HEAD_SECONDS = 20  # For a client to send a whole head, and between two requests.
WRITE_SECONDS = 60  # For a client to read what stops the server from writing.

_MOST = 4096  # Connections, where the system has no limit of files.
_OWN_FILES = 64  # Files of the process itself: libraries, the model, the log.


@dataclasses.dataclass(frozen=True)
class ConnectionLimits:
    """How many connections a server holds.

    Args:
        most: Open connections. One more ends the one that has waited longest for a whole request,
            or itself if all are being answered.
        backlog: Connections that the system accepts ahead of the server.
    """

    most: int
    backlog: int

    @classmethod
    def of_process(cls) -> ConnectionLimits:
        """Returns the limits that keep the process below its limit of open files."""
        try:
            import resource  # Not on Windows.
        except ImportError:
            return cls(_MOST // 8, _MOST // 64)
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files == resource.RLIM_INFINITY:
            files = 2 * _MOST
        backlog = max(min(files // 8, 2048), 1)
        # A backlog may be accepted at once, before the connections that it replaces are closed.
        return cls(max(min(files - 2 * backlog - _OWN_FILES, _MOST), 1), backlog)


def bounded_protocol(limits: ConnectionLimits) -> type:
    """Returns uvicorn's protocol of HTTP/1.1, with deadlines and a bound of connections.

    uvicorn bounds the time between two requests only, and answers 503 to whole requests beyond a
    number of connections, which does not free those that send nothing.

    Args:
        limits: How many connections are held; shared by all that the protocol makes.
    """
    h11 = import_optional("uvicorn.protocols.http.h11_impl", "A server", "serve")
    waiting: dict[Any, None] = {}  # Connections without a whole request, the oldest first.
    held: set[Any] = set()

    class BoundedConnection(h11.H11Protocol):  # type: ignore[name-defined]
        """A connection, which ends when its client does not send or does not read."""

        deadline = None

        def connection_made(self, transport):
            super().connection_made(transport)
            held.add(self)
            self._expect_head()
            if len(held) > limits.most:
                oldest = next(iter(waiting))
                oldest.end_wait()
                oldest.transport.abort()

        def data_received(self, data):
            super().data_received(data)
            if self._has_head():
                self._set_deadline(None)  # The routes have one for bodies, and answer 408.
                if not self.cycle.more_body:
                    self.end_wait()

        def on_response_complete(self):
            super().on_response_complete()
            if not self._has_head():
                self._expect_head()

        def pause_writing(self):
            super().pause_writing()
            self._set_deadline(WRITE_SECONDS)

        def resume_writing(self):
            super().resume_writing()
            self._set_deadline(None)

        def connection_lost(self, exc):
            held.discard(self)
            self.end_wait()
            super().connection_lost(exc)

        def end_wait(self):
            """Says that the connection waits for nothing from its client."""
            waiting.pop(self, None)
            self._set_deadline(None)

        def _has_head(self):
            return self.cycle is not None and not self.cycle.response_complete

        def _expect_head(self):
            waiting[self] = None
            self._set_deadline(HEAD_SECONDS)

        def _set_deadline(self, seconds):
            if self.deadline is not None:
                self.deadline.cancel()
            self.deadline = seconds and self.loop.call_later(seconds, self.transport.abort)

    return BoundedConnection
