"""Real servers on loopback that speak the hubs' protocols, remember what they were asked, and break when told to."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import http.server
import json
import re
import ssl
import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: str
    span: str | None
    authorization: str | None


class Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Clients are killed here: that is no news."""


class Server:
    """An HTTP server. `cuts[path]` holds, for each of the next answers with that file, after how many bytes the line dies."""

    ranges = True

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.cuts: dict[str, list[int]] = defaultdict(list)
        self.hangs: dict[str, threading.Event] = {}
        """Files whose next cut is a pause until the event."""
        self.sent: dict[str, threading.Event] = defaultdict(threading.Event)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                parts = urlsplit(self.path)
                path = unquote(parts.path)
                outer.asked.append(
                    Asked(self.command, path, parts.query, self.headers["Range"], self.headers["Authorization"])
                )
                outer.answer(self, path, {key: values[0] for key, values in parse_qs(parts.query).items()})

            do_HEAD = do_GET  # noqa: N815 - the name that the library calls

            def log_message(self, *_):
                pass

        self._server = Quiet(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Speak TLS from now on."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = self.url.replace("http://127.0.0.1", "https://localhost")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def spans(self, name: str) -> list[str | None]:
        """The byte ranges that were asked of files whose path ends with a name."""
        return [asked.span for asked in self.asked if asked.path.endswith(name)]

    def answer(self, handler, path: str, query: dict[str, str]) -> None:
        raise NotImplementedError

    def say(self, handler, status: int, body: object = None, **headers: str) -> None:
        data = json.dumps(body).encode() if body is not None else b""
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        handler.send_header("Content-Type", "application/json")
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    def give(self, handler, name: str, data: bytes, **headers: str) -> None:
        """A file, or the part of it that was asked for."""
        start = 0
        if self.ranges and (found := re.fullmatch(r"bytes=(\d+)-(\d*)", handler.headers["Range"] or "")):
            start, end = int(found[1]), int(found[2]) + 1 if found[2] else len(data)
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
            data = data[:end]
        else:
            handler.send_response(200)
        body = data[start:]
        handler.send_header("Content-Length", str(len(body)))
        for key, value in headers.items():
            handler.send_header(key.replace("_", "-"), value)
        handler.end_headers()
        cut = self.cuts[name].pop(0) if self.cuts[name] and len(body) > 1 else None
        handler.wfile.write(body[:cut])
        handler.wfile.flush()
        self.sent[name].set()
        if cut is not None and name in self.hangs:
            with contextlib.suppress(OSError):  # the client went away
                self.hangs[name].wait(60)
                handler.wfile.write(body[cut:])
        elif cut is not None:
            handler.close_connection = True


class Files(Server):
    """Plain files by path."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__()
        self.files = files
        self.refuse: int | None = None
        self.busy: list[int] = []
        """What the next requests are answered with."""

    def answer(self, handler, path, query):
        if self.refuse or self.busy:
            self.say(handler, self.refuse or self.busy.pop(0))
        elif path in self.files:
            self.give(handler, path, self.files[path])
        else:
            self.say(handler, 404)


class HuggingFace(Server):
    """The hub: it lists a commit, and sends those who ask for large files on to a storage at another address."""

    def __init__(self, repo: str, files: dict[str, bytes]) -> None:
        super().__init__()
        self.repo, self.files = repo, files
        self.storage = Files({f"/{sha256(data)}": data for data in files.values()})
        self.token: str | None = None
        self.expires: str | None = None
        """Part of the paths for which the token is refused, after it was taken some times."""
        self.expires_after = 0
        self.gated = False
        self.wrong: set[str] = set()
        """Files whose listed checksum is another's."""

    def close(self) -> None:
        super().close()
        self.storage.close()

    def cut(self, name: str, *after: int) -> None:
        self.storage.cuts[f"/{sha256(self.files[name])}"] += after

    def large(self, name: str) -> bool:
        return name.endswith((".pt", ".onnx", ".safetensors"))

    def answer(self, handler, path, query):
        taken = sum(1 for asked in self.asked[:-1] if self.expires and self.expires in asked.path)
        expired = self.expires is not None and self.expires in path and taken >= self.expires_after
        if expired or (self.token and handler.headers["Authorization"] != f"Bearer {self.token}"):
            if handler.headers["Authorization"]:
                return self.say(handler, 401, X_Error_Message="Invalid credentials in Authorization header")
            return self.say(handler, 401, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
        if self.gated and "/resolve/" in path:
            return self.say(handler, 403, X_Error_Code="GatedRepo", X_Error_Message="Access to model is restricted")
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path):
            return self._list(handler, found[1], found[2])
        if found := re.fullmatch(rf"/{self.repo}/resolve/{COMMIT}/(.+)", path):
            return self._resolve(handler, found[1])
        return self.say(handler, 404)

    def _list(self, handler, repo, revision):
        if repo != self.repo:
            return self.say(handler, 404, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
        if revision not in {COMMIT, "v1.0"}:
            return self.say(handler, 404, X_Error_Code="RevisionNotFound", X_Error_Message="Invalid rev id")
        siblings = []
        for name, data in self.files.items():
            listed = b"something else" if name in self.wrong else data
            entry = {"rfilename": name, "size": len(data)}
            entry["blobId"] = hashlib.sha1(b"blob %d\0" % len(data) + listed).hexdigest()
            if self.large(name):
                entry["lfs"] = {"sha256": sha256(listed), "size": len(data), "pointerSize": 134}
            siblings.append(entry)
        return self.say(handler, 200, {"id": repo, "modelId": repo, "sha": COMMIT, "siblings": siblings})

    def _resolve(self, handler, name):
        if name not in self.files:
            return self.say(handler, 404, X_Error_Code="EntryNotFound", X_Error_Message="Entry not found")
        data = self.files[name]
        if not self.large(name):
            return self.give(handler, name, data, ETag=f'"{hashlib.sha1(data).hexdigest()}"', X_Repo_Commit=COMMIT)
        return self.say(
            handler,
            302,
            Location=f"{self.storage.url}/{sha256(data)}?X-Amz-Signature=signature-of-storage",
            X_Linked_Size=str(len(data)),
            X_Linked_ETag=f'"{sha256(data)}"',
            X_Repo_Commit=COMMIT,
        )


class ModelScope(Server):
    """The hub: it lists a revision, and gives files at an address with the path as a parameter."""

    def __init__(self, repo: str, files: dict[str, bytes]) -> None:
        super().__init__()
        self.repo, self.files = repo, files
        self.token: str | None = None
        self.wrong: set[str] = set()

    def spans(self, name: str) -> list[str | None]:
        return [asked.span for asked in self.asked if f"FilePath={name}" in unquote(asked.query)]

    def answer(self, handler, path, query):
        if self.token and handler.headers["Authorization"] != f"Bearer {self.token}":
            return self.say(handler, 401, {"Code": 10010205002, "Message": "token is expired", "Success": False})
        base = f"/api/v1/models/{self.repo}/repo"
        if query.get("Revision") == "v2.0" and path == f"{base}/files":
            files = [
                {
                    "Path": name, "Name": name.rpartition("/")[2], "Size": len(data), "Type": "blob",
                    "Sha256": sha256(b"something else" if name in self.wrong else data),
                }
                for name, data in self.files.items()
            ]  # fmt: skip
            folders = {name.partition("/")[0] for name in self.files if "/" in name}
            files += [{"Path": name, "Name": name, "Size": 0, "Type": "tree"} for name in folders]
            return self.say(handler, 200, {"Code": 200, "Success": True, "Data": {"Files": files}})
        if query.get("Revision") == "v2.0" and path == base and query.get("FilePath") in self.files:
            return self.give(handler, query["FilePath"], self.files[query["FilePath"]])
        return self.say(handler, 404, {"Code": 10010205001, "Message": "not found", "Success": False})


class Before(Server):
    """A gateway or proxy before another server: it passes all on, remembers what was asked, and cuts answers."""

    _PASSED: ClassVar = {"content-range", "content-type", "etag", "last-modified", "accept-ranges", "location"}

    def __init__(self, url: str) -> None:
        super().__init__()
        self._behind = urlsplit(url).netloc
        self.change: dict[str, bytes] = {}
        """Files whose bytes are others on the way, by the end of their path."""

    def answer(self, handler, path, query):
        connection = http.client.HTTPConnection(self._behind)
        target = urlsplit(handler.path)._replace(scheme="", netloc="").geturl()
        connection.request(handler.command, target, headers=dict(handler.headers) | {"Host": self._behind})
        answer = connection.getresponse()
        body = answer.read()
        handler.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() in self._PASSED or name.lower().startswith("x-"):
                handler.send_header(name, value)
        handler.send_header("Content-Length", answer.getheader("Content-Length") or str(len(body)))
        handler.end_headers()
        for end, other in self.change.items():
            if path.endswith(end) and handler.command == "GET":
                body = other
        cut = self.cuts[path].pop(0) if self.cuts[path] and handler.command == "GET" else None
        handler.wfile.write(body[:cut])
        if cut is not None:
            handler.wfile.flush()
            handler.close_connection = True
