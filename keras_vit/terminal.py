"""Output that a terminal shows as text, whatever names of files and classes hold."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any

# Control characters but tab, line feed and carriage return, those that change the direction of
# text, and the surrogates of bytes that are no UTF-8. Progress bars move the cursor up.
_UNSAFE = re.compile(
    "(?!\x1b\\[A)"
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escaped(text: str) -> str:
    """Returns a text whose control characters have the form that JSON gives them."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


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
        self._stream.write(escaped(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
