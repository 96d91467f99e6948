"""The work queue's promises, by example and against a model."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cosyvoice_operator.engine.queue import PATIENCE, TURN, QueueClosedError, QueueState, WorkQueue


def taken(queue: QueueState[str], now: float) -> str | None:
    found = queue.take(now)
    return found[0] if found else None


class TestOrder:
    def test_keys_are_given_out_in_the_order_in_which_they_were_added(self) -> None:
        queue: QueueState[str] = QueueState()
        for key in "abc":
            queue.add(key, 0.0)
        assert [taken(queue, 0.0) for _ in range(4)] == ["a", "b", "c", None]

    def test_an_urgent_key_goes_before_those_that_were_there_first(self) -> None:
        queue: QueueState[str] = QueueState()
        queue.add("moved", 0.0)
        queue.add("edited", 0.1, urgent=True)
        assert [taken(queue, 0.2), taken(queue, 0.2)] == ["edited", "moved"]

    def test_a_waiting_key_that_becomes_urgent_is_given_out_once_and_first(self) -> None:
        queue: QueueState[str] = QueueState()
        for key in "abc":
            queue.add(key, 0.0)
        queue.add("c", 0.1, urgent=True)
        assert [taken(queue, 0.2) for _ in range(4)] == ["c", "a", "b", None]

    def test_however_many_are_urgent_every_fourth_place_is_for_those_that_have_waited_long(self) -> None:
        queue: QueueState[str] = QueueState()
        for number in range(100):
            queue.add(f"patient{number}", 0.0)
            queue.add(f"urgent{number}", 0.0, urgent=True)
        before = [taken(queue, PATIENCE / 2) for _ in range(20)]
        after = [taken(queue, PATIENCE) for _ in range(40)]
        assert all(key.startswith("urgent") for key in before)
        assert sum(key.startswith("patient") for key in after) == 40 / TURN


class TestOneAtATime:
    def test_a_key_added_twice_is_worked_on_once(self) -> None:
        queue: QueueState[str] = QueueState()
        queue.add("a", 0.0)
        queue.add("a", 0.0)
        assert [taken(queue, 0.0), taken(queue, 0.0)] == ["a", None]

    def test_a_key_being_worked_on_is_given_to_nobody_else_and_again_when_it_is_done(self) -> None:
        queue: QueueState[str] = QueueState()
        queue.add("a", 0.0)
        assert taken(queue, 0.0) == "a"
        queue.add("a", 1.0)
        assert taken(queue, 1.0) is None
        queue.done("a", 2.0)
        assert taken(queue, 2.0) == "a"

    def test_a_key_that_is_done_and_was_not_added_again_is_not_given_out(self) -> None:
        queue: QueueState[str] = QueueState()
        queue.add("a", 0.0)
        queue.take(0.0)
        queue.done("a", 1.0)
        assert taken(queue, 1.0) is None

    def test_done_without_work_is_an_error(self) -> None:
        with pytest.raises(KeyError):
            QueueState[str]().done("a", 0.0)


class TestDelays:
    def test_a_delayed_key_is_given_out_when_its_time_has_come(self) -> None:
        queue: QueueState[str] = QueueState()
        queue.add_at("a", 5.0)
        assert taken(queue, 4.999) is None
        assert taken(queue, 5.0) == "a"

    @pytest.mark.parametrize("times", [(3.0, 7.0), (7.0, 3.0)])
    def test_the_earliest_of_several_delays_wins(self, times: tuple[float, float]) -> None:
        queue: QueueState[str] = QueueState()
        for when in times:
            queue.add_at("a", when)
        assert queue.next_due() == 3.0
        assert taken(queue, 3.0) == "a"
        queue.done("a", 3.0)
        assert taken(queue, 100.0) is None

    def test_working_on_a_key_takes_its_delays_with_it(self) -> None:
        queue: QueueState[str] = QueueState()
        queue.add_at("a", 60.0)
        queue.add("a", 0.0)
        queue.take(0.0)
        queue.done("a", 0.0)
        assert queue.next_due() is None

    def test_a_delay_that_ends_during_work_leads_to_more_work(self) -> None:
        queue: QueueState[str] = QueueState()
        queue.add("a", 0.0)
        queue.take(0.0)
        queue.add_at("a", 1.0)
        assert taken(queue, 2.0) is None
        queue.done("a", 3.0)
        assert taken(queue, 3.0) == "a"

    def test_a_discarded_key_is_not_given_out_when_its_delay_ends(self) -> None:
        queue: QueueState[str] = QueueState()
        queue.add_at("a", 1.0)
        queue.discard("a")
        assert taken(queue, 2.0) is None


class TestSpacing:
    def test_a_lone_change_is_not_delayed(self) -> None:
        queue: QueueState[str] = QueueState(spacing=0.05)
        queue.add("a", 10.0)
        assert taken(queue, 10.0) == "a"

    def test_a_change_right_after_work_waits_for_the_spacing(self) -> None:
        queue: QueueState[str] = QueueState(spacing=0.05)
        queue.add("a", 0.0)
        queue.take(0.0)
        queue.done("a", 0.01)
        queue.add("a", 0.02)
        assert taken(queue, 0.03) is None
        assert taken(queue, 0.061) == "a"

    def test_an_urgent_change_right_after_work_does_not_wait(self) -> None:
        queue: QueueState[str] = QueueState(spacing=0.05)
        queue.add("a", 0.0)
        queue.take(0.0)
        queue.done("a", 0.01)
        queue.add("a", 0.02)
        queue.add("a", 0.03, urgent=True)
        assert taken(queue, 0.03) == "a"

    def test_a_change_during_work_waits_for_the_spacing_too(self) -> None:
        queue: QueueState[str] = QueueState(spacing=0.05)
        queue.add("a", 0.0)
        queue.take(0.0)
        queue.add("a", 0.005)
        queue.done("a", 0.01)
        assert taken(queue, 0.01) is None
        assert taken(queue, 0.061) == "a"

    def test_a_burst_of_a_hundred_events_is_answered_a_few_times(self) -> None:
        queue: QueueState[str] = QueueState(spacing=0.05)
        answers = 0
        for event in range(100):
            now = event * 0.002
            queue.add("a", now)
            if queue.take(now):
                answers += 1
                queue.done("a", now)
        assert 2 <= answers <= 6


class TestMeasures:
    def test_the_wait_is_counted_from_the_first_add(self) -> None:
        queue: QueueState[str] = QueueState()
        queue.add("a", 1.0)
        queue.add("a", 2.0)
        assert queue.oldest_wait(4.0) == 3.0
        assert queue.take(4.0) == ("a", 3.0)

    def test_the_longest_work_names_its_key(self) -> None:
        queue: QueueState[str] = QueueState()
        queue.add("a", 0.0)
        queue.add("b", 0.0)
        queue.take(1.0)
        queue.take(2.0)
        assert queue.longest_work(5.0) == ("a", 4.0)


class QueueAgainstModel(RuleBasedStateMachine):
    """Random use of the queue beside the simplest thing that could be right: sets, and a time for each key."""

    keys = st.sampled_from("abcde")
    spacing = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.queue: QueueState[str] = QueueState(self.spacing)
        self.asked: dict[str, float] = {}  # work owed for each key, and the earliest time at which it may be given out
        self.working: set[str] = set()
        self.done_at: dict[str, float] = {}
        self.hurry: set[str] = set()

    def owe(self, key: str, when: float) -> None:
        self.asked[key] = min(when, self.asked.get(key, when))

    @rule(key=keys, urgent=st.booleans())
    def add(self, key: str, urgent: bool) -> None:
        self.queue.add(key, self.now, urgent=urgent)
        self.owe(key, self.now)
        if urgent:
            self.hurry.add(key)

    @rule(key=keys, delay=st.floats(0, 10))
    def add_later(self, key: str, delay: float) -> None:
        self.queue.add_at(key, self.now + delay)
        self.owe(key, self.now + delay)

    @rule(seconds=st.floats(0, 5))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def take(self) -> None:
        found = self.queue.take(self.now)
        may = {
            key
            for key, when in self.asked.items()
            if when <= self.now and key not in self.working and self.is_quiet(key)
        }
        if found is None:
            assert not may
            return
        key, waited = found
        assert key in may
        assert 0 <= waited <= self.now
        self.working.add(key)
        self.hurry.discard(key)
        del self.asked[key]

    def is_quiet(self, key: str) -> bool:
        return key in self.hurry or key not in self.done_at or self.now >= self.done_at[key] + self.spacing

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        self.queue.done(key, self.now)
        self.working.remove(key)
        self.done_at[key] = self.now

    @invariant()
    def nothing_owed_is_ever_lost(self) -> None:
        """Everything owed is ready, delayed, or being worked on and remembered: draining the queue pays all of it."""
        assert self.queue.delayed + len(self.queue) >= len([key for key in self.asked if key not in self.working])

    def teardown(self) -> None:
        for key in self.working:
            self.queue.done(key, self.now)
        end = self.now + 100.0
        paid = set()
        while found := self.queue.take(end):
            paid.add(found[0])
        assert paid == set(self.asked)


TestQueueAgainstModel = QueueAgainstModel.TestCase
TestQueueAgainstModel.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)


class Clock:
    """The event loop's own time, so that delays and the clock agree."""

    def __call__(self) -> float:
        return asyncio.get_running_loop().time()


class TestWaiting:
    async def test_a_worker_that_waits_is_woken_by_an_add(self) -> None:
        queue: WorkQueue[str] = WorkQueue(Clock())
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.add("a")
        assert (await asyncio.wait_for(waiting, 1))[0] == "a"

    async def test_a_worker_that_waits_is_woken_when_a_delay_ends(self) -> None:
        queue: WorkQueue[str] = WorkQueue(Clock())
        queue.add_after("a", 0.02)
        assert (await asyncio.wait_for(queue.get(), 1))[0] == "a"

    async def test_an_earlier_delay_brings_the_timer_forward(self) -> None:
        queue: WorkQueue[str] = WorkQueue(Clock())
        queue.add_after("late", 60)
        queue.add_after("early", 0.02)
        assert (await asyncio.wait_for(queue.get(), 1))[0] == "early"

    async def test_two_keys_that_fall_due_together_wake_two_workers(self) -> None:
        queue: WorkQueue[str] = WorkQueue(Clock())
        workers = [asyncio.create_task(queue.get()) for _ in range(2)]
        await asyncio.sleep(0)
        queue.add_after("a", 0.02)
        queue.add_after("b", 0.02)
        found = await asyncio.wait_for(asyncio.gather(*workers), 1)
        assert {key for key, _ in found} == {"a", "b"}

    async def test_work_meant_for_a_cancelled_worker_goes_to_another(self) -> None:
        queue: WorkQueue[str] = WorkQueue(Clock())
        first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.add("a")
        first.cancel()
        assert (await asyncio.wait_for(second, 1))[0] == "a"

    async def test_closing_tells_workers_that_wait_and_those_that_come(self) -> None:
        queue: WorkQueue[str] = WorkQueue(Clock())
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.close()
        with pytest.raises(QueueClosedError):
            await waiting
        with pytest.raises(QueueClosedError):
            await queue.get()

    async def test_no_key_is_ever_worked_on_twice_at_once(self) -> None:
        queue: WorkQueue[int] = WorkQueue(Clock())
        running: set[int] = set()
        finished = 0

        async def work() -> None:
            nonlocal finished
            while True:
                key, _ = await queue.get()
                assert key not in running
                running.add(key)
                await asyncio.sleep(0)
                running.remove(key)
                finished += 1
                queue.done(key)

        workers = [asyncio.create_task(work()) for _ in range(8)]
        for number in range(1000):
            queue.add(number % 7)
            if number % 10 == 0:
                await asyncio.sleep(0)
        while len(queue) or running:  # noqa: ASYNC110 - the workers run in between
            await asyncio.sleep(0)
        for worker in workers:
            worker.cancel()
        results = await asyncio.gather(*workers, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert finished >= 7
