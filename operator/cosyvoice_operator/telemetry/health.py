"""Whether the operator still does its work: not only that its event loop answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import Gauge

Check = Callable[[], str | None]
"""Says what is wrong; None when nothing is."""


@dataclass
class Health:
    """Named checks. ``live`` ones fail when only a restart helps, ``ready`` ones while the replica can't do its part yet."""

    live: dict[str, Check] = field(default_factory=dict)
    ready: dict[str, Check] = field(default_factory=dict)

    def problems(self, *, ready: bool) -> dict[str, str]:
        """Run the checks and give what is wrong by the name of the check."""
        checks = self.live | self.ready if ready else self.live
        found = ((name, check()) for name, check in checks.items())
        return {name: problem for name, problem in found if problem}


class LoopMonitor:
    """Measures how late the event loop is: a handler that blocks it delays every reconcile and the lease."""

    def __init__(self, clock: Callable[[], float], gauge: Gauge, period: float = 1.0) -> None:
        self._clock = clock
        self._gauge = gauge
        self._period = period
        self.worst = 0.0

    async def run(self) -> None:
        """Measure for ever."""
        while True:
            before = self._clock()
            await asyncio.sleep(self._period)
            lag = max(0.0, self._clock() - before - self._period)
            self._gauge.set(lag)
            self.worst = max(lag, self.worst * 0.9)  # forgets a single hiccup within a minute

    def check(self, limit: float) -> Check:
        """Make a check that fails while the loop has lately been late by more than ``limit`` seconds."""
        return lambda: f"the event loop was late by {self.worst:.1f} s" if self.worst > limit else None
