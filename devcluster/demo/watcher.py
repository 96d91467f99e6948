"""Reads what the resource says of itself, a few times a second, and keeps a timeline."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from devcluster.demo.target import Target


@dataclass(frozen=True)
class Moment:
    """The resource at one time.

    Attributes:
        at: Unix time, seconds.
        ready_units: Units that are ready.
        units: Units that are promised.
        tier: Tier that serves.
        ready_by_tier: Ready pods of each tier.
        conditions: Status of each condition.
        status: The whole status.
    """

    at: float
    ready_units: int
    units: int
    tier: str
    ready_by_tier: dict[str, int]
    conditions: dict[str, str]
    status: dict[str, Any]


class Watcher:
    """Polls one CosyVoiceDeployment."""

    def __init__(self, target: Target, namespace: str, name: str, every: float = 0.25) -> None:
        self._target, self._every = target, every
        self._path = f"/apis/tts.cosyvoice.io/v1alpha1/namespaces/{namespace}/cosyvoicedeployments/{name}"
        self.timeline: list[Moment] = []

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[Watcher]:
        """Watch while the context lasts."""
        task = asyncio.create_task(self._poll())
        try:
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def until(self, wanted: Callable[[Moment], bool], what: str, within: float) -> Moment:
        """Wait until the resource is as wanted.

        Raises:
            TimeoutError: It was not within ``within`` seconds; the message has its conditions.
        """
        deadline, seen = time.monotonic() + within, len(self.timeline)
        while time.monotonic() < deadline:
            for moment in self.timeline[seen:]:
                if wanted(moment):
                    return moment
            seen = len(self.timeline)
            await asyncio.sleep(self._every / 2)
        last = self.timeline[-1].status if self.timeline else {}
        told = "; ".join(f"{c['type']}={c['status']}: {c['message']}" for c in last.get("conditions", []))
        raise TimeoutError(
            f"{what}: not within {within:.0f} s. {told or 'The resource has no status: does the operator run?'}"
        )

    async def _poll(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                resource = await asyncio.to_thread(self._target.get, self._path)
                self.timeline.append(_moment(resource.get("status") or {}))
            await asyncio.sleep(self._every)


def _moment(status: dict[str, Any]) -> Moment:
    serving = status.get("serving") or {}
    ready_by_tier: dict[str, int] = {}
    for pool in status.get("pools") or ():
        ready_by_tier[pool["tier"]] = ready_by_tier.get(pool["tier"], 0) + pool.get("ready", 0)
    return Moment(
        at=time.time(),
        ready_units=serving.get("readyUnits", 0),
        units=serving.get("units", 0),
        tier=serving.get("tier", ""),
        ready_by_tier=ready_by_tier,
        conditions={c["type"]: c["status"] for c in status.get("conditions") or ()},
        status=status,
    )
