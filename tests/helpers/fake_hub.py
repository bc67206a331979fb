"""A server in this process that answers as the Hugging Face Hub does, in memory.

It follows https://huggingface.co/docs/hub/api and the requests of huggingface_hub.
"""

import base64
import collections
import dataclasses
import hashlib
import http.server
import json
import re
import threading
import urllib.parse

TOKEN, READ_TOKEN = "hf_writer", "hf_reader"
LFS_BYTES = 2_000  # The Hub's own limit is larger; here tiny weights are of LFS.


@dataclasses.dataclass
class Repository:
    """A repository of the fake Hub: its commits, newest last, and its branches and tags."""

    commits: dict = dataclasses.field(default_factory=dict)  # Hash to {path: bytes}.
    refs: dict = dataclasses.field(default_factory=dict)
    private: bool = False
    gated: bool = False

    def commit(self, files, branch="main"):
        """Adds a commit with all of its files and returns its hash."""
        described = json.dumps([len(self.commits), sorted(files)]).encode()
        sha = hashlib.sha1(described + b"".join(files.values())).hexdigest()
        self.commits[sha] = dict(files)
        self.refs[branch] = sha
        return sha

    def resolve(self, revision):
        revision = urllib.parse.unquote(revision)
        sha = self.refs.get(revision, revision)
        return sha if sha in self.commits else None

    @property
    def files(self):
        """The files of the branch main."""
        return self.commits[self.refs["main"]]


def is_lfs(content):
    return len(content) > LFS_BYTES


def etag_of(content):
    if is_lfs(content):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class FakeHub:
    """The fake Hub, an HTTP server in a thread.

    Attributes:
        repositories: Each `Repository` by ("model", "owner/name").
        requests: "METHOD path" of each request, in order.
        broken: Bytes of a file's content after which the connection ends, by the file's name, and
            how many times it does.
        lies: What a hostile server says: the "sha" of a repository, "padding" bytes in answers of
            the API, and headers of files by their names.
    """

    def __init__(self):
        fake = self

        class Handler(HubHandler):
            server_state = fake

        self.requests, self.broken, self.lies = [], {}, {}
        self.repositories, self.objects, self.rights = {}, {}, {TOKEN: "write", READ_TOKEN: "read"}
        self.is_closed = False
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"
        # `close` waits for one such turn.
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def add(self, name, files, kind="model", **fields):
        """Adds a repository with one commit and returns the commit's hash."""
        self.repositories[kind, name] = Repository(**fields)
        return self.repositories[kind, name].commit(files)

    def close(self):
        """Ends the server; it answers no connection that is still open either."""
        self.is_closed = True
        self.http.shutdown()
        self.http.server_close()

    def fetched(self):
        """The names of the files whose content was asked for, with their number."""
        found = (
            re.fullmatch(r"GET .*/(?:resolve/\w+|download)/(.+)", line) for line in self.requests
        )
        return collections.Counter(match[1] for match in found if match)


class _Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: FakeHub

    def log_message(self, *_):
        pass

    def reply(self, status, content=b"", headers=None, part=None):
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
            headers = {"Content-Type": "application/json", **(headers or {})}
        self.send_response(status)
        headers = {"Content-Length": str(len(content)), **(headers or {})}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if part is not None:
            self.wfile.write(content[:part])
            self.wfile.flush()
            self.close_connection = True
            return
        self.wfile.write(content)

    def send_file(self, name, content, headers):
        """Answers with a file, or the rest of it from the Range on; perhaps breaks off."""
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").split("-")[0])
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        after, times = self.server_state.broken.get(name, (0, 0))
        part = None
        if times and self.command == "GET":
            self.server_state.broken[name] = (after, times - 1)
            part = after
        self.reply(206 if start else 200, content[start:], headers, part)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def handle_request(self):
        if self.server_state.is_closed:
            self.close_connection = True
            return
        url = urllib.parse.urlsplit(self.path)
        self.server_state.requests.append(f"{self.command} {url.path}")
        for method, pattern, function in self.routes:
            found = re.fullmatch(pattern, url.path)
            if self.command == method and found:
                function(self, *found.groups(), dict(urllib.parse.parse_qsl(url.query)))
                return
        self.body()
        self.reply(500)

    do_GET = do_HEAD = do_POST = do_PUT = handle_request


_KIND = {"models": "model", "datasets": "dataset"}


class HubHandler(_Answer):
    """The requests of the Hub's API that downloads and uploads need."""

    def refuse(self, status, code, message=""):
        self.reply(status, {"error": message}, {"X-Error-Code": code, "X-Error-Message": message})

    @property
    def right(self):
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        return self.server_state.rights.get(token)

    def repository(self, kind, name, revision):
        """The repository and the commit, or None after an error was sent."""
        found = self.server_state.repositories.get((kind, name))
        if found is None or (found.private and self.right is None):
            # As the Hub: without a login one does not learn what exists.
            return self.refuse(404 if self.right else 401, "RepoNotFound", "Repository not found")
        if found.gated:
            return self.refuse(403, "GatedRepo", "Access is restricted")
        sha = found.resolve(revision)
        if sha is None:
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return found, sha

    def writable(self, kind, name):
        if self.right is None:
            return self.refuse(401, "", "Invalid username or password.")
        if self.right != "write":
            return self.refuse(403, "", "You don't have the rights.")
        found = self.server_state.repositories.get((kind, name))
        return found or self.refuse(404, "RepoNotFound", "Repository not found")

    def info(self, kinds, name, revision, query):
        kind = _KIND[kinds]
        if (found := self.repository(kind, name, revision or "main")) is None:
            return
        repository, sha = found
        names = [{"rfilename": path} for path in sorted(repository.commits[sha])]
        lies = self.server_state.lies
        content = {"id": name, "modelId": name, "sha": lies.get("sha", sha)}
        content |= {"private": repository.private, "padding": "x" * lies.get("padding", 0)}
        self.reply(200, {**content, "siblings": names, "tags": [], "downloads": 0, "likes": 0})

    def tree(self, kinds, name, revision, query):
        if (found := self.repository(_KIND[kinds], name, revision)) is None:
            return
        entries = []
        for path, content in sorted(found[0].commits[found[1]].items()):
            entry = {"type": "file", "path": path, "size": len(content), "oid": etag_of(content)}
            if is_lfs(content):
                entry["oid"] = hashlib.sha1(content).hexdigest()
                lfs = {"oid": etag_of(content), "size": len(content), "pointerSize": 130}
                entry["lfs"] = lfs
            entries.append(entry)
        self.reply(200, entries)

    def resolve(self, name, revision, path, query):
        if (found := self.repository("model", name, revision)) is None:
            return
        repository, sha = found
        path = urllib.parse.unquote(path)
        if path not in repository.commits[sha]:
            self.refuse(404, "EntryNotFound", "Entry not found")
            return
        content = repository.commits[sha][path]
        headers = {"X-Repo-Commit": sha, "ETag": f'"{etag_of(content)}"', "Accept-Ranges": "bytes"}
        if is_lfs(content):
            headers |= {"X-Linked-Etag": headers["ETag"], "X-Linked-Size": str(len(content))}
        headers |= {k: v for k, v in self.server_state.lies.items() if k in headers}
        self.send_file(path, self.server_state.objects.get(("served", path), content), headers)

    def create(self, query):
        given = json.loads(self.body())
        kind, name = given.get("type", "model"), f"{given['organization']}/{given['name']}"
        if self.right is None:
            return self.refuse(401, "", "Invalid username or password.")
        if self.right != "write":
            return self.refuse(403, "", f"You don't have the rights to create a {kind} here.")
        place = f"{self.server_state.address}/{'' if kind == 'model' else f'{kind}s/'}{name}"
        if (kind, name) in self.server_state.repositories:
            return self.reply(409, {"error": "You already created this repo", "url": place})
        private = given.get("visibility") == "private" or bool(given.get("private"))
        self.server_state.add(name, {".gitattributes": b""}, kind, private=private)
        self.reply(200, {"url": place, "name": name})

    def harnesses(self, query):
        self.reply(200, {"harnesses": []})  # Asked for by huggingface_hub, for its user agent.

    def validate(self, query):
        self.body()
        self.reply(200, {"warnings": [], "errors": []})

    def preupload(self, kinds, name, revision, query):
        given = json.loads(self.body())
        if self.writable(_KIND[kinds], name) is None:
            return
        answers = []
        for file in given["files"]:
            mode = "lfs" if file["size"] > LFS_BYTES else "regular"
            answers.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False})
        self.reply(200, {"files": answers})

    def lfs_batch(self, prefix, name, query):
        given = json.loads(self.body())
        kind = _KIND.get(prefix.rstrip("/"), "model")
        if self.writable(kind, name) is None:
            return
        objects = []
        for wanted in given["objects"]:
            entry = dict(wanted)
            if wanted["oid"] not in self.server_state.objects:
                place = f"{self.server_state.address}/lfs/{wanted['oid']}"
                entry["actions"] = {"upload": {"href": place}}
            objects.append(entry)
        self.reply(200, {"transfer": "basic", "objects": objects})

    def lfs_upload(self, oid, query):
        content = self.body()
        if self.server_state.broken.get("upload"):
            self.server_state.broken["upload"] -= 1
            return self.reply(403, b"expired")
        self.server_state.objects[oid] = content
        self.reply(200)

    def commit(self, kinds, name, revision, query):
        lines = [json.loads(line) for line in self.body().splitlines()]
        if (found := self.writable(_KIND[kinds], name)) is None:
            return
        files = dict(found.files)
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server_state.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        sha = found.commit(files, urllib.parse.unquote(revision))
        place = f"{self.server_state.address}/{name}/commit/{sha}"
        self.reply(200, {"commitUrl": place, "commitOid": sha, "pullRequestUrl": None})

    _NAME = r"([\w.-]+/[\w.-]+)"
    routes = (
        ("GET", rf"/api/(models|datasets)/{_NAME}(?:/revision/([^/]+))?", info),
        ("GET", rf"/api/(models|datasets)/{_NAME}/tree/([^/]+)", tree),
        ("HEAD", rf"/{_NAME}/resolve/([^/]+)/(.+)", resolve),
        ("GET", rf"/{_NAME}/resolve/([^/]+)/(.+)", resolve),
        ("POST", "/api/repos/create", create),
        ("GET", "/api/agent-harnesses", harnesses),
        ("POST", "/api/validate-yaml", validate),
        ("POST", rf"/api/(models|datasets)/{_NAME}/preupload/([^/]+)", preupload),
        ("POST", rf"/(|datasets/){_NAME}\.git/info/lfs/objects/batch", lfs_batch),
        ("PUT", r"/lfs/(\w+)", lfs_upload),
        ("POST", rf"/api/(models|datasets)/{_NAME}/commit/([^/]+)", commit),
    )
