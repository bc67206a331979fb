"""Generators of damaged and hostile files: a good folder and a seed give a bad one.

Files are changed as bytes and as what they are: entries of archives keep right checksums, JSON
stays JSON.
"""

import functools
import io
import json
import operator
import pathlib
import shutil
import warnings
import zipfile

import numpy as np

BOMB = 2**28  # Bytes of zeros.
# Names of entries that lead out of an archive.
OUTSIDE = ("../outside", "/tmp/outside-of-the-archive", "assets/../../outside", "a\\..\\b")

# In the place of any value in JSON.
WRONG = (
    None, True, -1, 0, 1, 2, 2**31, 2**63, 10**18, 1e300, 1e-300, -1e-6, 0.5, [], {}, "", "x",
    "../../x", "\x1b[31mred", "a\nb", "é" * 300, [[]], {"a": 1}, [1, 2, 3], [-1, -1], [0.0] * 5,
    "Lambda", "keras_vit>EncoderBlock", "float64", "mixed_float16", "/etc/passwd", "a\0b",
)  # fmt: skip
# The same as text that JSON does not have, or that Python does not want.
RAW = ("NaN", "Infinity", "-Infinity", "1" + "0" * 400, "[" * 3000 + "]" * 3000, "1e999")
# In texts, between any two letters.
PIECES = (
    "\0", "\n", "\r", "\r\n", ",", '"', '""', "=1+1", "../", "/etc/passwd", "\x1b[2J", "\u2028",
    "\ufeff", "a" * 70_000, "\n" * 1000, "é", "-", "1e999", "\x85", " ", "\t", "path,label\n",
)  # fmt: skip


def write_case(good, case, seed):
    """Writes a copy of a good folder with one to three changes, drawn by the seed."""
    rng = np.random.default_rng(seed)
    shutil.copytree(good, case, symlinks=True)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        files = sorted(path for path in case.rglob("*") if path.is_file() and not path.is_symlink())
        if not files:
            return
        path = files[rng.integers(len(files))]
        if len(files) > 1 and rng.random() < 0.05:
            _move(path, files[rng.integers(len(files))], rng)
        else:
            content = path.read_bytes()
            try:
                with np.errstate(all="ignore"):
                    content = changed(path.name, content, rng)
            except Exception:  # Libraries raise nearly anything where a change met another one.
                content = damaged(content, rng)
            path.write_bytes(content)


def _move(path, other, rng):
    """Removes a file, or puts something else in its place."""
    kind = rng.integers(5)
    content = path.read_bytes()
    path.unlink()
    if kind == 1:
        path.mkdir()
    elif kind == 2:
        path.symlink_to(rng.choice(["/etc/passwd", "missing", path.name, "..", "/dev/null"]))
    elif kind == 3 and other.is_file():
        shutil.copy(other, path)
    elif kind == 4:
        names = ["-rf", "a\nb", "\x1b[31m", "=1", "é", "x" * 200, " ", "a,b", '"', "%s", "{0}"]
        path.with_name(rng.choice(names) + path.suffix).write_bytes(content)


def changed(name, content, rng):
    """Returns another content of a file, by the kind of its content."""
    if len(content) < 2:
        return damaged(content, rng)
    if content.startswith(b"\x89HDF"):  # Its library may crash; see SECURITY.md.
        return content
    changes = [damaged]
    if content.startswith(b"PK\x03\x04"):
        changes += [archive_changed] * 3
    elif content[8:9] == b"{" and name.endswith(".safetensors"):
        changes += [safetensors_changed] * 2
    elif content[:1] in b"{[":
        changes += [json_changed] * 5
    elif name.endswith((".txt", ".csv", ".md")):
        changes += [text_changed] * 3
    change = changes[rng.integers(len(changes))]
    return change(content, rng)


def damaged(content, rng):
    """Cut off, with bits or bytes changed, doubled or left out."""
    copy = bytearray(content) or bytearray(b"\0")
    kind, size = rng.integers(6), len(copy)
    start, stop = sorted(rng.integers(size, size=2))
    if kind == 0:
        del copy[start:]
    elif kind == 1:  # Anywhere, mostly among values.
        copy[start] ^= 1 << int(rng.integers(8))
    elif kind == 2:  # Headers lie in front and, of an archive, at the end.
        near = int(rng.integers(min(size, int(rng.choice([64, 2048])))))
        copy[near if rng.random() < 0.5 else -1 - near] = rng.integers(256)
    elif kind == 3:  # A length that lies.
        width = min(int(rng.choice([1, 2, 4, 8])), size - start)
        copy[start : start + width] = bytes([rng.choice([0, 0x7F, 0xFF])] * width)
    elif kind == 4:
        del copy[start:stop]
    else:
        copy[stop:stop] = copy[start:stop]
    return bytes(copy)


# JSON


def _places(value, path=()):
    """Yields the keys that lead to each value of a JSON text."""
    yield path
    items = value.items() if isinstance(value, dict) else ()
    for key, inner in enumerate(value) if isinstance(value, list) else items:
        yield from _places(inner, (*path, key))


def json_changed(content, rng):
    """Another value, type or number at any place; fields gone, doubled or swapped."""
    try:
        value = json.loads(content)
        places = list(_places(value))[1:]
    except (ValueError, RecursionError):
        return damaged(content, rng)
    if not places:
        return rng.choice([b"{}", b"[]", b"null", b"1", b'"x"', b""])
    raw = ""
    *path, key = places[rng.integers(len(places))]
    parent = functools.reduce(operator.getitem, path, value)
    kind = rng.integers(6)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict):
        parent[str(rng.choice(["x", "", "__class__", "name", key + key[:1]]))] = parent.pop(key)
    elif kind == 2:
        parent[key] = raw = "the raw value"
    elif kind == 3 and type(parent[key]) in (int, float):
        factor = float(rng.choice([-1, 0, 0.1, 2, 1000, 1e9]))
        parent[key] = type(parent[key])(parent[key] * factor)
    elif kind == 4 and isinstance(parent, list):
        parent *= int(rng.choice([2, 100, 3000]))
        parent[100_000:] = []
    else:
        parent[key] = WRONG[rng.integers(len(WRONG))]
    text = json.dumps(value)
    return (text.replace(f'"{raw}"', rng.choice(RAW)) if raw else text).encode()


def safetensors_changed(content, rng):
    """Another header in front of the same values."""
    size = int.from_bytes(content[:8], "little")
    header = json_changed(content[8 : 8 + size], rng)
    return len(header).to_bytes(8, "little") + header + content[8 + size :]


# Texts


def text_changed(content, rng):
    """Lines gone or in another order; letters that are none."""
    lines = content.split(b"\n")
    kind, place = rng.integers(3), rng.integers(len(lines))
    if kind == 0:
        del lines[place]
    elif kind == 1:
        lines = [lines[index] for index in rng.integers(len(lines), size=2 * len(lines))]
    else:
        piece = rng.choice(PIECES).encode() if rng.random() < 0.7 else rng.bytes(3)
        at = rng.integers(len(lines[place]) + 1)
        lines[place] = lines[place][:at] + piece + lines[place][at:]
    return b"\n".join(lines)


# Archives


def archive_changed(content, rng):
    """Entries with another content, name or size, whose checksums are right."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            comment = archive.comment
            entries = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except Exception:  # zipfile raises nearly anything; the case was damaged before.
        return damaged(content, rng)
    if not entries:
        return damaged(content, rng)
    compression = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    kind = rng.integers(9)
    # JSON and pickles are small compared with the values, and hold more.
    weights = np.array([1 / (1 + len(value)) ** 0.25 for _, value in entries])
    place = rng.choice(len(entries), p=weights / weights.sum())
    name, value = entries[place]
    if kind == 0:
        del entries[place]
    elif kind == 1:
        entries.insert(rng.integers(len(entries) + 1), entries[place])
    elif kind == 2:
        entries[place] = (str(rng.choice([*OUTSIDE, "", "x\0y", name[:-1], name * 40])), value)
    elif kind == 3:
        entries.append((str(rng.choice([*OUTSIDE, "x.pkl"])), b"x"))
    elif kind == 4 and rng.random() < 0.2:  # It takes a second.
        entries[place], compression = (name, value + b"\0" * BOMB), zipfile.ZIP_DEFLATED
    elif kind == 5:
        comment = json_changed(comment, rng) if comment else b'{"keras_vit": {"gelu": []}}'
    else:
        entries[place] = (name, changed(name, value, rng))
    stream = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(stream, "w") as archive:
        for name, value in entries:
            archive.writestr(name or "x", value, compress_type=compression)
        archive.comment = comment[:65_535]
    return stream.getvalue()


def files_below(folder):
    """Returns the files in a folder by their path in it."""
    paths = sorted(pathlib.Path(folder).rglob("*"))
    return {p.relative_to(folder): p for p in paths if p.is_symlink() or p.is_file()}


def keep_difference(good, case, place):
    """Writes the files of a case that differ from the good folder; returns the names of those gone.

    Links and folders in the place of files are kept as such.
    """
    whole, changed = files_below(good), files_below(case)
    for part, path in changed.items():
        is_same = part in whole and not path.is_symlink()
        if not (is_same and path.read_bytes() == whole[part].read_bytes()):
            (place / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place / part, follow_symlinks=False)
    return sorted(str(part) for part in set(whole) - set(changed))


def write_kept(good, place, gone, case):
    """Writes the case that `keep_difference` kept."""
    shutil.copytree(good, case, symlinks=True)
    for part in (*gone, *files_below(place)):
        (case / part).unlink(missing_ok=True)
    if place.is_dir():
        shutil.copytree(place, case, symlinks=True, dirs_exist_ok=True)
