"""Self-synthesis: the only proof that the model speaks. It drives the probes.

A server's own health answers are no proof: Triton stays "ready" after the process that holds the model has died, and a
synthesis can hang while every port still answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from cosyvoice_runtime import audio
from cosyvoice_runtime.dispatch import Dispatcher
from cosyvoice_runtime.errors import BadAudioError, SynthesisError, SynthesisTimeoutError

_log = logging.getLogger(__name__)

_TEXT = "All is well."
# Plausible lengths of that text: half a second to five.
_SHORTEST, _LONGEST = 0.3, 5.0
_RETRY_SECONDS = 1.0


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
        self.last: Proof | None = None

    def spoken(self) -> None:
        """A sentence of real traffic was spoken well: as good a proof as our own."""
        self._proven = self._monotonic()
        if self.last is not None and not self.last.ok:
            self.last = Proof(ok=True, at=self._now(), seconds=0.0)

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

    async def run(self, dispatcher: Dispatcher) -> None:
        """Until cancelled: prove it at once, then whenever nothing was spoken for an interval; sooner after a failure."""
        while True:
            if (rest := self._rest()) > 0:
                await asyncio.sleep(rest)
                continue
            proof = await self._prove(dispatcher)
            if proof.ok != (self.last.ok if self.last else None):
                _log.log(
                    logging.INFO if proof.ok else logging.ERROR,
                    "self-synthesis succeeds" if proof.ok else "self-synthesis fails",
                    extra={"data": {"seconds": round(proof.seconds, 4), "error": proof.error}},
                )
            self.last = proof
            if not proof.ok:
                await asyncio.sleep(_RETRY_SECONDS)

    def _rest(self) -> float:
        """Seconds until a proof is due."""
        if self._proven is None or self.last is None or not self.last.ok:
            return 0.0
        return self._proven + self._times.interval - self._monotonic()

    async def _prove(self, dispatcher: Dispatcher) -> Proof:
        started = self._monotonic()
        at = self._now()
        try:
            async with asyncio.timeout(self._times.timeout):
                await self._speak(dispatcher)
        except TimeoutError:
            # It waits behind users, by design; while they are served, that is proof enough.
            if self._proven is not None and self._proven >= started:
                return Proof(ok=True, at=at, seconds=self._monotonic() - started)
            return self._failed(at, started, SynthesisTimeoutError(f"no sound within {self._times.timeout:g} s"))
        except SynthesisError as error:
            return self._failed(at, started, error)
        self._proven = self._monotonic()
        return Proof(ok=True, at=at, seconds=self._proven - started)

    def _failed(self, at: datetime, started: float, error: SynthesisError) -> Proof:
        return Proof(ok=False, at=at, seconds=self._monotonic() - started, error=f"{error.kind}: {error}")

    @staticmethod
    async def _speak(dispatcher: Dispatcher) -> None:
        stream = dispatcher.open([_TEXT], background=True)
        length = 0.0
        try:
            while (pcm := await stream.next_chunk()) is not None:
                length += audio.seconds(len(pcm))
        finally:
            stream.close()
        if not _SHORTEST <= length <= _LONGEST:
            raise BadAudioError(f"a text of {len(_TEXT)} characters gave {length:.2f} s of sound")
