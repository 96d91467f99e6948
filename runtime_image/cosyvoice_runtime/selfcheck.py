"""Self-synthesis: the only proof that the model speaks. It drives the probes.

A server's own health answers are no proof: Triton stays "ready" after the process that holds the model has died, and a
synthesis can hang while every port still answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from cosyvoice_runtime import audio
from cosyvoice_runtime.dispatch import Dispatcher, Stream
from cosyvoice_runtime.errors import BadAudioError, SynthesisError, SynthesisTimeoutError

_log = logging.getLogger(__name__)

_TEXT = "All is well."
# Plausible lengths of that text in seconds.
_SHORTEST, _LONGEST = 0.3, 5.0
# Between a proof and the next at least: a second after a failure, and no storm when many sentences fail.
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class Proof:
    """Result of one self-synthesis; `seconds` is how long it took."""

    ok: bool
    at: datetime
    seconds: float
    error: str | None = None


@dataclass(frozen=True)
class CheckTimes:
    """Seconds: between proofs when idle, for one synthesis, and until which the first one must have come."""

    interval: float
    timeout: float
    load_timeout: float

    @property
    def freshness(self) -> float:
        """How old the last proof may be."""
        return 2 * self.interval + self.timeout


class SelfCheck:
    """Speaks a short text when nobody else does, and remembers when speech was last proven, by that or by real traffic."""

    def __init__(self, times: CheckTimes, monotonic: Callable[[], float], now: Callable[[], datetime]) -> None:
        self._times = times
        self._monotonic = monotonic
        self._now = now
        self._born = monotonic()
        self._proven: float | None = None
        self._doubts = 0
        self._wake = asyncio.Event()
        self.last: Proof | None = None

    def spoken(self) -> None:
        """A sentence of real traffic was spoken well: it keeps a proof fresh, but does not undo a failed one.

        Where one of two engines is dead, every second sentence is spoken well.
        """
        self._proven = self._monotonic()

    def doubt(self) -> None:
        """A sentence of real traffic failed behind the gateway: prove at once whether that was the text or the backend."""
        self._doubts += 1
        self._wake.set()

    @property
    def sane(self) -> bool:
        """The last synthesis was good, and is fresh."""
        if self.last is None or not self.last.ok or self._proven is None:
            return False
        return self._monotonic() - self._proven <= self._times.freshness

    @property
    def alive(self) -> bool:
        """Sane, or still within the time that loading may take."""
        if self.last is None and self._monotonic() - self._born <= self._times.load_timeout:
            return True
        return self.sane

    @property
    def complaint(self) -> str | None:
        """Why it is not sane, in words."""
        if self.sane:
            return None
        if self.last is None:
            return "no self-synthesis has been done yet"
        if not self.last.ok:
            return f"the last self-synthesis failed: {self.last.error}"
        age = self._monotonic() - (self._proven or self._born)
        return f"nothing has been spoken for {age:.0f} s"

    async def run(self, dispatcher: Dispatcher, engines: int = 1) -> None:
        """Until cancelled: prove it at once, then when nothing was spoken for an interval or there is a doubt."""
        while True:
            proof = await self._prove(dispatcher, engines)
            if proof.ok != (self.last.ok if self.last else None):
                _log.log(
                    logging.INFO if proof.ok else logging.ERROR,
                    "self-synthesis succeeds" if proof.ok else "self-synthesis fails",
                    extra={"data": {"seconds": round(proof.seconds, 4), "error": proof.error}},
                )
            self.last = proof
            await asyncio.sleep(_PAUSE_SECONDS)
            while proof.ok and (rest := self._rest()) > 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), rest)

    def _rest(self) -> float:
        """Seconds until a proof is due."""
        if self._wake.is_set() or self._proven is None:
            return 0.0
        return self._proven + self._times.interval - self._monotonic()

    async def _prove(self, dispatcher: Dispatcher, engines: int) -> Proof:
        started, at, doubts = self._monotonic(), self._now(), self._doubts
        self._wake.clear()
        # As many at once as there are engines, since a server gives a lone sentence to one that is alive.
        streams = [dispatcher.open([_TEXT], background=True) for _ in range(engines)]
        error: SynthesisError | None = None
        try:
            async with asyncio.timeout(self._times.timeout):
                for stream in streams:
                    await _listen(stream)
        except TimeoutError:
            # It waits behind users, by design; while they are served without failures, that is proof enough.
            if self._proven is None or self._proven < started or self._doubts > doubts:
                error = SynthesisTimeoutError(f"no sound within {self._times.timeout:g} s")
            for stream in streams:
                stream.abandon()
        except SynthesisError as failure:
            error = failure
        finally:
            for stream in streams:
                stream.close()
        seconds = self._monotonic() - started
        if error is not None:
            return Proof(ok=False, at=at, seconds=seconds, error=f"{error.kind}: {error}")
        self._proven = self._monotonic()
        return Proof(ok=True, at=at, seconds=seconds)


async def _listen(stream: Stream) -> None:
    length = 0.0
    while (pcm := await stream.next_chunk()) is not None:
        length += audio.seconds(len(pcm))
    if not _SHORTEST <= length <= _LONGEST:
        raise BadAudioError(f"a text of {len(_TEXT)} characters gave {length:.2f} s of sound")
