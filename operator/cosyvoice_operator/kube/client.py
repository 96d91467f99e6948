"""Every request the operator itself makes of the API server, in raw JSON.

Typed models cost ten times the CPU of ``json.loads`` and refuse fields that a newer server has, so this module stops at the client
library's transport (connections, TLS, tokens) and leaves its models alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client.api_client import ApiClient

from cosyvoice_operator.core.model import Json
from cosyvoice_operator.core.naming import MANAGER
from cosyvoice_operator.kube.errors import (
    Call,
    ConflictError,
    InvalidError,
    NotFoundError,
    TooManyRequestsError,
    UnavailableError,
    from_answer,
)
from cosyvoice_operator.kube.limiter import TokenBucket
from cosyvoice_operator.kube.login import Login
from cosyvoice_operator.kube.resources import LEASE, Resource

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json"

_NEVER = "1"
"""A resource version that no object of ours can have: etcd's first write is the server's own."""


class RequestObserver(Protocol):
    """Told of every request, for metrics."""

    def observe_request(self, verb: str, kind: str, code: int, seconds: float) -> None:
        """Take note of one answer; ``code`` is 0 when there was none."""


class KubeClient:
    """One connection pool to one API server. Every method raises a subclass of ApiError when it doesn't succeed."""

    def __init__(self, login: Login, limiter: TokenBucket, observer: RequestObserver, timeout: float = 15.0) -> None:
        """Make a client.

        Args:
            login: Where to connect and as whom.
            limiter: Every write waits for it.
            observer: Told of every request.
            timeout: Seconds for a whole request; connecting may take 3 of them.
        """
        self._login = login
        self._limiter = limiter
        self._observer = observer
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=min(3.0, timeout))
        self._api = ApiClient(login.configuration)

    @property
    def login(self) -> Login:
        """Where it is connected, and as whom."""
        return self._login

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._api.close()

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        """Read one object."""
        return await self._request(_Request("get", resource, namespace, name))

    async def find(self, resource: Resource, namespace: str, name: str) -> Json | None:
        """Read one object that may not exist."""
        try:
            return await self.get(resource, namespace, name)
        except NotFoundError:
            return None

    async def pages(self, resource: Resource, page: int = 250) -> AsyncIterator[tuple[list[Json], int]]:
        """List all objects of a kind that its selector chooses, in all namespaces.

        Yields:
            Objects of one page, with the resource version at which the whole list was true.

        Raises:
            GoneError: The list took longer than the server keeps its continue token; start again.
        """
        query = {"limit": str(page)} | ({"labelSelector": resource.selector} if resource.selector else {})
        while True:
            answer = await self._request(_Request("list", resource, query=query))
            # The server leaves these two out of the items of a list; with them an object is the same wherever it came from.
            items = [
                {"apiVersion": resource.api_version, "kind": resource.kind, **item}
                for item in answer.get("items") or ()
            ]
            yield items, int(answer["metadata"]["resourceVersion"])
            token = answer["metadata"].get("continue")
            if not token:
                return
            query["continue"] = token

    async def create(self, resource: Resource, namespace: str, body: Json) -> Json:
        """Create an object. Raises ConflictError if it exists."""
        return await self._request(_Request("create", resource, namespace, body=body))

    async def replace(self, resource: Resource, namespace: str, name: str, body: Json) -> Json:
        """Replace an object; with ``metadata.resourceVersion`` in ``body`` only if it is still that version."""
        return await self._request(_Request("update", resource, namespace, name, body=body))

    async def apply(self, resource: Resource, body: Json, uid: str) -> Json:
        """Apply ``body`` to the object that has this uid, taking its fields over from whoever owns them.

        Raises:
            ConflictError: The object is gone, or another one has taken its name.
        """
        try:
            return await self._apply(resource, {**body, "metadata": {**body["metadata"], "uid": uid}})
        except InvalidError as error:
            # Another object under the same name: the server calls the uid we meant "immutable" and not a conflict.
            if "metadata.uid" in error.fields:
                raise ConflictError(error.call, 409, "Conflict", error.message) from error
            raise

    async def apply_new(self, resource: Resource, body: Json) -> Json:
        """Create an object by server-side apply, only if nothing has its name.

        An apply creates what is missing and otherwise takes over what is there, so it is sent with a resource version that no object has:
        the server then answers with a conflict for whatever exists.

        Raises:
            ConflictError: Something has the name already, ours or not.
        """
        return await self._apply(resource, {**body, "metadata": {**body["metadata"], "resourceVersion": _NEVER}})

    async def _apply(self, resource: Resource, body: Json) -> Json:
        meta = body["metadata"]
        query = {"fieldManager": MANAGER, "force": "true"}
        place = (meta["namespace"], meta["name"])
        return await self._request(_Request("patch", resource, *place, body=body, content=APPLY, query=query))

    async def patch_status(self, resource: Resource, namespace: str, name: str, status: Json) -> Json:
        """Merge ``status`` into the status subresource; a null removes a key."""
        return await self.merge(resource, namespace, name, {"status": status}, "status")

    async def merge(self, resource: Resource, namespace: str, name: str, patch: Json, subresource: str = "") -> Json:
        """Merge ``patch`` into an object, or into its subresource."""
        query = {"fieldManager": MANAGER}
        return await self._request(
            _Request("patch", resource, namespace, name, subresource, body=patch, content=MERGE, query=query)
        )

    async def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """Delete exactly the object with this uid, and what it owns in the background. One that is gone already is success."""
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        }
        try:
            await self._request(_Request("delete", resource, namespace, name, body=body))
        except NotFoundError:
            return

    async def _request(self, request: _Request) -> Json:
        # The Lease's own writes never wait: a server that slows the others down must not cost the Lease, and with it the process.
        if request.writes and request.resource is not LEASE:
            await self._limiter.take()
        started = time.perf_counter()
        status = 0
        try:
            status, answer, retry_after = await self._send(request)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise UnavailableError(request.call, 0, type(error).__name__, str(error)) from error
        finally:
            seconds = time.perf_counter() - started
            self._observer.observe_request(request.verb, request.resource.kind, status, seconds)
        if status < 300:
            return answer
        failure = from_answer(request.call, status, answer, retry_after)
        if isinstance(failure, TooManyRequestsError):
            self._limiter.hold(failure.retry_after or 1.0)
        raise failure

    async def _send(self, request: _Request) -> tuple[int, Json, str | None]:
        headers = {"Accept": JSON, "Content-Type": request.content, "User-Agent": MANAGER}
        authorization = await self._login.authorization()
        if authorization:
            headers["Authorization"] = authorization
        answer = await self._api.call_api(
            _METHODS[request.verb],
            self._login.server + request.address,
            headers,
            request.body,
            _request_timeout=self._timeout,
        )
        return answer.status, _decode(await answer.read()), answer.headers.get("Retry-After")


@dataclass(frozen=True, slots=True)
class _Request:
    """One request before it is sent; ``verb`` is as in RBAC."""

    verb: str
    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    body: Json | None = None
    content: str = JSON
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def writes(self) -> bool:
        return self.verb not in {"get", "list"}

    @property
    def address(self) -> str:
        path = self.resource.path(self.namespace, self.name, self.subresource)
        return f"{path}?{urlencode(self.query)}" if self.query else path

    @property
    def call(self) -> Call:
        plural, group = self.resource.plural, self.resource.group
        plural = f"{plural}/{self.subresource}" if self.subresource else plural
        return Call(self.verb, f"{plural}.{group}" if group else plural, self.namespace, self.name)


_METHODS = {"get": "GET", "list": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}


def _decode(text: bytes) -> Json:
    """Parse an answer. What isn't JSON comes from something between us and the server, and becomes its message."""
    try:
        value: Any = json.loads(text)
    except ValueError:
        return {"message": text[:500].decode(errors="replace")}
    return value if isinstance(value, dict) else {"message": str(value)[:500]}
