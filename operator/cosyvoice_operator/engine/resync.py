"""Lists everything now and then with the operator's own client, whatever the watches say.

A watch that was cut off and listed again never tells of what was deleted meanwhile; without this such ghosts would be planned with until
the next restart.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from cosyvoice_operator.core.model import Json
from cosyvoice_operator.engine.intake import Intake
from cosyvoice_operator.engine.store import Store, ident
from cosyvoice_operator.kube.client import KubeClient
from cosyvoice_operator.kube.errors import ApiError, ForbiddenError, GoneError, NotFoundError
from cosyvoice_operator.kube.resources import WATCHED, Resource
from cosyvoice_operator.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

FIRST_AGAIN = 10.0
"""Seconds after the start of the watches until the first resync: what was deleted between our first list and theirs is a ghost."""

LONGEST_BUSY = 60.0
"""Most seconds that a resync waits for a moment without work: listing a thousand resources would hold up those that wait."""

_RETRY = 10.0


class Resync:
    """Makes the store agree with full lists, and has every resource looked at again."""

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        intake: Intake,
        metrics: Metrics,
        *,
        interval: float,
        clock: Callable[[], float],
    ) -> None:
        """Make a resync.

        Args:
            client: Lists.
            store: To be corrected.
            intake: Takes in what was listed.
            metrics: Counts what had been missed.
            interval: Seconds between two resyncs.
            clock: Monotonic seconds.
        """
        self._client = client
        self._store = store
        self._intake = intake
        self._metrics = metrics
        self._interval = interval
        self._clock = clock
        self._succeeded_at: float | None = None

    @property
    def synced(self) -> bool:
        """Whether everything has been listed once."""
        return self._succeeded_at is not None

    def problem(self) -> str | None:
        """Say when the last complete list is too old."""
        if self._succeeded_at is None:
            return None
        age = self._clock() - self._succeeded_at
        return f"nothing could be listed for {age:.0f} s" if age > 2 * self._interval + 60 else None

    async def once(self) -> None:
        """List all kinds.

        Raises:
            ApiError: A list failed; what was listed before it has been taken in.
        """
        for resource in WATCHED:
            await self._list(resource)
        self._succeeded_at = self._clock()
        self._metrics.resyncs.labels("succeeded").inc()

    async def first(self) -> None:
        """List all kinds, however often it takes: nothing may be planned on half of the facts."""
        while True:
            try:
                await self.once()
            except ApiError as error:
                logger.warning("could not list yet: %s", error)
                await asyncio.sleep(min(_RETRY, self._interval))
            else:
                return

    async def run(self) -> None:
        """Resync for ever."""
        delay = min(FIRST_AGAIN, self._interval)
        while True:
            await asyncio.sleep(delay)
            await self._quiet()
            try:
                await self.once()
                self._intake.look_at(None)
                # Spread, so that the two replicas of ten clusters behind one load balancer don't all list at once.
                delay = self._interval * random.uniform(0.9, 1.1)  # noqa: S311 - no secret
            except ApiError as error:
                self._metrics.resyncs.labels("failed").inc()
                logger.warning("resync failed: %s", error)
                delay = min(_RETRY, self._interval)

    async def _quiet(self) -> None:
        deadline = self._clock() + LONGEST_BUSY
        while self._intake.busy and self._clock() < deadline:  # noqa: ASYNC110 - nobody is told when a queue runs empty
            await asyncio.sleep(0.5)

    async def _list(self, resource: Resource) -> None:
        listed = []
        version = 0
        try:
            async for items, listed_at in self._client.pages(resource):
                version = listed_at
                for obj in items:
                    listed.append(ident(resource.kind, obj))
                    if self._take(resource, obj) and self.synced:
                        self._metrics.repairs.labels(resource.kind).inc()
                await asyncio.sleep(0)  # a page of 250 objects takes some 20 ms to take in
        except GoneError:
            logger.info("a list outlived its continue token; what it held is kept", extra={"kind": resource.kind})
            return
        except (NotFoundError, ForbiddenError):
            if not resource.optional:
                raise
        self._intake.look_at(self._store.retain(resource.kind, listed, version))

    def _take(self, resource: Resource, obj: Json) -> bool:
        try:
            return self._intake.take(resource.kind, None, obj)
        except (KeyError, TypeError, ValueError):
            # One object that can't be read must not stop the operator for all the others.
            logger.exception("an object can't be read", extra={"object": "/".join(ident(resource.kind, obj))})
            return False
