"""Output that a terminal shows as text, whatever names of files and classes hold."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from keras_vit.utils.safe_text import for_output


@contextlib.contextmanager
def safe_output() -> Iterator[None]:
    """Escapes control characters in all that Python prints in a block.

    A class or file name could otherwise change what a terminal shows, or its settings.
    """
    with (
        contextlib.redirect_stdout(_Escaping(sys.stdout)),
        contextlib.redirect_stderr(_Escaping(sys.stderr)),
    ):
        yield


class _Escaping:
    """A text stream that escapes what is written to it."""

    def __init__(self, stream: Any):
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(for_output(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
