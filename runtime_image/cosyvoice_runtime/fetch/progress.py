"""How far a fetch is: lines on stdout for people, and `GET /progress` for the operator."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from cosyvoice_runtime.fetch import figures
from cosyvoice_runtime.jobs import serve_progress

WINDOW_SECONDS = 15.0
LINE_SECONDS = 10.0


class Progress:
    """The current phase and its bytes, told from any thread; rates are of the last fifteen seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._phase = "starting"
        self._done: int | None = None
        self._total: int | None = None
        self._moved = 0
        self._samples = deque([(clock(), 0)])
        self._spoken = ""

    def enter(self, phase: str, total: int | None = None, *, done: int | None = None) -> None:
        """Begin a phase; `total` and `done` are bytes, None where they cannot be counted."""
        with self._lock:
            self._phase, self._total, self._moved = phase, total, 0
            self._done = done if done is not None or total is None else 0
            self._samples = deque([(self._clock(), 0)])
        self.speak()

    def advance(self, count: int) -> None:
        """Tell of bytes that were moved."""
        with self._lock:
            self._done = (self._done or 0) + count
            self._moved += count
            self._sample()

    def correct(self, count: int) -> None:
        """Tell of bytes that were there already (or, below zero, have to be moved again): they are no speed."""
        with self._lock:
            self._done = (self._done or 0) + count

    def _sample(self) -> None:
        now = self._clock()
        if now - self._samples[-1][0] >= 0.5:
            self._samples.append((now, self._moved))
        while len(self._samples) > 1 and now - self._samples[1][0] >= WINDOW_SECONDS:
            self._samples.popleft()

    def document(self) -> dict[str, Any]:
        """The answer of `GET /progress`."""
        with self._lock:
            self._sample()
            since, moved = self._samples[0]
            elapsed = self._clock() - since
            rate = (self._moved - moved) / elapsed if self._done is not None and elapsed > 0 else None
            left = (self._total - (self._done or 0)) / rate if rate and self._total is not None else None
            return {
                "phase": self._phase,
                "done": self._done,
                "total": self._total,
                "unit": "bytes",
                "perSecond": round(rate, 1) if rate is not None else None,
                "secondsLeft": round(max(left, 0.0), 1) if left is not None else None,
            }

    def speak(self) -> None:
        """Print a line, unless it would repeat the last one."""
        now = self.document()
        line = now["phase"]
        if now["total"] is not None:
            line += f": {figures.size(now['done'] or 0)} of {figures.size(now['total'])}"
        elif now["done"]:
            line += f": {figures.size(now['done'])}"
        if now["perSecond"]:
            line += f", {figures.size(now['perSecond'])}/s"
        if now["secondsLeft"]:
            line += f", {now['secondsLeft']:.0f} s left"
        if line != self._spoken:
            self._spoken = line
            print(line, flush=True)  # noqa: T201 - the log that people read while a fetch runs

    def report(self, host: str, port: int) -> int | None:
        """Speak each ten seconds and serve `GET /progress`, from threads that end with the process.

        Returns:
            The port; None where it is taken: that is told, and the fetch goes on.
        """
        threading.Thread(target=self._speak_on, name="progress-lines", daemon=True).start()
        return serve_progress(self.document, host, port)

    def _speak_on(self) -> None:
        while True:
            time.sleep(LINE_SECONDS)
            self.speak()
