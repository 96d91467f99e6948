"""What the gateway asks of whatever speaks behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cosyvoice_runtime.errors import SynthesisError


@dataclass(frozen=True)
class BackendFacts:
    """What serves, as the backend itself reports it; seconds are None where it does not say."""

    providers: tuple[str, ...]
    load_seconds: float | None
    warmup_seconds: float | None

    @property
    def execution_provider(self) -> str:
        """CUDA or CPU: what really computes."""
        first = self.providers[0] if self.providers else ""
        return "CUDA" if first.startswith(("CUDA", "Tensorrt", "TensorRT", "NvTensor")) else "CPU"


class Task(Protocol):
    """One sentence on its way through a backend. Exactly one of `finish` and `fail` is called, once, at the end."""

    @property
    def text(self) -> str:
        """The sentence."""

    def deliver(self, pcm: bytes | bytearray) -> None:
        """Some 24 kHz mono 16-bit PCM of it, in order."""

    def finish(self) -> None:
        """All of it was delivered."""

    def fail(self, error: SynthesisError) -> None:
        """It could not be spoken."""


class Backend(Protocol):
    """Speaks sentences. All methods are called on the event loop's thread."""

    @property
    def facts(self) -> BackendFacts | None:
        """None until the model is loaded and warmed up."""

    @property
    def engines(self) -> int:
        """Processes that speak, of which each can die alone; known once it has loaded."""

    @property
    def broken(self) -> str | None:
        """Why it must be restarted, where it has said so itself; None as far as is known."""

    @property
    def trouble(self) -> str | None:
        """Why it cannot serve at the moment, in words for the operator's status; None when it can."""

    async def start(self, on_free: Callable[[], None]) -> None:
        """Begin to load; returns at once. `on_free` is called whenever a slot may have become free."""

    def free_slots(self) -> int:
        """Sentences it would take now."""

    def submit(self, task: Task) -> None:
        """Speak it; only while `free_slots()` is above 0."""

    def cancel(self, task: Task) -> None:
        """Nobody wants it any more. `finish` or `fail` may still be called, or not."""

    def abandon(self, task: Task) -> None:
        """It took too long: free what it holds by force. Neither `finish` nor `fail` is called for it any more."""

    async def close(self) -> None:
        """Stop everything that was started."""
