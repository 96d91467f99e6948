"""How far a build is: lines on stdout for people, and `GET /progress` for the operator."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stage:
    """What is being done; `done` of `total` steps where they can be counted."""

    phase: str
    done: int | None = None
    total: int | None = None

    def document(self) -> dict[str, Any]:
        """As it travels from the process that builds."""
        return {"phase": self.phase, "done": self.done, "total": self.total}


class Progress:
    """The current stage, and what can be told from how long it has taken so far."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stage = Stage("starting")
        self._since = clock()
        self._printed = ""

    def enter(self, stage: Stage) -> None:
        """Tell what is being done now."""
        if stage.phase != self._stage.phase:
            self._since = self._clock()
        self._stage = stage
        line = (
            stage.phase if stage.total is None else f"{stage.phase}: {(stage.done or 0) * 100 // max(stage.total, 1)} %"
        )
        if line != self._printed:
            self._printed = line
            print(line, flush=True)  # noqa: T201 - the log that people read while a build runs

    def document(self) -> dict[str, Any]:
        """The answer of `GET /progress`."""
        stage, elapsed = self._stage, self._clock() - self._since
        rate = stage.done / elapsed if stage.done and elapsed > 0 else None
        left = (stage.total - (stage.done or 0)) / rate if rate and stage.total is not None else None
        return {
            **stage.document(),
            "unit": "steps",
            "perSecond": round(rate, 3) if rate else None,
            "secondsLeft": round(left, 1) if left is not None else None,
        }
