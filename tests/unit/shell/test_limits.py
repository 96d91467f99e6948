"""Rates and delays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_operator.engine.backoff import Backoff
from cosyvoice_operator.kube.limiter import TokenBucket


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class TestTokenBucket:
    def test_a_burst_passes_at_once_and_then_one_each_interval(self) -> None:
        bucket = TokenBucket(rate=10, burst=3, clock=Clock())
        assert [round(bucket.reserve(), 3) for _ in range(5)] == [0, 0, 0, 0.1, 0.2]

    def test_it_fills_up_again_but_never_beyond_its_burst(self) -> None:
        clock = Clock()
        bucket = TokenBucket(rate=10, burst=3, clock=clock)
        for _ in range(3):
            bucket.reserve()
        clock.now += 1000
        assert [round(bucket.reserve(), 3) for _ in range(4)] == [0, 0, 0, 0.1]

    def test_when_the_server_has_enough_every_writer_waits(self) -> None:
        clock = Clock()
        bucket = TokenBucket(rate=1000, burst=1000, clock=clock)
        bucket.hold(2.0)
        assert bucket.reserve() == 2.0
        clock.now += 1.5
        assert bucket.reserve() == 0.5
        clock.now += 0.5
        assert bucket.reserve() == 0.0

    def test_a_shorter_hold_does_not_cut_a_longer_one(self) -> None:
        bucket = TokenBucket(rate=1000, burst=1000, clock=Clock())
        bucket.hold(5.0)
        bucket.hold(1.0)
        assert bucket.reserve() == 5.0

    async def test_take_sleeps_for_what_is_owed(self) -> None:
        clock = Clock()
        bucket = TokenBucket(rate=10, burst=1, clock=clock, sleep=clock.sleep)
        await bucket.take()
        await bucket.take()
        assert clock.slept == [pytest.approx(0.1)]

    @pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (1, 0)])
    def test_a_bucket_that_could_never_give_is_refused(self, rate: float, burst: float) -> None:
        with pytest.raises(ValueError, match="token bucket"):
            TokenBucket(rate, burst, Clock())

    @given(rate=st.floats(0.1, 1000), burst=st.integers(1, 100), gaps=st.lists(st.floats(0, 1), max_size=200))
    def test_no_stretch_of_time_ever_sees_more_than_burst_and_rate_allow(
        self, rate: float, burst: int, gaps: list[float]
    ) -> None:
        clock = Clock()
        bucket = TokenBucket(rate, burst, clock)
        allowed = []
        for gap in gaps:
            clock.now += gap
            allowed.append(clock.now + bucket.reserve())
        for first in range(len(allowed)):
            for last in range(first, len(allowed), 7):
                assert last - first + 1 <= burst + (allowed[last] - allowed[first]) * rate + 1e-6


class TestBackoff:
    def test_delays_double_up_to_the_limit(self) -> None:
        backoff: Backoff[str] = Backoff(base=1, limit=10, draw=lambda: 0.0)
        assert [backoff.next_delay("a") for _ in range(6)] == [1, 2, 4, 8, 10, 10]

    def test_keys_fail_on_their_own(self) -> None:
        backoff: Backoff[str] = Backoff(base=1, limit=10, draw=lambda: 0.0)
        backoff.next_delay("a")
        backoff.next_delay("a")
        assert backoff.next_delay("b") == 1

    def test_success_starts_from_the_base(self) -> None:
        backoff: Backoff[str] = Backoff(base=1, limit=10, draw=lambda: 0.0)
        backoff.next_delay("a")
        backoff.next_delay("a")
        backoff.forget("a")
        assert backoff.failures("a") == 0
        assert backoff.next_delay("a") == 1

    @given(failures=st.integers(0, 3000), draw=st.floats(0, 1, exclude_max=True))
    def test_a_delay_is_positive_and_bounded_however_often_it_failed(self, failures: int, draw: float) -> None:
        backoff: Backoff[str] = Backoff(base=0.1, limit=300, draw=lambda: draw)
        for _ in range(failures):
            backoff.next_delay("a")
        assert 0.1 <= backoff.next_delay("a") <= 300 * 1.25
