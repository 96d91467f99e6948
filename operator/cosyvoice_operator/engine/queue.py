"""The work queue: which keys wait to be looked at, with the semantics of client-go's.

- One worker per key at a time; a key added while it is being worked on is worked on once more afterwards.
- However often a waiting key is added, it is worked on once.
- Delayed adds: the earliest time wins, and working on a key takes its delayed adds with it, since every reconcile says anew when it
  wants to look again.
- Urgent keys (a person changed something) go before the others (something moved in the cluster), but once one of those has waited for
  ``PATIENCE``, every ``TURN``-th place is theirs.
- A key is worked on at once when it is urgent or has been quiet, and otherwise ``spacing`` after its last work ended: a lone change is
  answered without delay, a burst of events (a rollout sends dozens) is answered a few times.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

PATIENCE = 1.0
"""Seconds after which a key that isn't urgent gets its turn beside those that are."""

TURN = 8
"""Of so many keys given out in a row, one is not urgent if any of those has waited for :data:`PATIENCE`."""


class QueueState(Generic[K]):
    """The queue's rules, without waiting: every method is given the time, so that they can be checked against a model."""

    def __init__(self, spacing: float = 0.0) -> None:
        """Make an empty queue; ``spacing`` is in seconds."""
        self._spacing = spacing
        # A key that becomes urgent while it is ready stands in both; the later one is skipped.
        self._urgent: deque[K] = deque()
        self._ready: deque[K] = deque()
        self._dirty: dict[K, float] = {}  # ready, or to be made ready when done; with the time of the first add
        self._hurry: set[K] = set()  # those of them that are urgent
        self._in_a_row = 0  # urgent keys given out since the last that wasn't
        self._processing: dict[K, float] = {}  # with the time it was taken
        self._delayed: dict[K, float] = {}  # the time at which it becomes dirty
        self._timeline: list[
            tuple[float, int, K]
        ] = []  # heap over _delayed; entries that no longer match it are skipped
        self._sequence = 0  # keys needn't be comparable
        self._quiet_from: dict[K, float] = {}

    def __len__(self) -> int:
        """Keys that wait for a worker now."""
        return len(self._dirty) - sum(key in self._dirty for key in self._processing)

    @property
    def urgent(self) -> bool:
        """Whether an urgent key waits for a worker now."""
        return self._head(self._urgent) is not None

    @property
    def delayed(self) -> int:
        """Keys that wait for their time."""
        return len(self._delayed)

    def add(self, key: K, now: float, *, urgent: bool = False) -> None:
        """Ask for work on ``key``."""
        if key in self._dirty and (not urgent or key in self._hurry):
            return
        if urgent:
            self._hurry.add(key)
        quiet_from = self._quiet_from.get(key, now)
        if key not in self._dirty and quiet_from > now and not urgent and key not in self._processing:
            self.add_at(key, quiet_from)
            return
        self._dirty.setdefault(key, now)
        if key not in self._processing:
            (self._urgent if key in self._hurry else self._ready).append(key)

    def add_at(self, key: K, when: float) -> None:
        """Ask for work on ``key`` at ``when``, unless it is due earlier anyway."""
        due = self._delayed.get(key)
        if due is not None and due <= when:
            return
        self._delayed[key] = when
        self._sequence += 1
        heapq.heappush(self._timeline, (when, self._sequence, key))

    def take(self, now: float) -> tuple[K, float] | None:
        """Give the next key to work on, with the seconds that it waited for a worker; None when there is none now."""
        self.advance(now)
        key = self._next(now)
        if key is None:
            return None
        added = self._dirty.pop(key)
        self._hurry.discard(key)
        self._delayed.pop(key, None)
        self._processing[key] = now
        return key, now - added

    def done(self, key: K, now: float) -> None:
        """End the work on ``key``: others may take it again."""
        del self._processing[key]
        if self._spacing:
            self._quiet_from[key] = now + self._spacing
        if key in self._dirty:
            # It changed while it was worked on: the same spacing holds, or a burst would be answered event by event.
            del self._dirty[key]
            self.add(key, now, urgent=key in self._hurry)

    def discard(self, key: K) -> None:
        """Forget the delays of a key that is gone. Work that was asked for is still given out."""
        self._delayed.pop(key, None)
        self._quiet_from.pop(key, None)

    def next_due(self) -> float | None:
        """When the next delayed key becomes ready; None when none waits."""
        while self._timeline and self._delayed.get(self._timeline[0][2]) != self._timeline[0][0]:
            heapq.heappop(self._timeline)
        return self._timeline[0][0] if self._timeline else None

    def oldest_wait(self, now: float) -> float:
        """Seconds that the key that waits for longest has been waiting for a worker."""
        waiting = (
            self._dirty[head] for head in (self._head(self._urgent), self._head(self._ready)) if head is not None
        )
        return now - min(waiting, default=now)

    def longest_work(self, now: float) -> tuple[K | None, float]:
        """The key that has been worked on for longest, and the seconds since."""
        if not self._processing:
            return None, 0.0
        key = min(self._processing, key=self._processing.__getitem__)
        return key, now - self._processing[key]

    def _next(self, now: float) -> K | None:
        urgent, ready = self._head(self._urgent), self._head(self._ready)
        its_turn = ready is not None and self._in_a_row >= TURN - 1 and self._dirty[ready] <= now - PATIENCE
        if urgent is not None and not its_turn:
            self._in_a_row += 1
            return self._urgent.popleft()
        self._in_a_row = 0
        return self._ready.popleft() if ready is not None else None

    def _head(self, line: deque[K]) -> K | None:
        """Give the first key of a line that still waits there; one that was urgent in between was served from the other line."""
        while line and not self._stands_in(line, line[0]):
            line.popleft()
        return line[0] if line else None

    def _stands_in(self, line: deque[K], key: K) -> bool:
        waits = key in self._dirty and key not in self._processing
        return waits and (key in self._hurry) == (line is self._urgent)

    def advance(self, now: float) -> None:
        """Make ready what is due."""
        while (due := self.next_due()) is not None and due <= now:
            key = heapq.heappop(self._timeline)[2]
            del self._delayed[key]
            self.add(key, now)


class QueueClosedError(Exception):
    """No more work is given out."""


class WorkQueue(Generic[K]):
    """A :class:`QueueState` that workers can wait on. Everything happens on one event loop, so nothing needs a lock."""

    def __init__(self, clock: Callable[[], float], spacing: float = 0.0) -> None:
        """Make an empty queue.

        Args:
            clock: Monotonic seconds, on the time base of the event loop's ``call_later`` delays.
            spacing: See the module.
        """
        self._clock = clock
        self._state: QueueState[K] = QueueState(spacing)
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: tuple[float, asyncio.TimerHandle] | None = None
        self._closed = False
        self.adds = 0

    def __len__(self) -> int:
        """Keys that wait for a worker now."""
        return len(self._state)

    @property
    def urgent(self) -> bool:
        """Whether an urgent key waits for a worker now."""
        return self._state.urgent

    @property
    def delayed(self) -> int:
        """Keys that wait for their time."""
        return self._state.delayed

    def add(self, key: K, *, urgent: bool = False) -> None:
        """Ask for work on ``key``."""
        self.adds += 1
        self._state.add(key, self._clock(), urgent=urgent)
        self._wake()

    def add_after(self, key: K, delay: float) -> None:
        """Ask for work on ``key`` after ``delay`` seconds."""
        self.adds += 1
        self._state.add_at(key, self._clock() + max(0.0, delay))
        self._wake()

    def discard(self, key: K) -> None:
        """Forget the delays of a key that is gone."""
        self._state.discard(key)

    async def get(self) -> tuple[K, float]:
        """Wait for a key, and give it with the seconds that it waited for a worker.

        Raises:
            QueueClosedError: :meth:`close` was called.
        """
        while True:
            if self._closed:
                raise QueueClosedError
            taken = self._state.take(self._clock())
            self._set_timer()
            if taken is not None:
                return taken
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                if not waiter.cancelled():
                    self._wake()  # it was woken for work that it won't take
                raise

    def done(self, key: K) -> None:
        """End the work on ``key``."""
        self._state.done(key, self._clock())
        self._wake()

    def close(self) -> None:
        """Give out no more work; workers that wait are told."""
        self._closed = True
        if self._timer:
            self._timer[1].cancel()
        while self._waiters:
            _release(self._waiters.popleft())

    def oldest_wait(self) -> float:
        """Seconds that the key at the head has been waiting for a worker."""
        return self._state.oldest_wait(self._clock())

    def longest_work(self) -> tuple[K | None, float]:
        """The key that has been worked on for longest, and the seconds since."""
        return self._state.longest_work(self._clock())

    def _wake(self) -> None:
        for _ in range(min(len(self._state), len(self._waiters))):
            _release(self._waiters.popleft())
        self._set_timer()

    def _set_timer(self) -> None:
        due = self._state.next_due()
        if self._closed or due is None or (self._timer and self._timer[0] == due):
            return
        if self._timer:
            self._timer[1].cancel()
        delay = max(0.0, due - self._clock())
        self._timer = (due, asyncio.get_running_loop().call_later(delay, self._on_time))

    def _on_time(self) -> None:
        self._timer = None
        self._state.advance(self._clock())
        self._wake()


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
