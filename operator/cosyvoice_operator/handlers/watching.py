"""Watches through Kopf: only ``on.event`` handlers, with which it writes nothing to any object.

What its other features would cost here (annotations, finalizers, quadratic start of indexes, ghosts after a re-list) is why a queue and a
store of our own come right behind it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import kopf

from cosyvoice_operator.core.naming import GROUP
from cosyvoice_operator.engine.intake import Intake
from cosyvoice_operator.kube.login import Login
from cosyvoice_operator.kube.resources import WATCHED, Resource

_WATCH_CONNECTIONS = 2 * len(WATCHED)
"""One stream for each kind, and lists beside them after a lost stream."""


class EndlessBackoffs:
    """Delays for Kopf's requests, without end and with jitter: an API server that is away for long must not end the operator."""

    def __init__(self, first: float = 0.5, limit: float = 20.0) -> None:
        self._first = first
        self._limit = limit

    def __iter__(self) -> Iterator[float]:
        """Give one sequence of delays, in seconds."""
        delay = self._first
        while True:
            yield delay * random.uniform(0.8, 1.2)  # noqa: S311 - no secret
            delay = min(self._limit, delay * 2)


class NoDiffBase(kopf.DiffBaseStorage):
    """Keeps no earlier state of objects. Kopf would deep-copy and compare every object for handlers that we don't have."""

    def build(self, **_: Any) -> kopf.BodyEssence:  # noqa: ANN401 - Kopf's keyword arguments
        """Give nothing to compare."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:  # noqa: ANN401
        """Remember nothing."""

    def store(self, **_: Any) -> None:  # noqa: ANN401
        """Write nothing."""


async def watch(intake: Intake, login: Login, stop: asyncio.Event, ready: asyncio.Event) -> None:
    """Watch all kinds until ``stop``, feeding ``intake``.

    Everything that is to outlive the watches must run as a task before this is called: Kopf ends every task that was started after it.

    Args:
        intake: Takes in the events.
        login: Where to connect and as whom.
        stop: Ends the watches; SIGTERM and SIGINT end them too.
        ready: Set once the watches are being started.

    Raises:
        Exception: A watch failed for good, e.g. because the CRD was removed.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def log_in(**_: Any) -> kopf.AiohttpSession:  # noqa: ANN401 - Kopf's keyword arguments
        return kopf.AiohttpSession(server=login.server, aiohttp_session=login.session(_WATCH_CONNECTIONS))

    for resource in WATCHED:
        _subscribe(resource, intake, registry)
    await kopf.operator(
        registry=registry,
        settings=watch_settings(),
        standalone=True,
        clusterwide=True,
        stop_flag=stop,
        ready_flag=ready,
    )


def _subscribe(resource: Resource, intake: Intake, registry: kopf.OperatorRegistry) -> None:
    @kopf.on.event(resource.group, resource.version, resource.plural, id=resource.plural, registry=registry)
    async def on_event(event: kopf.RawEvent, **_: Any) -> None:  # noqa: ANN401
        obj: dict[str, Any] = dict(event["object"])
        # Items of a list come without these two.
        obj.setdefault("apiVersion", resource.api_version)
        obj.setdefault("kind", resource.kind)
        intake.take(resource.kind, event["type"], obj)


def watch_settings() -> kopf.OperatorSettings:
    """Give Kopf's settings for watching and nothing else."""
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.persistence.finalizer = f"{GROUP}/finalizer"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP, v1=False)
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 310
    settings.watching.connect_timeout = 10
    settings.watching.reconnect_backoff = 1.0
    settings.watching.chunk_size = 250
    for resource in WATCHED:
        if resource.selector:
            settings.watching.label_selectors[resource.group, resource.version, resource.plural] = resource.selector
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.networking.error_backoffs = EndlessBackoffs()
    settings.process.ultimate_exiting_timeout = 25
    # Kopf keeps a task and the last body of each object for this long after its last event.
    settings.queueing.idle_timeout = 1.0
    settings.queueing.exit_timeout = 1.0
    return settings
