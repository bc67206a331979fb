"""The store of the Hub by Xet, for hf_xet itself, in memory.

It follows https://huggingface.co/docs/xet: files are pieces of chunks, chunks lie compressed in
xorbs, and a shard lists which chunks of which xorbs a file is.
"""

import hashlib
import json

import numpy as np
from fake_hub import FakeHub, HubHandler, is_lfs

_CHUNK = 65_536  # Bytes of a chunk of a file that was not pushed by Xet.
_WITH_VERIFICATION, _WITH_SHA256 = 1 << 31, 1 << 30
_ROW = 48  # Bytes of each row of a shard.


def number(content, place, size=4):
    """An integer in bytes."""
    return int.from_bytes(content[place : place + size], "little")


def chunks_of(xorb):
    """The start of each chunk in a xorb, its end last, and their contents."""
    starts, contents, place = [], [], 0
    while place < len(xorb) and xorb[place : place + 7] != b"XETBLOB":  # Then comes a footer.
        packed, size = (
            int.from_bytes(xorb[place + at : place + at + 3], "little") for at in (1, 5)
        )
        starts.append(place)
        contents.append(_unpacked(xorb[place + 8 : place + 8 + packed], xorb[place + 4], size))
        place += 8 + packed
    return [*starts, place], contents


def _unpacked(content, scheme, size):
    if scheme == 0:
        return content
    import pyarrow

    content = pyarrow.decompress(content, size, "lz4", asbytes=True)
    if scheme == 1:
        return content
    groups = np.array_split(np.frombuffer(content, "uint8"), 4)  # Each fourth byte together.
    joined = np.empty(size, "uint8")
    for index, group in enumerate(groups):
        joined[index::4] = group
    return joined.tobytes()


def text_of(digest):
    """A hash as a text: four numbers of 64 bits."""
    return "".join(f"{number:016x}" for number in np.frombuffer(digest, "<u8"))


def files_of(shard):
    """Yields the hash of each file of a shard, its SHA-256, and its (xorb, first, end) in order."""
    place = _ROW
    while (name := shard[place : place + 32]) != b"\xff" * 32:
        flags, count = (
            int.from_bytes(shard[place + at : place + at + 4], "little") for at in (32, 36)
        )
        rows = [shard[place + _ROW * (1 + i) : place + _ROW * (2 + i)] for i in range(count)]
        pieces = [(text_of(row[:32]), number(row, 40), number(row, 44)) for row in rows]
        place += _ROW * (1 + count * (2 if flags & _WITH_VERIFICATION else 1))
        sha256 = None
        if flags & _WITH_SHA256:
            sha256 = text_of(shard[place : place + 32])
            place += _ROW
        yield text_of(name), sha256, pieces


class XetHandler(HubHandler):
    """The requests of the Hub and of the store that hf_xet needs."""

    def resolve(self, name, revision, path, query):
        if (found := self.repository("model", name, revision)) is None:
            return
        content = found[0].commits[found[1]].get(path, b"")
        if not is_lfs(content):
            return super().resolve(name, revision, path, query)
        digest = self.server_state.file_of(content)
        place = f"{self.server_state.address}/api/models/{name}/xet-read-token/{found[1]}"
        more = {"X-Xet-Hash": digest, "Link": f'<{place}>; rel="xet-auth"'}
        self.answer_file(path, found[1], content, more)

    def token(self, kinds, name, right, revision, query):
        if right == "write" and self.writable(kinds.removesuffix("s"), name) is None:
            return
        address = self.server_state.address
        names = ("X-Xet-Cas-Url", "X-Xet-Access-Token", "X-Xet-Token-Expiration")
        given = (address, f"xet_{right}", "4000000000")
        content = {"casUrl": address, "accessToken": f"xet_{right}", "exp": 4_000_000_000}
        self.reply(200, content, dict(zip(names, given, strict=True)))

    def expect_token(self, *rights):
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        self.expect(token in {f"xet_{right}" for right in rights}, "a token of the store")

    def put_xorb(self, digest, query):
        self.expect_token("write")
        self.server_state.xorbs[digest] = self.body()
        self.reply(200, {"was_inserted": True})

    def put_shard(self, query):
        self.expect_token("write")
        for name, sha256, pieces in files_of(self.body()):
            self.server_state.files[name] = pieces
            self.server_state.objects[sha256] = self.server_state.content(pieces)
            self.server_state.digests[sha256] = name
        self.reply(200, {"result": 1})

    def reconstruction(self, digest, query):
        self.expect_token("read")
        terms, places = [], {}
        for xorb, first, end in self.server_state.files[digest]:
            starts, contents = chunks_of(self.server_state.xorbs[xorb])
            span = {"start": first, "end": end}
            size = sum(map(len, contents[first:end]))
            terms.append({"hash": xorb, "unpacked_length": size, "range": span})
            url_range = {"start": starts[first], "end": starts[end] - 1}
            url = f"{self.server_state.address}/xorbs/{xorb}"
            places.setdefault(xorb, []).append({"range": span, "url": url, "url_range": url_range})
        content = {"offset_into_first_range": 0, "terms": terms, "fetch_info": places}
        self.reply(200, content)

    def get_xorb(self, digest, query):
        content = self.server_state.xorbs[digest]
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        headers = {"Content-Range": f"bytes {first}-{last}/{len(content)}"}
        self.reply(206, content[first : last + 1], headers)

    def absent(self, *_):
        self.body()
        self.reply(404)  # Newer requests, for which hf_xet has older ones; no chunk is known.

    def telemetry(self, query):
        json.loads(self.body())
        self.reply(200, {})

    routes = (
        ("GET", rf"/api/(models|spaces)/{HubHandler._NAME}/xet-(read|write)-token/(.+)", token),
        ("POST", r"/v1/xorbs/default/(\w+)", put_xorb),
        ("POST", r"/(?:v1/)?shards", put_shard),
        ("GET", r"/v1/reconstructions/(\w+)", reconstruction),
        ("GET", r"/xorbs/(\w+)", get_xorb),
        ("GET", r"/v2/(.+)", absent),
        ("POST", r"/(?:v2|v1/xorb-grants)/(.+)", absent),
        ("GET", r"/v1/chunks/(.+)", absent),
        ("POST", r"/v1/telemetry", telemetry),
        ("HEAD", rf"/{HubHandler._NAME}/resolve/([^/]+)/(.+)", resolve),
        ("GET", rf"/{HubHandler._NAME}/resolve/([^/]+)/(.+)", resolve),
        *HubHandler.routes,
    )


class FakeXetHub(FakeHub):
    """The fake Hub, whose large files are in the store."""

    def __init__(self):
        self.xorbs, self.files, self.digests = {}, {}, {}
        super().__init__(XetHandler)

    def content(self, pieces):
        """The content of a file."""
        parts = [
            part
            for xorb, first, end in pieces
            for part in chunks_of(self.xorbs[xorb])[1][first:end]
        ]
        return b"".join(parts)

    def file_of(self, content):
        """The hash by which the store knows a content; it is put there if it is new."""
        sha256 = hashlib.sha256(content).hexdigest()
        if sha256 not in self.digests:
            name = self.digests[sha256] = sha256[::-1]  # Any other hash.
            parts = [content[at : at + _CHUNK] for at in range(0, len(content), _CHUNK)]
            sizes = [len(part).to_bytes(3, "little") for part in parts]
            rows = zip(sizes, parts, strict=True)
            self.xorbs[name] = b"".join(b"\0" + size + b"\0" + size + part for size, part in rows)
            self.files[name] = [(name, 0, len(parts))]
        return self.digests[sha256]
