"""A reader of HDF5 files of unknown origin, in bounded time and memory.

It knows what Keras writes and refuses the rest: groups with a table of symbols, and arrays in one
piece. The C library of HDF5 may crash or never return on a damaged file, and a reader of the whole
format takes the memory that a few bytes declare. The numbers and names below are from the HDF5
File Format Specification:
https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t4.html
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import os
import struct
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_vit.checkpoints.formats import damaged_file
from keras_vit.utils.files import WEIGHTS

Keys = tuple[str, ...]

# Groups within groups; a layer of a layer of a model is far from it.
_MAX_DEPTH = 32

# Axes of an array, in HDF5.
_MAX_RANK = 32

# Numbers in an array, more than fit into memory; their product fits into 64 bits.
_MAX_NUMBERS = 2**50

# Bytes of an attribute: what the header of an object can hold, as in the files of Keras.
_MAX_ATTRIBUTE = 2**16

# Letters in the names of groups that lead to an array, and in a text that is used.
_MAX_PATH, _MAX_TEXT = 1000, 250
_TEXTS = {"name", "dtype"}

# Bytes in the header of an object, with its attributes.
_MAX_HEADER = 2**21

# Bytes of structure that may be read beyond the file's size. Each part is read once, so more
# means that parts overlap.
_FREE_BYTES = 2**20

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_UNDEFINED = 2**64 - 1  # The address of what was never written.

# Messages in the header of an object.
_DATASPACE, _LINK_INFO, _DATATYPE, _LINK, _EXTERNAL_FILES, _LAYOUT = 1, 2, 3, 6, 7, 8
_FILTERS, _ATTRIBUTE, _CONTINUATION, _SYMBOL_TABLE, _ATTRIBUTE_INFO = 11, 12, 16, 17, 21
_IS_SHARED = 2  # A flag: the message is only the address of another one.

# Classes of types, and of layouts.
_INTEGER, _FLOAT, _TEXT, _OPAQUE, _VARIABLE_LENGTH = 0, 1, 3, 5, 9
_COMPACT, _CONTIGUOUS, _CHUNKED, _VIRTUAL = range(4)

# Size in bytes, bits of the exponent, bits of the fraction.
_IEEE_FLOATS = {(2, 5, 10), (4, 8, 23), (8, 11, 52)}


class _Damage(Exception):
    """The reason why a file is damaged."""


@dataclasses.dataclass(frozen=True)
class Hdf5Array:
    """An array of a file, whose values were not read.

    Args:
        shape: The shape; None for an array without values.
        dtype: The type; a structure with one field for a type that NumPy does not have.
        attributes: See `Hdf5File.groups`.
        place: Address of the first byte in the file; None if the values are not in one piece.
        values: The bytes of a small array that lies in a header, or None.
    """

    shape: tuple[int, ...] | None
    dtype: np.dtype
    attributes: dict[str, str | None]
    place: int | None
    values: bytes | None = None


class Hdf5File:
    """An open HDF5 file, whose structure was read and checked.

    Args:
        path: The file, for messages.
        file: The open file, or one that holds it.
        size: Bytes of the HDF5 file.
        start: Place of its first byte in `file`.

    Attributes:
        groups: By the keys that lead to each group, its attributes: the texts of `_TEXTS`, None
            for any other attribute.
        arrays: By the keys that lead to each array, the array; in the order of the keys.

    Raises:
        ValueError: If the file is damaged; if a group or array can be reached in two ways (a group
            may hold itself), groups are nested too deeply, an attribute declares more than
            `_MAX_ATTRIBUTE` bytes, or anything lies in another file.
        OSError: If it cannot be read.
    """

    def __init__(self, path: Any, file: Any, size: int, start: int = 0):
        self._path, self._file, self._size, self._start = path, file, size, start
        self._unread = size + _FREE_BYTES
        self._texts: dict[int, dict[int, bytes]] = {}  # By the address of their collection.
        self.groups: dict[Keys, dict[str, str | None]] = {}
        arrays: dict[Keys, Hdf5Array] = {}
        try:
            self._read_objects(arrays)
        except (_Damage, struct.error, IndexError, UnicodeError) as error:
            raise damaged_file("A file of weights", path, error) from error
        self.arrays = dict(sorted(arrays.items()))

    def read(self, array: Hdf5Array) -> np.ndarray:
        """Returns the values of an array of this file.

        Raises:
            ValueError: If they are not in one piece, or the file has changed.
        """
        if array.shape is None or (array.place is None and array.values is None):
            raise ValueError(
                "An array of a .weights.h5 must be in one piece, as Keras writes it (h5repack "
                f"--layout=CONTI rewrites a file). Received: {self._path} with one in chunks"
            )
        if array.values is not None:
            return np.frombuffer(array.values, array.dtype).reshape(array.shape)
        values = np.empty(array.shape, array.dtype)
        if not values.size:  # It has no address.
            return values
        self._file.seek(self._start + (array.place or 0))
        if self._file.readinto(values.reshape(-1).view("uint8")) < values.nbytes:
            raise damaged_file("A file of weights", self._path, "it ends early")
        return values

    def _read_objects(self, arrays):
        """Visits every object once, so that time and memory are bounded by the size of the file."""
        root = self._root()
        visited = {root}
        waiting: list[tuple[Keys, int]] = [((), root)]
        while waiting:
            keys, address = waiting.pop()
            messages = self._messages(address)
            kinds = {kind for kind, _ in messages}
            attributes = self._attributes(keys, messages)
            if kinds & {_SYMBOL_TABLE, _LINK_INFO}:
                if len(keys) > _MAX_DEPTH:
                    raise self._refused(f"groups no deeper than {_MAX_DEPTH}", keys)
                self.groups[keys] = attributes
                for name, target in self._links(keys, messages):
                    inner = (*keys, name)
                    if sum(map(len, inner)) > _MAX_PATH:
                        raise self._refused(f"paths of no more than {_MAX_PATH:,} letters", inner)
                    if target in visited:
                        raise self._refused("every group and array once", inner)
                    visited.add(target)
                    waiting.append((inner, target))
            elif kinds >= {_DATASPACE, _DATATYPE, _LAYOUT}:
                arrays[keys] = self._array(keys, dict(messages), attributes)
            else:
                raise self._refused("groups and arrays alone", keys)

    def _refused(self, what, keys):
        place = "/".join(keys)
        return ValueError(
            f"A .weights.h5 must hold {what}. Received: {self._path} with {place[:100]}"
        )

    def _bytes(self, address, size):
        """Bytes of the structure."""
        if address + size > self._size:
            raise _Damage("it ends early")
        self._unread -= size + 1
        if self._unread < 0:
            raise _Damage("its parts overlap")
        self._file.seek(self._start + address)
        content = self._file.read(size)
        if len(content) < size:
            raise _Damage("it ends early")
        return content

    def _root(self):
        """The address of the first group."""
        if self._bytes(0, 8) != _SIGNATURE:
            raise _Damage("it has no signature of HDF5")
        version = self._bytes(8, 1)[0]
        if version in (0, 1):
            sizes, place = self._bytes(13, 2), 24 + 4 * version
            base, _, end = struct.unpack("<3Q", self._bytes(place, 24))
            root = struct.unpack("<Q", self._bytes(place + 40, 8))[0]
        elif version in (2, 3):
            sizes = self._bytes(9, 2)
            base, _, end, root = struct.unpack("<4Q", self._bytes(12, 32))
        else:
            raise _Damage(f"its version {version} is unknown")
        if sizes != b"\x08\x08" or base:
            raise _Damage("its addresses are not as Keras writes them")
        if end > self._size:
            raise _Damage("it ends early")
        return root

    def _messages(self, address):
        """The kind and the content of each message in the header of an object."""
        first = self._bytes(address, 6)
        if first[:5] == b"OHDR\x02":
            flags = first[5]
            place = address + 6 + 16 * bool(flags & 32) + 4 * bool(flags & 16)
            width = 1 << (flags & 3)
            size = int.from_bytes(self._bytes(place, width), "little")
            prefix, skipped, frame = "<BHB", 2 * bool(flags & 4), 4
            blocks = [(place + width, size)]
        elif first[0] == 1:
            prefix, skipped, frame = "<HHB", 3, 0
            blocks = [(address + 16, struct.unpack("<I", self._bytes(address + 8, 4))[0])]
        else:
            raise _Damage("an object has no header")
        messages, total = [], 0
        for block in blocks:  # It grows.
            total += block[1] + 1
            if total > _MAX_HEADER:
                raise _Damage("a header is larger than any")
            content, place = self._bytes(*block), 0
            while place + struct.calcsize(prefix) + skipped <= len(content):
                kind, size, flags = struct.unpack_from(prefix, content, place)
                place += struct.calcsize(prefix) + skipped
                body = content[place : place + size]
                place += size
                if kind == _CONTINUATION:
                    start, length = struct.unpack_from("<QQ", body)
                    if length < 2 * frame:  # A signature and a checksum.
                        raise _Damage("a header is continued by nothing")
                    blocks.append((start + frame, length - 2 * frame))
                elif flags & _IS_SHARED:
                    raise _Damage("a header refers to another one")
                else:
                    messages.append((kind, body))
        return messages

    def _links(self, keys, messages):
        """Yields the name and the address of each member of a group."""
        names = set()
        for kind, body in messages:
            if kind == _SYMBOL_TABLE:
                found = self._symbols(*struct.unpack_from("<QQ", body))
            elif kind == _LINK:
                found = [_link(body)]
            elif kind == _LINK_INFO and _heap_of(body, 8) != _UNDEFINED:
                what = "its arrays itself, without a link, in groups with a table of symbols"
                raise self._refused(what, keys)
            else:
                continue
            for raw, target in found:
                name = raw.decode()
                if target is None:
                    raise self._refused("its arrays itself, without a link", (*keys, name))
                if not name or "/" in name or name in names:
                    raise _Damage(f"a group has two members {name!r}, or that is no name")
                names.add(name)
                yield name, target

    def _symbols(self, tree, heap):
        """Yields the name and the address of each entry in a table of symbols; None for a link."""
        signature, size, _, address = struct.unpack("<4s4xQQQ", self._bytes(heap, 32))
        if signature != b"HEAP":
            raise _Damage("a group has no names")
        names = self._bytes(address, size)
        nodes = [(tree, None)]
        while nodes:
            address, level = nodes.pop()
            signature, kind, found, count = struct.unpack("<4sBBH", self._bytes(address, 8))
            if (signature, kind) != (b"TREE", 0) or level not in (None, found):
                raise _Damage("a group has no table of symbols")
            children = struct.unpack(f"<{2 * count}Q", self._bytes(address + 24, 16 * count))[1::2]
            if found:
                nodes += [(child, found - 1) for child in children]
                continue
            for child in children:
                signature, count = struct.unpack("<4s2xH", self._bytes(child, 8))
                if signature != b"SNOD":
                    raise _Damage("a group has no symbols")
                entries = self._bytes(child + 8, 40 * count)
                for name, target, cache, *_ in struct.iter_unpack("<QQIIQQ", entries):
                    text, end, _ = names[name : name + 4 * _MAX_PATH].partition(b"\0")
                    if not end:
                        raise _Damage("a symbol has no name")
                    yield text, None if cache == 2 else target

    def _attributes(self, keys, messages):
        too_large = self._refused(f"attributes of no more than {_MAX_ATTRIBUTE:,} bytes", keys)
        attributes: dict[str, str | None] = {}
        for kind, body in messages:
            if kind == _ATTRIBUTE_INFO and _heap_of(body, 2) != _UNDEFINED:
                raise too_large
            if kind != _ATTRIBUTE:
                continue
            version, _, *sizes = struct.unpack_from("<BBHHH", body)
            if version not in (1, 2, 3):
                raise _Damage("an attribute is of an unknown version")
            place, padding = 8 + (version == 3), 8 if version == 1 else 1
            parts = []
            for size in sizes:
                parts.append(body[place : place + size])
                place += -(-size // padding) * padding
            name, datatype, dataspace = parts
            shape = _shape(dataspace)
            size = math.prod(shape or ()) * _size_of(datatype)
            if size > _MAX_ATTRIBUTE:
                raise too_large
            if shape is not None and len(body) < place + size:
                raise _Damage("an attribute has no value")
            key = name.split(b"\0")[0].decode()
            is_used = key in _TEXTS and shape == ()
            value = self._text(datatype, body[place : place + size]) if is_used else None
            attributes[key] = value
        return attributes

    def _text(self, datatype, value):
        """The text of an attribute; None if it is none."""
        kind, flags = datatype[0] & 15, datatype[1] & 15
        if kind == _TEXT:
            return value.rstrip(b"\0").decode()[:_MAX_TEXT]
        if kind != _VARIABLE_LENGTH or flags == 0:
            return None
        if flags != 1:
            raise _Damage("a text is of an unknown kind")
        length, address, index = struct.unpack("<IQI", value)
        if not length:
            return ""
        if length > 4 * _MAX_TEXT:
            raise _Damage("a text is longer than any")
        if address not in self._texts:
            self._texts[address] = self._collection(address)
        text = self._texts[address].get(index, b"")
        if len(text) < length:
            raise _Damage("a text ends early")
        return text[:length].decode()

    def _collection(self, address):
        """Texts of any length by their index."""
        signature, size = struct.unpack("<4s4xQ", self._bytes(address, 16))
        if signature != b"GCOL" or size < 16:
            raise _Damage("a text is nowhere")
        content, place = self._bytes(address + 16, size - 16), 0
        texts: dict[int, bytes] = {}
        while place + 16 <= len(content):
            index, length = struct.unpack_from("<H6xQ", content, place)
            if index == 0:  # Free space up to the end.
                break
            texts[index] = content[place + 16 : place + 16 + length]
            place += 16 + -(-length // 8) * 8
        return texts

    def _array(self, keys, messages, attributes):
        layout = messages[_LAYOUT]
        version, kind = layout[0], layout[1]
        if _EXTERNAL_FILES in messages or kind == _VIRTUAL:
            raise self._refused("its arrays itself, and refer to no other file", keys)
        if version not in (3, 4):
            raise _Damage("an array has a layout of an unknown version")
        shape, dtype = _shape(messages[_DATASPACE]), _dtype(messages[_DATATYPE])
        size = math.prod(shape or ()) * dtype.itemsize
        if kind == _COMPACT:
            length = struct.unpack_from("<H", layout, 2)[0]
            values = layout[4 : 4 + length]
            if shape is not None and len(values) != size:
                raise _Damage("an array has other values than it declares")
            return Hdf5Array(shape, dtype, attributes, None, values)
        if kind == _CHUNKED or _FILTERS in messages:
            return Hdf5Array(shape, dtype, attributes, None)
        if kind != _CONTIGUOUS:
            raise _Damage("an array has an unknown layout")
        place = struct.unpack_from("<Q", layout, 2)[0]
        if shape is not None and size and place + size > self._size:
            raise _Damage("an array ends after the file, or was never written")
        return Hdf5Array(shape, dtype, attributes, place)


def _link(body):
    """The name of a member, and its address or None for a link to a path or another file."""
    version, flags = body[0], body[1]
    if version != 1:
        raise _Damage("a link is of an unknown version")
    place = 2
    kind = body[place] if flags & 8 else 0
    place += bool(flags & 8) + 8 * bool(flags & 4) + bool(flags & 16)
    width = 1 << (flags & 3)
    size = int.from_bytes(body[place : place + width], "little")
    place += width
    target = struct.unpack_from("<Q", body, place + size)[0] if kind == 0 else None
    return body[place : place + size], target


def _heap_of(body, index_bytes):
    """The address of the heap where an object with many links or attributes keeps them."""
    return struct.unpack_from("<Q", body, 2 + index_bytes * (body[1] & 1))[0]


def _shape(dataspace):
    """The shape; None for no values."""
    version, rank = dataspace[0], dataspace[1]
    if version not in (1, 2) or rank > _MAX_RANK:
        raise _Damage("an array has an unknown number of axes")
    if version == 2 and dataspace[3] == 2:
        return None
    shape = struct.unpack_from(f"<{rank}Q", dataspace, 8 if version == 1 else 4)
    if math.prod(max(side, 1) for side in shape) > _MAX_NUMBERS:
        raise _Damage("an array is larger than any")
    return shape


def _size_of(datatype):
    return struct.unpack_from("<I", datatype, 4)[0]


def _dtype(datatype):
    """The type of NumPy; a structure with one field for a type that it does not have."""
    kind, flags, size = datatype[0] & 15, datatype[1], _size_of(datatype)
    order = ">" if flags & 1 else "<"
    if kind == _INTEGER and size in (1, 2, 4, 8):
        return np.dtype(f"{order}{'i' if flags & 8 else 'u'}{size}")
    if kind == _FLOAT and (size, datatype[13], datatype[15]) in _IEEE_FLOATS:
        return np.dtype(f"{order}f{size}")
    if not 0 < size < 2**31:
        raise _Damage("an array has a type of an unknown size")
    if kind == _OPAQUE:
        return np.dtype(f"V{size}")
    return np.dtype([(f"class_{kind}_of_hdf5", f"V{size}")])


@contextlib.contextmanager
def open_hdf5(path: str | os.PathLike, content: bytes | None = None) -> Iterator[Hdf5File]:
    """Opens an HDF5 file.

    Args:
        path: The file.
        content: The file's bytes, where it is part of another file.
    """
    if content is not None:
        yield Hdf5File(path, io.BytesIO(content), len(content))
    else:
        with open(path, "rb") as file:
            yield Hdf5File(path, file, os.path.getsize(path))


@contextlib.contextmanager
def open_weights_entry(path: str | os.PathLike) -> Iterator[Hdf5File]:
    """Opens the weights of a `.keras` archive, or of a folder of its entries.

    They are not copied where they are not compressed.
    """
    if os.path.isdir(path):
        place = os.path.join(path, WEIGHTS)
        with open(place, "rb") as file:
            yield Hdf5File(place, file, os.path.getsize(place))
        return
    with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
        entry = archive.getinfo(WEIGHTS)
        if entry.compress_type == zipfile.ZIP_STORED:
            with archive.open(entry):  # Compares the header of the entry with the directory.
                file.seek(entry.header_offset + 26)
                name, extra = (int.from_bytes(file.read(2), "little") for _ in range(2))
            start = entry.header_offset + 30 + name + extra
            yield Hdf5File(path, file, entry.file_size, start)
        else:
            content = archive.read(entry)
            yield Hdf5File(path, io.BytesIO(content), len(content))
