"""Fair turns between requests, as properties of every order of events."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cosyvoice_runtime.fairqueue import FRESH_BURST, FairQueue

Flow = int
WIDE = 10_000


def drain(queue: FairQueue[Flow, int]) -> list[tuple[Flow, int]]:
    """Take everything, each unit consumed at once."""
    taken = []
    while (turn := queue.take()) is not None:
        taken.append(turn)
        queue.release(turn[0])
    return taken


@given(st.lists(st.integers(0, 12), max_size=8))
def test_every_unit_comes_once_and_in_the_order_of_its_flow(lengths: list[int]) -> None:
    queue: FairQueue[Flow, int] = FairQueue(WIDE)
    for flow, length in enumerate(lengths):
        queue.add(flow, range(length))

    taken = drain(queue)

    for flow, length in enumerate(lengths):
        assert [unit for key, unit in taken if key == flow] == list(range(length))
    assert len(queue) == 0


@given(st.lists(st.integers(1, 20), min_size=2, max_size=8))
def test_between_two_turns_of_a_flow_another_gets_its_first_and_one_more_at_most(lengths: list[int]) -> None:
    queue: FairQueue[Flow, int] = FairQueue(WIDE)
    for flow, length in enumerate(lengths):
        queue.add(flow, range(length))

    taken = [flow for flow, _ in drain(queue)]

    for flow in range(len(lengths)):
        turns = [position for position, other in enumerate(taken) if other == flow]
        for begin, end in pairwise(turns):
            between = Counter(taken[begin + 1 : end])
            assert all(count <= 2 for count in between.values())


def test_a_short_text_waits_for_one_sentence_of_a_long_one_at_most() -> None:
    queue: FairQueue[str, int] = FairQueue(WIDE)
    queue.add("long", range(100))
    queue.take()

    queue.add("short", [0])

    turns = [queue.take(), queue.take()]
    assert ("short", 0) in turns


@given(st.integers(1, 60))
def test_newcomers_cannot_starve_a_running_text(newcomers: int) -> None:
    queue: FairQueue[int, int] = FairQueue(WIDE)
    queue.add(-1, range(1000))
    queue.take()
    for flow in range(newcomers):
        queue.add(flow, [0])

    waits = [key for key, _ in (queue.take() for _ in range(newcomers)) if key != -1]

    assert newcomers - len(waits) >= newcomers // (FRESH_BURST + 1)


def test_a_first_sentence_goes_before_the_next_one_of_a_running_text() -> None:
    queue: FairQueue[str, int] = FairQueue(WIDE)
    queue.add("a", range(5))
    queue.add("b", range(5))
    queue.take()
    queue.take()

    queue.add("new", [0])

    assert queue.take() == ("new", 0)


def test_a_background_flow_waits_until_nothing_else_is_ready() -> None:
    queue: FairQueue[str, int] = FairQueue(WIDE)
    queue.add("check", [0], background=True)
    queue.add("user", range(3))

    assert [key for key, _ in drain(queue)] == ["user", "user", "user", "check"]


def test_a_flow_is_not_taken_further_than_its_window_ahead_of_its_reader() -> None:
    queue: FairQueue[str, int] = FairQueue(window=2)
    queue.add("slow", range(5))

    assert [queue.take(), queue.take(), queue.take()] == [("slow", 0), ("slow", 1), None]
    queue.release("slow")
    assert queue.take() == ("slow", 2)


def test_a_unit_that_was_lost_comes_next_in_its_flow() -> None:
    queue: FairQueue[str, int] = FairQueue(WIDE)
    queue.add("a", range(3))
    queue.take()

    queue.put_back("a", 0)

    assert [unit for _, unit in drain(queue)] == [0, 1, 2]


def test_a_flow_whose_listener_has_gone_takes_no_turn() -> None:
    queue: FairQueue[str, int] = FairQueue(WIDE)
    queue.add("gone", range(50))
    queue.add("here", range(2))
    queue.take()

    queue.remove("gone")
    queue.put_back("gone", 0)
    queue.release("gone")

    assert {key for key, _ in drain(queue)} == {"here"}
    assert len(queue) == 0


def test_a_key_is_used_once() -> None:
    queue: FairQueue[str, int] = FairQueue()
    queue.add("a", [1])
    with pytest.raises(KeyError):
        queue.add("a", [2])


class QueueMachine(RuleBasedStateMachine):
    """Any order of events keeps the books: nothing is lost, doubled, or out of its window."""

    WINDOW = 3

    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[int, int] = FairQueue(self.WINDOW)
        self.waiting: dict[int, list[int]] = {}
        self.out: dict[int, list[int]] = {}
        self.next = 0

    @rule(length=st.integers(0, 6), background=st.booleans())
    def add(self, length: int, background: bool) -> None:
        self.queue.add(self.next, range(length), background=background)
        self.waiting[self.next] = list(range(length))
        self.out[self.next] = []
        self.next += 1

    @rule()
    def take(self) -> None:
        ready = [key for key, units in self.waiting.items() if units and len(self.out[key]) < self.WINDOW]
        turn = self.queue.take()
        assert (turn is None) == (not ready)
        if turn is not None:
            key, unit = turn
            assert key in ready
            assert unit == self.waiting[key].pop(0)
            self.out[key].append(unit)

    @precondition(lambda self: any(self.out.values()))
    @rule(data=st.data(), lost=st.booleans())
    def end_one(self, data: st.DataObject, lost: bool) -> None:
        key = data.draw(st.sampled_from([key for key, units in self.out.items() if units]))
        if lost:
            unit = self.out[key].pop()
            self.queue.put_back(key, unit)
            self.waiting[key].insert(0, unit)
        else:
            self.out[key].pop(0)
            self.queue.release(key)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(list(self.waiting)))
        self.queue.remove(key)
        del self.waiting[key], self.out[key]

    @invariant()
    def the_length_is_what_waits(self) -> None:
        assert len(self.queue) == sum(map(len, self.waiting.values()))


TestQueueMachine = QueueMachine.TestCase
