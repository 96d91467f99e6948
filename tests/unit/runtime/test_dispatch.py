"""Streams: sentences shared out and put back in order; lost ones repeated; the proof of life."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from cosyvoice_runtime.backends import BackendFacts, Task
from cosyvoice_runtime.dispatch import WINDOW, Dispatcher, Stream
from cosyvoice_runtime.errors import (
    BackendLostError,
    BadAudioError,
    NothingToSpeakError,
    SynthesisError,
    SynthesisTimeoutError,
)
from cosyvoice_runtime.selfcheck import CheckTimes, SelfCheck

SECOND = bytes(48_000)


class HandBackend:
    """A backend whose sentences end when the test says so."""

    facts = BackendFacts(("CPUExecutionProvider",), 0.1, 0.1)
    trouble = None
    broken = None
    engines = 2

    def __init__(self, slots: int = 2) -> None:
        self.slots = slots
        self.held: list[Task] = []
        self.seen: list[str] = []
        self.cancelled: list[str] = []
        self.abandoned: list[str] = []
        self.answer: Callable[[Task], None] | None = None
        self.on_free: Callable[[], None] = lambda: None

    async def start(self, on_free: Callable[[], None]) -> None:
        self.on_free = on_free

    def free_slots(self) -> int:
        return self.slots - len(self.held)

    def submit(self, task: Task) -> None:
        self.seen.append(task.text)
        self.held.append(task)
        if self.answer is not None:
            asyncio.get_running_loop().call_soon(self._answer, task)

    def _answer(self, task: Task) -> None:
        assert self.answer is not None
        self.answer(task)

    def cancel(self, task: Task) -> None:
        self.cancelled.append(task.text)
        self.held.remove(task)

    def abandon(self, task: Task) -> None:
        self.abandoned.append(task.text)
        self.held.remove(task)

    async def close(self) -> None:
        return

    def task(self, text: str) -> Task:
        return next(task for task in self.held if task.text == text)

    def end(self, text: str, *pcm: bytes, error: SynthesisError | None = None) -> None:
        task = self.task(text)
        self.held.remove(task)
        for chunk in pcm:
            task.deliver(chunk)
        if error is None:
            task.finish()
        else:
            task.fail(error)
        self.on_free()


class Watcher:
    """Counts what the dispatcher tells."""

    def __init__(self) -> None:
        self.good = 0
        self.doubts = 0

    def spoken(self) -> None:
        self.good += 1

    def doubt(self) -> None:
        self.doubts += 1


@pytest.fixture
def backend() -> HandBackend:
    return HandBackend()


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


@pytest.fixture
async def dispatcher(backend: HandBackend, watcher: Watcher) -> Dispatcher:
    made = Dispatcher(backend, 60.0, watcher)
    await backend.start(made.pump)
    return made


async def heard(stream: Stream) -> list[bytes]:
    chunks = []
    while (chunk := await stream.next_chunk()) is not None:
        chunks.append(chunk)
    return chunks


async def test_sentences_that_end_out_of_order_are_heard_in_order(dispatcher: Dispatcher, backend: HandBackend) -> None:
    stream = dispatcher.open(["one", "two"])

    backend.end("two", b"22")
    backend.end("one", b"1a", b"1b")

    assert await heard(stream) == [b"1a", b"1b", b"22"]
    assert stream.exhausted


async def test_the_first_piece_is_heard_before_its_sentence_has_ended(
    dispatcher: Dispatcher, backend: HandBackend
) -> None:
    stream = dispatcher.open(["one", "two"])
    listener = asyncio.create_task(stream.next_chunk())
    await asyncio.sleep(0)

    backend.task("one").deliver(b"early")

    assert await listener == b"early"


async def test_a_lost_sentence_is_spoken_again_without_repeating_what_was_heard(
    dispatcher: Dispatcher, backend: HandBackend, watcher: Watcher
) -> None:
    stream = dispatcher.open(["one"])
    backend.end("one", b"a", error=BackendLostError("killed"))
    await asyncio.sleep(0)

    backend.end("one", b"a", b"b")

    assert await heard(stream) == [b"a", b"b"]
    assert (dispatcher.retries, watcher.doubts, watcher.good) == (1, 1, 1)


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (BackendLostError("gone"), 4),
        (BackendLostError("it died of this one", suspicious=True), 2),
        (BadAudioError("silent"), 2),
        (SynthesisError("x"), 2),
    ],
)
async def test_a_sentence_that_fails_again_and_again_is_given_up(
    dispatcher: Dispatcher, backend: HandBackend, error: SynthesisError, attempts: int
) -> None:
    stream = dispatcher.open(["one"])

    for _ in range(attempts):
        backend.end("one", error=error)
        await asyncio.sleep(0)

    with pytest.raises(type(error)):
        await stream.next_chunk()
    assert backend.seen == ["one"] * attempts


async def test_a_sentence_without_words_is_left_out_of_a_text_that_has_others(
    dispatcher: Dispatcher, backend: HandBackend
) -> None:
    stream = dispatcher.open(["你好", "hello"])

    backend.end("你好", error=NothingToSpeakError("nothing"))
    backend.end("hello", b"h")

    assert await heard(stream) == [b"h"]


async def test_a_text_without_any_sound_is_an_error(dispatcher: Dispatcher, backend: HandBackend) -> None:
    stream = dispatcher.open(["你好", "🎉"])
    backend.end("你好")
    backend.end("🎉")

    with pytest.raises(NothingToSpeakError):
        await stream.next_chunk()


async def test_a_listener_that_hangs_up_frees_the_backend_and_the_queue(
    dispatcher: Dispatcher, backend: HandBackend
) -> None:
    gone = dispatcher.open([f"gone {number}" for number in range(10)])
    waiting = dispatcher.open(["here"])
    assert len(backend.held) == 2

    gone.abort(SynthesisError("hung up"))

    assert backend.cancelled == ["gone 0", "gone 1"]
    assert [task.text for task in backend.held] == ["here"]
    assert (dispatcher.queued, dispatcher.streams) == (0, 1)
    with pytest.raises(SynthesisError):
        await gone.next_chunk()
    backend.end("here", b"x")
    assert await heard(waiting) == [b"x"]


async def test_a_slow_listener_does_not_make_the_workers_run_ahead(watcher: Watcher) -> None:
    backend = HandBackend(slots=100)
    backend.answer = lambda task: backend.end(task.text, b"x")
    dispatcher = Dispatcher(backend, 60.0, watcher)
    await backend.start(dispatcher.pump)

    stream = dispatcher.open([str(number) for number in range(20)])
    await asyncio.sleep(0.01)
    assert len(backend.seen) == WINDOW

    assert len(await heard(stream)) == 20


async def test_a_sentence_that_takes_too_long_is_taken_away_and_tried_once_more(
    backend: HandBackend, watcher: Watcher
) -> None:
    dispatcher = Dispatcher(backend, 0.02, watcher)
    await backend.start(dispatcher.pump)
    stream = dispatcher.open(["hangs"])

    with pytest.raises(SynthesisTimeoutError):
        await stream.next_chunk()
    assert backend.abandoned == ["hangs", "hangs"]
    assert dispatcher.streams == 1
    stream.close()
    assert dispatcher.streams == 0


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


TIMES = CheckTimes(interval=10, timeout=0.2, load_timeout=30)


def make_check(clock: Clock) -> SelfCheck:
    return SelfCheck(TIMES, clock, lambda: datetime(2026, 1, 1, tzinfo=UTC))


async def until_proven(check: SelfCheck, dispatcher: Dispatcher, engines: int = 2) -> asyncio.Task[None]:
    task = asyncio.create_task(check.run(dispatcher, engines))
    async with asyncio.timeout(5):
        while check.last is None:  # noqa: ASYNC110 - nothing else tells
            await asyncio.sleep(0.005)
    return task


async def test_speech_on_every_engine_proves_life(dispatcher: Dispatcher, backend: HandBackend) -> None:
    clock = Clock()
    check = make_check(clock)
    assert not check.sane
    assert check.alive
    backend.answer = lambda task: backend.end(task.text, SECOND)

    task = await until_proven(check, dispatcher)

    assert len(backend.seen) == 2
    assert check.sane
    assert dispatcher.streams == 0
    task.cancel()


async def test_one_dead_engine_of_two_is_no_proof_and_real_traffic_does_not_hide_it(
    dispatcher: Dispatcher, backend: HandBackend
) -> None:
    check = make_check(Clock())
    count = iter(range(100))
    backend.answer = lambda task: (
        backend.end(task.text, SECOND) if next(count) % 2 else backend.end(task.text, error=BackendLostError("dead"))
    )

    task = await until_proven(check, dispatcher)
    check.spoken()

    assert not check.sane
    assert not check.alive
    assert check.complaint is not None
    assert "dead" in check.complaint
    task.cancel()


async def test_silence_and_gibberish_lengths_are_no_proof(dispatcher: Dispatcher, backend: HandBackend) -> None:
    check = make_check(Clock())
    backend.answer = lambda task: backend.end(task.text, bytes(100))

    task = await until_proven(check, dispatcher)

    assert check.last is not None
    assert not check.last.ok
    task.cancel()


async def test_an_engine_that_hangs_is_no_proof_and_is_freed_by_force(
    dispatcher: Dispatcher, backend: HandBackend
) -> None:
    check = make_check(Clock())

    task = await until_proven(check, dispatcher)

    assert check.last is not None
    assert check.last.error is not None
    assert "timeout" in check.last.error
    assert len(backend.abandoned) == 2
    task.cancel()


async def test_a_proof_grows_stale(dispatcher: Dispatcher, backend: HandBackend) -> None:
    clock = Clock()
    check = make_check(clock)
    backend.answer = lambda task: backend.end(task.text, SECOND)
    task = await until_proven(check, dispatcher)
    task.cancel()

    clock.now += TIMES.freshness + 1

    assert not check.sane
    assert not check.alive
    check.spoken()
    assert check.sane


async def test_what_never_spoke_is_alive_only_for_the_time_that_loading_may_take() -> None:
    clock = Clock()
    check = make_check(clock)

    clock.now += TIMES.load_timeout + 1

    assert not check.alive
