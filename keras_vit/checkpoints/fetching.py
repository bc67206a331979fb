"""Downloads over HTTP, with limits on their time and the checksums that the server sends."""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import re
import time
import urllib.request
from collections.abc import Mapping

import numpy as np

from keras_vit.utils.progress import progress_bar

# A download must be faster than this on the whole, in addition to the limit on waiting for a byte.
SLOWEST = 50_000  # Bytes per second.
_MAX_BYTES = 64 * 2**30
_CHUNK = 2**20

# The polynomial of CRC-32C (Castagnoli), bits reversed.
_POLYNOMIAL = 0x82F63B78
_LANES, _LANE = 4096, 256  # Parts of a chunk that are computed side by side, and their bytes.


def fetch(url: str, path: str | os.PathLike, timeout: float) -> None:
    """Downloads a file and compares its length and checksum with the server's headers.

    Args:
        url: The address.
        path: The file to write.
        timeout: Seconds without a byte.

    Raises:
        OSError: If the server cannot be reached, refuses, or is slower than `SLOWEST`.
        ValueError: If the file has another length or checksum than the server sent.
    """
    print(f"Downloading data from {url}")
    start, count = time.monotonic(), 0
    with urllib.request.urlopen(url, timeout=timeout) as answer, open(path, "wb") as file:
        headers = answer.headers
        length = headers.get("Content-Length")
        total = int(length) if (length or "").isdecimal() else None
        with progress_bar(total, "download", unit="bytes") as bar:
            while chunk := answer.read1(_CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
                count += len(chunk)
                seconds = time.monotonic() - start
                if seconds > timeout + count / SLOWEST or count > _MAX_BYTES:
                    raise OSError(
                        f"the server is too slow: {count:,} of {length or 'unknown'} bytes in "
                        f"{seconds:.0f} seconds"
                    )
    if total is not None and count != total:
        raise ValueError(f"the server announced {total:,} bytes and sent {count:,}")
    check_sent(path, headers)


def check_sent(path: str | os.PathLike, headers: Mapping[str, str]) -> None:
    """Raises ValueError if a file has another checksum than the headers of its download.

    Args:
        path: The file.
        headers: The server's. "x-goog-hash" of Google Cloud Storage is used, else "Content-MD5",
            else an "ETag" that is an MD5. Without one of these nothing is compared.
    """
    sent = dict(re.findall(r"(md5|crc32c)=([\w+/=]+)", headers.get("x-goog-hash") or ""))
    etag = (headers.get("ETag") or "").strip('"').lower()
    if not sent and (content_md5 := headers.get("Content-MD5")):
        sent = {"md5": content_md5}
    # With keys of one's own in the store, the ETag is no MD5.
    elif not sent and re.fullmatch("[0-9a-f]{32}", etag) and not _is_encrypted(headers):
        sent = {"md5": base64.b64encode(bytes.fromhex(etag)).decode()}
    if "md5" in sent:
        with open(path, "rb") as file:
            name, found = "md5", hashlib.file_digest(file, _md5).digest()
    elif "crc32c" in sent:
        name, found = "crc32c", crc32c(path).to_bytes(4, "big")
    else:
        return
    computed = base64.b64encode(found).decode()
    if computed != sent[name]:
        raise ValueError(f"the {name} of the file is {computed}, and the server sent {sent[name]}")


def _md5():
    return hashlib.md5(usedforsecurity=False)


def _is_encrypted(headers):
    return "kms" in (headers.get("x-amz-server-side-encryption") or "") or bool(
        headers.get("x-goog-encryption-kms-key-name")
    )


def crc32c(path: str | os.PathLike) -> int:
    """Returns the CRC-32C of a file (RFC 3720), which no module of Python computes.

    A chunk is cut into lanes that are computed side by side. The CRC is linear, so the lanes
    are joined by the map that a number of zero bytes applies to it.
    """
    register = np.uint32(0xFFFFFFFF)
    with open(path, "rb") as file:
        while chunk := file.read(_LANES * _LANE):
            if len(chunk) < _LANES * _LANE:
                rest = np.frombuffer(chunk, "uint8")
                return int(_fed(np.array([register]), rest[None])[0] ^ 0xFFFFFFFF)
            lanes = np.frombuffer(chunk, "uint8").reshape(_LANES, _LANE)
            states, zeros = _fed(np.zeros(_LANES, "uint32"), lanes), _zeros()
            while len(states) > 1:
                states = _mapped(zeros, states[0::2]) ^ states[1::2]
                zeros = _mapped(zeros, zeros)
            register = _mapped(zeros, np.array([register]))[0] ^ states[0]
    return int(register ^ 0xFFFFFFFF)


@functools.cache
def _table():
    table = np.arange(256, dtype="uint32")
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table.astype("uint32")


def _fed(states, lanes):
    """The registers after the bytes of their lanes `(lanes, bytes)`."""
    table = _table()
    for column in np.ascontiguousarray(lanes.T):
        states = table[(states ^ column) & 0xFF] ^ (states >> 8)
    return states


@functools.cache
def _zeros():
    """For each bit of a register what it becomes after the zero bytes of a lane."""
    return _fed(np.uint32(1) << np.arange(32, dtype="uint32"), np.zeros((32, _LANE), "uint8"))


def _mapped(columns, states):
    """The linear map of a register, for many registers."""
    result = np.zeros_like(states)
    for bit, column in enumerate(columns):
        result ^= np.where((states >> bit) & 1, column, np.uint32(0)).astype("uint32")
    return result
