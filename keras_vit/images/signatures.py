"""Formats of image files by their first bytes, without TensorFlow and for its graphs."""

from __future__ import annotations

import numpy as np

JPEG, PNG, GIF, BMP, WEBP, UNKNOWN = range(6)

# First bytes of files in hexadecimal, with dots for any byte; the first row that fits counts.
# The first two rows are JPEGs without EXIF, as most are: their tables (ff db) follow at once.
_SIGNATURES = (
    ("ff d8 ff e0 00 10" + " .." * 14 + " ff db", JPEG),
    ("ff d8 ff db", JPEG),
    ("ff d8 ff", JPEG),
    ("89 50 4e 47 0d 0a 1a 0a", PNG),
    ("47 49 46 38", GIF),
    ("42 4d", BMP),
    ("52 49 46 46 .. .. .. .. 57 45 42 50", WEBP),
    ("", UNKNOWN),
)
ROWS_WITHOUT_EXIF = 2
FORMATS = [row[1] for row in _SIGNATURES]
LONGEST = 22  # Bytes.
_WORDS = [(row[0].split() + [".."] * LONGEST)[:LONGEST] for row in _SIGNATURES]
BYTES = np.array([[int(word.replace("..", "0"), 16) for word in row] for row in _WORDS])
ANY = np.array([[word == ".." for word in row] for row in _WORDS])


def signature_format(head: bytes) -> int:
    """Returns the format by the first bytes of a file."""
    values = np.frombuffer(head[:LONGEST].ljust(LONGEST, b"\0"), np.uint8)
    return FORMATS[np.argmax(((values == BYTES) | ANY).all(axis=1))]
