"""Streams of speech: sentences of many requests shared out to the backend's slots, and put back in order for each listener."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from cosyvoice_runtime.backends import Backend
from cosyvoice_runtime.errors import BackendLostError, NothingToSpeakError, SynthesisError, SynthesisTimeoutError
from cosyvoice_runtime.fairqueue import FairQueue

_log = logging.getLogger(__name__)

# A sentence is spoken at most so many times: once more when it failed or its sound was bad; more often when the backend was
# lost under it, since one dead instance of a server can take it twice.
_ATTEMPTS: Final = 2
_LOST_ATTEMPTS: Final = 4
# Units a stream may be ahead of its listener: enough to keep all workers busy for a lone long text, and little enough that a
# slow reader holds a few hundred kilobytes and not the whole speech.
WINDOW: Final = 4


class Unit:
    """One sentence of a stream. Implements `backends.Task`."""

    __slots__ = ("_skip", "attempts", "chunks", "delivered", "done", "error", "in_backend", "stream", "text", "timer")

    def __init__(self, stream: Stream, text: str) -> None:
        self.stream = stream
        self.text = text
        self.attempts = 0
        self.chunks: deque[bytes | bytearray] = deque()
        self.delivered = 0
        self.done = False
        self.in_backend = False
        self.error: SynthesisError | None = None
        self.timer: asyncio.TimerHandle | None = None
        self._skip = 0

    def begin(self) -> None:
        """A new attempt: pieces that were already delivered are cut at the same places and are not delivered again."""
        self.in_backend = True
        self._skip = self.delivered

    def deliver(self, pcm: bytes | bytearray) -> None:
        """Some PCM of the sentence."""
        if self._skip:
            self._skip -= 1
            return
        self.delivered += 1
        if not self.stream.closed:
            self.chunks.append(pcm)
            self.stream.wake()

    def finish(self) -> None:
        """All of it was delivered."""
        self.stream.dispatcher.unit_ended(self, None)

    def fail(self, error: SynthesisError) -> None:
        """It could not be spoken."""
        self.stream.dispatcher.unit_ended(self, error)


class Stream:
    """The speech of one request, sentence by sentence, in order. Close it, whatever happens."""

    def __init__(self, dispatcher: Dispatcher, texts: Sequence[str], *, background: bool = False) -> None:
        self.dispatcher = dispatcher
        self.background = background
        self.units = [Unit(self, text) for text in texts]
        self.closed = False
        self.spoke = False
        self._position = 0
        self._waiter: asyncio.Future[None] | None = None
        self._aborted: SynthesisError | None = None

    @property
    def exhausted(self) -> bool:
        """Whether everything has been handed out, so that `next_chunk` would give None at once."""
        return all(unit.done and unit.error is None and not unit.chunks for unit in self.units[self._position :])

    async def next_chunk(self) -> bytes | bytearray | None:
        """The next PCM, as soon as there is some; None at the end.

        Raises SynthesisError when a sentence could not be spoken, NothingToSpeakError when none of them had a sound.
        """
        while self._position < len(self.units):
            if self._aborted is not None:
                raise self._aborted
            unit = self.units[self._position]
            if unit.chunks:
                self.spoke = True
                return unit.chunks.popleft()
            if unit.error is not None:
                raise unit.error
            if unit.done:
                self._position += 1
                self.dispatcher.unit_consumed(self)
                continue
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if not self.spoke:
            raise NothingToSpeakError("the text holds nothing that this voice can say")
        return None

    def wake(self) -> None:
        """Something changed for the listener."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def abort(self, error: SynthesisError) -> None:
        """Nobody listens any more, or it has taken too long: stop the work now; the listener gets this error."""
        self._aborted = self._aborted or error
        self.close()
        self.wake()

    def abandon(self) -> None:
        """It has taken too long: what the backend still holds of it is freed by force."""
        for unit in self.units:
            if unit.in_backend:
                self.dispatcher.abandon(unit)

    def close(self) -> None:
        """The listener has gone or has everything: what is left is not spoken."""
        if not self.closed:
            self.closed = True
            self.dispatcher.stream_closed(self)


class Observer(Protocol):
    """Is told how sentences of real traffic end."""

    def spoken(self) -> None:
        """One was spoken well."""

    def doubt(self) -> None:
        """One failed behind the gateway, and not for its text."""


class Dispatcher:
    """Hands sentences to the backend in fair order, and repeats once what was lost."""

    def __init__(self, backend: Backend, timeout: float, observer: Observer) -> None:
        self._backend = backend
        self._timeout = timeout
        self._observer = observer
        self._queue: FairQueue[Stream, Unit] = FairQueue(WINDOW)
        self._pumping = False
        self.streams = 0
        self.retries = 0

    @property
    def queued(self) -> int:
        """Sentences that no worker has yet."""
        return len(self._queue)

    def open(self, texts: Sequence[str], *, background: bool = False) -> Stream:
        """A stream for these sentences; a background one is spoken only when nothing else waits."""
        stream = Stream(self, texts, background=background)
        self.streams += not background
        self._queue.add(stream, stream.units, background=background)
        self.pump()
        return stream

    def pump(self) -> None:
        """Fill the backend's free slots."""
        if self._pumping:
            return  # a backend that fails a task inside submit() would lead back here
        self._pumping = True
        try:
            while self._backend.free_slots() > 0 and (turn := self._queue.take()) is not None:
                unit = turn[1]
                unit.begin()
                unit.timer = asyncio.get_running_loop().call_later(self._timeout, self._timed_out, unit)
                self._backend.submit(unit)
        finally:
            self._pumping = False

    def unit_ended(self, unit: Unit, error: SynthesisError | None) -> None:
        """The backend has done with a unit."""
        self._release(unit)
        stream = unit.stream
        if stream.closed or unit.done:
            return
        if error is not None and error.retryable and not stream.background:
            self._observer.doubt()
        if isinstance(error, NothingToSpeakError):
            error = None  # one sentence of emoji among others is left out; only a whole text of them is an error
        elif error is None and not stream.background:
            self._observer.spoken()
        elif error is not None and self._again(unit, error):
            self.retries += 1
            self._queue.put_back(stream, unit)
            asyncio.get_running_loop().call_soon(self.pump)
            return
        unit.done = True
        unit.error = error
        stream.wake()

    def unit_consumed(self, stream: Stream) -> None:
        """The listener has taken a whole sentence, so the stream may go one further ahead."""
        self._queue.release(stream)
        self.pump()

    def stream_closed(self, stream: Stream) -> None:
        """Free what the stream still has in the queue and in the backend."""
        self.streams -= not stream.background
        self._queue.remove(stream)
        for unit in stream.units:
            if unit.in_backend:
                self._backend.cancel(unit)
        self.pump()

    @staticmethod
    def _again(unit: Unit, error: SynthesisError) -> bool:
        if unit.stream.background:
            return False  # a self-synthesis that works at the second attempt proves nothing
        unit.attempts += 1
        limit = _LOST_ATTEMPTS if isinstance(error, BackendLostError) and not error.suspicious else _ATTEMPTS
        return error.retryable and unit.attempts < limit

    @staticmethod
    def _release(unit: Unit) -> None:
        unit.in_backend = False
        if unit.timer is not None:
            unit.timer.cancel()
            unit.timer = None

    def _timed_out(self, unit: Unit) -> None:
        _log.error("a sentence took too long", extra={"data": {"seconds": self._timeout, "characters": len(unit.text)}})
        unit.timer = None
        self.abandon(unit)

    def abandon(self, unit: Unit) -> None:
        """Take a unit from the backend by force."""
        if unit.in_backend:
            self._backend.abandon(unit)
            self.unit_ended(unit, SynthesisTimeoutError(f"a sentence was not spoken within {self._timeout:g} s"))
