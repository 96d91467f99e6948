"""Stands between the operator and the real API server: records what passes, and makes it fail where a test wants it to.

Everything that the operator sees still comes from the real server; the proxy only forwards, holds back, refuses or cuts.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from devcluster import Cluster

_PATH = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[^/]+))?$"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_HOP_BY_HOP = {"host", "connection", "transfer-encoding", "content-length", "content-encoding"}


@dataclass(frozen=True)
class Request:
    """One request, in the words of an access rule; ``code`` is the status of its answer."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    query: dict[str, str] = field(hash=False, compare=False)
    code: int = 0

    @property
    def writes(self) -> bool:
        """Whether it changes an object; the Lease is not counted, since it is renewed all the time."""
        return self.verb not in {"get", "list", "watch", "discovery"} and self.resource != "leases"

    def __str__(self) -> str:
        return f"{self.verb} {self.resource} {self.namespace}/{self.name}"


@dataclass(frozen=True)
class Refusal:
    """An answer of the proxy's own: a Status, or the one event of a stream that ends with it."""

    status: int
    reason: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    event: dict[str, Any] | None = None

    def answer(self) -> web.Response:
        """The HTTP answer."""
        status = {"kind": "Status", "code": self.status, "reason": self.reason, "message": "refused by the test"}
        return web.json_response(text=json.dumps(self.event or status) + "\n", status=self.status, headers=self.headers)


class CutError(Exception):
    """The connection is to be closed without an answer."""


Before = Callable[[Request], Refusal | None]
"""Called before a request is forwarded; may raise CutError."""


def parse(method: str, path: str, query: dict[str, str]) -> Request:
    """Understand a request as the API server's authorizer does."""
    match = _PATH.match(path)
    if not match:
        return Request("discovery", "", path, "", "", query)
    found = {key: value or "" for key, value in match.groupdict().items()}
    plural = found["plural"] + (f"/{found['subresource']}" if found["subresource"] else "")
    verb = _VERBS.get(method) or ("watch" if query.get("watch") == "true" else "get" if found["name"] else "list")
    return Request(verb, found["group"], plural, found["namespace"], found["name"], query)


class ApiProxy:
    """An HTTP proxy on loopback, in a thread of its own.

    Attributes:
        requests: What has passed, in order; refused requests are not in it.
    """

    def __init__(self, cluster: Cluster, folder: Path, token: str | None = None) -> None:
        """Start it.

        Args:
            cluster: Where requests go.
            folder: Where the kubeconfig for it is written.
            token: Token that the kubeconfig holds; None for the administrator's.
        """
        access = cluster.api
        self.requests: list[Request] = []
        self.held = threading.Event()
        self._server = access.server
        self._authority = access.authority
        self._before: Before = lambda _: None
        self._hold_after = 0
        self._streams: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        self.kubeconfig = folder / "proxy.kubeconfig"
        self.kubeconfig.write_text(json.dumps(_kubeconfig(f"http://127.0.0.1:{port}", token or access.token)))

    def close(self) -> None:
        """Stop it."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def before(self, hook: Before | None) -> None:
        """Ask ``hook`` about every request from now on; None lets all pass."""
        self._before = hook or (lambda _: None)

    def hold_after_write(self, number: int) -> None:
        """Let ``number`` more writes reach the server, and keep back the answer to the last of them and all that follows.

        ``held`` is set when that has happened: the write is done, and the operator doesn't know.
        """
        self.held.clear()
        self._hold_after = number

    def release(self) -> None:
        """Let requests pass again; those that were held back are lost with the process that sent them."""
        self._hold_after = 0
        self.held.clear()

    def cut_watches(self) -> None:
        """Close all open streams, as a load balancer does."""

        def cut() -> None:
            for task in self._streams:
                task.cancel()

        self._loop.call_soon_threadsafe(cut)

    def writes(self) -> list[Request]:
        """Writes so far."""
        return [request for request in list(self.requests) if request.writes]

    async def _start(self) -> int:
        import ssl

        context = ssl.create_default_context(cafile=str(self._authority))
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False, read_bufsize=2**21)
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._forward)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return int(self._runner.addresses[0][1])

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._session.close()
        # Requests that were held back never end by themselves.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _forward(self, incoming: web.Request) -> web.StreamResponse:
        request = parse(incoming.method, incoming.path, dict(incoming.query))
        try:
            refusal = self._before(request)
        except CutError:
            assert incoming.transport
            incoming.transport.abort()
            return web.Response()
        if refusal:
            return refusal.answer()
        if self.held.is_set():
            await asyncio.sleep(3600)
        headers = {key: value for key, value in incoming.headers.items() if key.lower() not in _HOP_BY_HOP}
        body = await incoming.read()
        try:
            answer = await self._session.request(
                incoming.method, self._server + incoming.path_qs, headers=headers, data=body or None,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            )  # fmt: skip
        except aiohttp.ClientError:
            assert incoming.transport
            incoming.transport.abort()
            return web.Response()
        self.requests.append(replace(request, code=answer.status))
        await self._maybe_hold(request, answer)
        if request.verb == "watch":
            return await self._stream(incoming, answer)
        content = await answer.read()
        return web.Response(body=content, status=answer.status, headers=_passed_on(answer))

    async def _maybe_hold(self, request: Request, answer: aiohttp.ClientResponse) -> None:
        if not self._hold_after or not request.writes:
            return
        self._hold_after -= 1
        if not self._hold_after:
            await answer.read()
            self.held.set()
            await asyncio.sleep(3600)

    async def _stream(self, incoming: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=_passed_on(answer))
        await response.prepare(incoming)
        task = asyncio.current_task()
        assert task
        self._streams.add(task)
        try:
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
        except (asyncio.CancelledError, ConnectionError, aiohttp.ClientError):
            if incoming.transport:
                incoming.transport.abort()
        finally:
            self._streams.discard(task)
            answer.close()
        return response


def _passed_on(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {
        key: value for key, value in answer.headers.items() if key.lower() not in _HOP_BY_HOP - {"content-encoding"}
    }


def _kubeconfig(server: str, token: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "proxy", "cluster": {"server": server}}],
        "users": [{"name": "proxy", "user": {"token": token}}],
        "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
        "current-context": "proxy",
    }
