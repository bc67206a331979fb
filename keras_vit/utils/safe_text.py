"""Text of others, such as names of files and classes, made safe for each place where it is shown.

Imports neither Keras nor NumPy.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

# Control characters, those that end a line or change the direction of text, and the surrogates of
# bytes that are no UTF-8.
_CONTROL = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
    "\ud800-\udfff"
)
_UNSAFE_IN_OUTPUT = re.compile(rf"[{_CONTROL}]|(?!\A)\r(?![\n]|\Z)")
_UNSAFE_IN_A_LINE = re.compile(rf"[{_CONTROL}\r\n]")
_COLOR = re.compile("\x1b\\[[0-9;]*m")
_CURSOR_OF_BARS = re.compile("\n*(\x1b\\[A)*")
_FORMULAS = (*"=+-@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # The last are full-width forms.


def for_output(text: str) -> str:
    """Returns what a program prints, lines and progress bars, without other control characters.

    A bar begins with a carriage return, and its moves of the cursor are printed by themselves.
    """
    if _CURSOR_OF_BARS.fullmatch(text):
        return text
    return _UNSAFE_IN_OUTPUT.sub(_escaped, text)


def for_line(text: str) -> str:
    """Returns a text as a part of one line of a terminal or a log."""
    return _UNSAFE_IN_A_LINE.sub(_escaped, text)


def first_line(error: BaseException) -> str:
    """Returns the first line of an error of another library, without colours; its type if empty."""
    lines = _COLOR.sub("", str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def first_names(names: Sequence[str], count: int = 5) -> str:
    """Returns the first of some names, and how many more there are."""
    more = f" and {len(names) - count:,} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more


def for_markdown(text: str) -> str:
    """Returns a text as a part of a line of Markdown, or a cell of its tables.

    It can neither end the cell nor become HTML, a link or an image.
    """
    return for_line(text).replace("|", "\\|").replace("<", "&lt;").replace("](", "]\\(")


def for_csv(text: str) -> str:
    """Returns a text as a cell of CSV, with an apostrophe where a spreadsheet would run a formula.

    A formula begins with one of `= + - @` or their full-width forms, also behind white space, and
    behind a semicolon or a tab, which separate cells in some countries. Numbers stay.
    """
    text = for_line(text)
    if len(text) < 2 or _is_number(text):
        return text
    first, *others = re.split("([;\t])", text)
    if text.lstrip().startswith(_FORMULAS):
        first = f"'{first}"
    safe = [f"'{cell}" if cell.lstrip().startswith(_FORMULAS) else cell for cell in others]
    return "".join([first, *safe])


def _escaped(found):
    """A character in the form that JSON gives it."""
    return f"\\u{ord(found[0]):04x}"


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


@contextlib.contextmanager
def safe_output() -> Iterator[None]:
    """Escapes control characters, and what the encoding lacks, in all that a block prints.

    A class or file name could otherwise change what a terminal shows, or its settings, or end the
    command where the output is not UTF-8, as of a redirect on Windows.
    """
    with (
        contextlib.redirect_stdout(_Escaping(sys.stdout)),
        contextlib.redirect_stderr(_Escaping(sys.stderr)),
    ):
        yield


class _Escaping:
    """A text stream that escapes what is written to it."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        printable = for_output(text).encode(encoding, "backslashreplace").decode(encoding)
        self._stream.write(printable)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
