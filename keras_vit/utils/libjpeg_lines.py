"""Standard error without the lines that libjpeg writes about damaged images.

TensorFlow decodes JPEG with libjpeg, whose C code writes to file descriptor 2 without the name of
the image: "Premature end of JPEG file". Most such images are decoded all the same, so they cannot
be found before; the others are reported by Python with their names.

Run as a program, this module copies its standard input to file descriptor 2 without such lines.
Imports neither Keras nor NumPy.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator

# The errors and warnings of a decompressor, in libjpeg-turbo's jerror.h. Numbers are written for %.
_MESSAGES = b"""\
Arithmetic table % was not defined
Bogus DAC index %
Bogus DAC value %
Bogus DHT index %
Bogus DQT index %
Bogus Huffman table definition
Bogus JPEG colorspace
Bogus marker length
Bogus sampling factors
CCIR601 sampling not implemented yet
Component index %: mismatching sampling ratio %:%, %:%, %
Corrupt JPEG data: % extraneous bytes before marker %
Corrupt JPEG data: bad Huffman code
Corrupt JPEG data: bad ICC marker
Corrupt JPEG data: bad arithmetic code
Corrupt JPEG data: found marker % instead of RST%
Corrupt JPEG data: premature end of data segment
Empty JPEG image (DNL not supported)
Empty input file
Fractional sampling not implemented yet
Huffman code size table overflow
Huffman table % was not defined
IDCT output block size % not supported
Image too wide for this implementation
Improper call to JPEG library in state %
Inconsistent progression sequence for component % coefficient %
Input file read error
Insufficient memory (case %)
Invalid JPEG file structure: SOS before SOF
Invalid JPEG file structure: missing SOS marker
Invalid JPEG file structure: two SOF markers
Invalid JPEG file structure: two SOI markers
Invalid SOS parameters for sequential JPEG
Invalid component ID % in SOS
Invalid crop request
Invalid progressive parameters Ss=% Se=% Ah=% Al=%
Invalid progressive/lossless parameters Ss=% Se=% Ah=% Al=%
JPEG datastream contains no image
Maximum supported image dimension is % pixels
Missing Huffman code table entry
Not a JPEG file: starts with % %
Premature end of JPEG file
Premature end of input file
Quantization table % was not defined
Requested feature was omitted at compile time
Sampling factors too large for interleaved scan
Sorry, arithmetic coding is not implemented
Too many color components: %, max %
Unexpected marker %
Unknown Adobe color transform code %
Unsupported JPEG data precision %
Unsupported JPEG process: SOF type %
Unsupported color conversion request
Unsupported marker type %
Warning: thumbnail image size does not match data length %
Warning: unknown JFIF revision number %
"""
_NUMBER = rb"[-0-9a-fx.,]+"
_LINE = re.compile(b"|".join(map(re.escape, _MESSAGES.splitlines())).replace(b"%", _NUMBER))
_STARTS = [line.partition(b"%")[0] for line in _MESSAGES.splitlines()]
_LONGEST = 200  # Bytes.


@contextlib.contextmanager
def without_libjpeg_lines() -> Iterator[None]:
    """Leaves libjpeg's lines out of standard error in a block; all else is unchanged.

    C code and child processes write to a pipe instead, which a separate process copies: what a
    crash writes last is copied too. Python's standard error remains what it was, such as a
    terminal, unless it has been replaced already.
    """
    stderr = os.dup(2)
    try:
        command = [sys.executable, "-I", "-S", __file__]  # In a session where Ctrl-C leaves it.
        copying = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    except OSError:  # No memory, or too many processes.
        os.close(stderr)
        yield
        return
    assert copying.stdin is not None
    sys.stderr.flush()
    os.dup2(copying.stdin.fileno(), 2)
    copying.stdin.close()
    try:
        with contextlib.redirect_stderr(_as_now(stderr)):
            yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)
        with contextlib.suppress(subprocess.TimeoutExpired):
            copying.wait(1)  # Longer where a child process goes on with the pipe.


def _as_now(stderr):
    """Python's standard error, which writes to another descriptor of the same file."""
    try:
        is_descriptor = sys.stderr.fileno() == 2
    except (AttributeError, OSError, ValueError):
        is_descriptor = False
    if not is_descriptor:
        return sys.stderr
    # Not closed at the end, as handlers of logging keep it.
    return open(os.dup(stderr), "w", 1, sys.stderr.encoding, sys.stderr.errors)


def copy(source: int, destination: int) -> None:
    """Copies bytes until their end, without the lines of libjpeg.

    Args:
        source: A file descriptor to read.
        destination: A file descriptor to write. The start of a line is written before its end is
            known, unless it may become such a line.
    """
    held, at_start = b"", True
    while data := os.read(source, 2**16):
        *lines, rest = (held + data).split(b"\n")
        for line in lines:
            if not (at_start and _LINE.fullmatch(line)):
                _write(destination, line + b"\n")
            at_start = True
        held = rest if at_start and _may_become_one(rest) else b""
        if rest and not held:
            _write(destination, rest)
            at_start = False
    _write(destination, held)


def _may_become_one(rest):
    short = len(rest) < _LONGEST
    return short and any(rest.startswith(start[: len(rest)]) for start in _STARTS)


def _write(destination, data):
    while data:
        data = data[os.write(destination, data) :]


if __name__ == "__main__":
    copy(0, 2)
