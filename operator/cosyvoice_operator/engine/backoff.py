"""How long to wait before the next try of what keeps failing."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Backoff(Generic[K]):
    """Per-key exponential delays with jitter, so that keys that failed together don't all come back together."""

    def __init__(
        self,
        base: float,
        limit: float,
        jitter: float = 0.25,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Make a backoff.

        Args:
            base: Seconds before the first retry, without jitter.
            limit: Most seconds between two tries, without jitter.
            jitter: Largest part of the delay that is added to it.
            draw: Gives numbers from 0 up to 1.
        """
        self._base = base
        self._limit = limit
        self._jitter = jitter
        self._draw = draw
        self._failures: dict[K, int] = {}

    def next_delay(self, key: K) -> float:
        """Count one more failure of ``key`` and give the seconds to wait for it."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # Beyond 2**30 the limit has long been reached, and a float would overflow at 2**1024.
        delay = min(self._limit, self._base * 2.0 ** min(failures, 30))
        return delay * (1.0 + self._jitter * self._draw())

    def failures(self, key: K) -> int:
        """Say how often ``key`` has failed in a row."""
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """Start again from the base: ``key`` succeeded, or is gone."""
        self._failures.pop(key, None)
