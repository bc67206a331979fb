"""Text files that people write: lists and tables from editors and spreadsheets."""

from __future__ import annotations

import codecs
import os
import pathlib

# The mark at the beginning of a file, which names its encoding.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def read_text(path: str | os.PathLike) -> str:
    r"""Returns the text of a file in UTF-8, or in UTF-16 with a mark at its beginning.

    The mark is left out; a line ends with "\n", whatever the file has.

    Args:
        path: The file.

    Raises:
        ValueError: If it is in another encoding, or is no text.
        OSError: If it cannot be read.
    """
    content = pathlib.Path(path).read_bytes()
    encoding = "utf-8"
    for mark, name in _MARKS:
        if content.startswith(mark):
            content, encoding = content.removeprefix(mark), name
            break
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(_refusal(path, str(error))) from error
    if "\0" in text:  # UTF-16 without a mark, UTF-32, or no text.
        raise ValueError(_refusal(path, "zero bytes in it"))
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_lines(path: str | os.PathLike) -> list[str]:
    """Returns the lines of a file that are not blank, unchanged; see `read_text`."""
    return [line for line in read_text(path).split("\n") if line.strip()]


def _refusal(path, received):
    return (
        f"{os.fspath(path)} must be text in UTF-8: save it as UTF-8 in an editor, or as "
        f'"CSV UTF-8" in a spreadsheet. Received: {received}'
    )
