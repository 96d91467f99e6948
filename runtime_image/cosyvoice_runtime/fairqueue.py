"""Who speaks next: fair turns between requests, sentence by sentence, as a plain data structure without a clock or a loop.

Each request is a flow of units (sentences). Turns go round robin, so that a long text holds back a short one by one sentence
at most. A flow that has not had its first turn goes before those that have, since its listener still waits in silence; but
at most `FRESH_BURST` times in a row, so that a stream of newcomers cannot starve the running ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

FRESH_BURST = 3

K = TypeVar("K", bound=Hashable)
U = TypeVar("U")


@dataclass(slots=True)
class _Flow(Generic[U]):
    units: deque[U]
    credit: int
    background: bool
    started: bool = False
    lined_up: bool = False


class FairQueue(Generic[K, U]):
    """Units of many flows, handed out one at a time in fair order.

    A flow may be `window` units ahead of what its consumer has taken (`release` gives one back): a reader that is slow, or
    gone, does not make the workers fill memory for it. Background flows get a turn only when no other flow is ready.
    """

    def __init__(self, window: int = 4) -> None:
        self._window = window
        self._flows: dict[K, _Flow[U]] = {}
        self._fresh: deque[K] = deque()
        self._running: deque[K] = deque()
        self._background: deque[K] = deque()
        self._burst = 0

    def __len__(self) -> int:
        """Units that wait, those of blocked flows included."""
        return sum(len(flow.units) for flow in self._flows.values())

    def add(self, key: K, units: Iterable[U], *, background: bool = False) -> None:
        """Add a flow; its key must be new."""
        if key in self._flows:
            raise KeyError(f"flow {key!r} is already queued")
        self._flows[key] = _Flow(deque(units), self._window, background)
        self._line_up(key)

    def take(self) -> tuple[K, U] | None:
        """The next unit in fair order, or None when no flow is ready."""
        ring = self._choose()
        if ring is None:
            return None
        key = ring.popleft()
        flow = self._flows[key]
        flow.lined_up = False
        flow.started = True
        flow.credit -= 1
        unit = flow.units.popleft()
        self._line_up(key)
        return key, unit

    def put_back(self, key: K, unit: U) -> None:
        """A taken unit must be done again: it goes first in its flow, and the flow goes first among those running."""
        flow = self._flows.get(key)
        if flow is None:
            return
        flow.units.appendleft(unit)
        flow.credit += 1
        if not flow.lined_up:
            self._line_up(key, first=True)

    def release(self, key: K) -> None:
        """The consumer of this flow has finished with one unit."""
        flow = self._flows.get(key)
        if flow is not None:
            flow.credit += 1
            self._line_up(key)

    def remove(self, key: K) -> None:
        """Forget the flow and what it still had."""
        flow = self._flows.pop(key, None)
        if flow is not None and flow.lined_up:
            self._ring(flow).remove(key)

    def _choose(self) -> deque[K] | None:
        if self._fresh and (not self._running or self._burst < FRESH_BURST):
            self._burst += 1
            return self._fresh
        if self._running:
            self._burst = 0
            return self._running
        return self._background or None

    def _ring(self, flow: _Flow[U]) -> deque[K]:
        if flow.background:
            return self._background
        return self._running if flow.started else self._fresh

    def _line_up(self, key: K, *, first: bool = False) -> None:
        flow = self._flows[key]
        if flow.lined_up or not flow.units or flow.credit <= 0:
            return
        flow.lined_up = True
        ring = self._ring(flow)
        if first:
            ring.appendleft(key)
        else:
            ring.append(key)
