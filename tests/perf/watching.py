"""Sees children appear and change with the API server's own timing: one metadata-only watch for each kind."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Self

import aiohttp

from cosyvoice_operator.kube.client import KubeClient
from cosyvoice_operator.kube.resources import CHILDREN, Resource

# Names and versions are all that is needed; whole objects would cost the measured machine as much as the operator itself.
METADATA = "application/json;as={};v=v1;g=meta.k8s.io"


class ChildWatch:
    """Watches the operator's children in one namespace while the context is open.

    Attributes:
        created: When each child was first seen, as ``time.perf_counter()``, by kind and name.
    """

    def __init__(self, client: KubeClient, namespace: str, kinds: tuple[Resource, ...] = CHILDREN) -> None:
        self._login = client.login
        self._namespace = namespace
        self._kinds = kinds
        self._tasks: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None
        self._generations: dict[str, int] = {}
        self._changed: dict[str, float] = {}
        self._news = asyncio.Event()
        self.created: dict[tuple[str, str], float] = {}

    async def __aenter__(self) -> Self:
        self._session = self._login.session(len(self._kinds))
        for resource in self._kinds:
            version = await self._list(resource)
            self._tasks.append(asyncio.create_task(self._watch(resource, version)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert self._session
        await self._session.close()

    def seen(self, count: int) -> bool:
        """Tell whether that many children were seen. Raises what ended a watch."""
        for task in self._tasks:
            if task.done():
                task.result()
        return len(self.created) >= count

    async def next_change(self, owner: str, since: float, within: float = 10.0) -> float:
        """Wait for the next new generation of a Deployment of ``owner`` after ``since``, and give the time it was seen."""
        async with asyncio.timeout(within):
            while self._changed.get(owner, 0.0) < since:
                self._news.clear()
                await self._news.wait()
        return self._changed[owner]

    async def _list(self, resource: Resource) -> str:
        answer = await self._get(resource, {})
        body = await answer.json(content_type=None)
        for item in body["items"] or ():
            self._generations[item["metadata"]["uid"]] = item["metadata"].get("generation", 0)
        return str(body["metadata"]["resourceVersion"])

    async def _watch(self, resource: Resource, version: str) -> None:
        while True:
            answer = await self._get(resource, {"watch": "true", "resourceVersion": version})
            async for line in answer.content:
                event = json.loads(line)
                self._take(resource, event["type"], event["object"]["metadata"])
                version = event["object"]["metadata"]["resourceVersion"]

    def _take(self, resource: Resource, kind: str, meta: dict[str, Any]) -> None:
        now = time.perf_counter()
        if kind == "ADDED":
            self.created.setdefault((resource.kind, meta["name"]), now)
        if kind != "DELETED" and meta.get("generation", 0) != self._generations.get(meta["uid"]):
            self._generations[meta["uid"]] = meta.get("generation", 0)
            self._changed[meta.get("labels", {}).get("tts.cosyvoice.io/deployment", "")] = now
            self._news.set()

    async def _get(self, resource: Resource, query: dict[str, str]) -> aiohttp.ClientResponse:
        assert self._session
        url = self._login.server + resource.path(self._namespace)
        shape = "PartialObjectMetadata" if "watch" in query else "PartialObjectMetadataList"
        query = {"labelSelector": resource.selector} | query
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        answer = await self._session.get(url, params=query, headers={"Accept": METADATA.format(shape)}, timeout=timeout)
        answer.raise_for_status()
        return answer
