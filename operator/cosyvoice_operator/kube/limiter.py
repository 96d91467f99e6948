"""Keeps writes to the API server within a rate, and still when the server says it has enough."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class TokenBucket:
    """A token bucket over all writes of this process, in order of arrival.

    The rate is a fuse, not the regulator: API Priority and Fairness on the server knows better what it can take, and says so
    with 429 and Retry-After, which :meth:`hold` obeys for every writer at once.
    """

    def __init__(
        self,
        rate: float,
        burst: float,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Make a full bucket.

        Args:
            rate: Tokens added each second, > 0.
            burst: Tokens that it holds, >= 1.
            clock: Monotonic seconds.
            sleep: Waits that many seconds.
        """
        if rate <= 0 or burst < 1:
            raise ValueError(f"a token bucket needs a rate above 0 and a burst of at least 1, not {rate} and {burst}")
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._sleep = sleep
        self._tokens = burst
        self._filled_at = clock()
        self._held_until = 0.0

    def reserve(self) -> float:
        """Take one token and say how many seconds to wait until it may be used."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate) - 1.0
        self._filled_at = now
        owed = -self._tokens / self._rate if self._tokens < 0 else 0.0
        return max(owed, self._held_until - now, 0.0)

    def hold(self, seconds: float) -> None:
        """Let no new writer through for ``seconds``."""
        self._held_until = max(self._held_until, self._clock() + seconds)

    async def take(self) -> None:
        """Wait until one more write may be made."""
        delay = self.reserve()
        if delay > 0:
            await self._sleep(delay)
