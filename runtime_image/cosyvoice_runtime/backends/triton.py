"""The `triton` backend: sentences over gRPC streams to a decoupled model in a Triton server in the same pod."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import tritonclient.grpc.aio as triton
from tritonclient.utils import InferenceServerException

from cosyvoice_runtime import audio
from cosyvoice_runtime.backends import BackendFacts, Task, tritonfacts
from cosyvoice_runtime.errors import (
    BackendLostError,
    BadAudioError,
    NothingToSpeakError,
    SynthesisError,
    TextRefusedError,
)

_log = logging.getLogger(__name__)

# Sentences sent to Triton for each of its instances: one that it speaks, and one that waits so that it never idles for the
# time of a round trip. More would wait in Triton's queue, where turns are no longer fair.
DEPTH = 2
_POLL_SECONDS = 0.2
_CALL_SECONDS = 2.0
_CHANNEL = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # A server that was restarted is found again within a second; the defaults wait up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]
_KINDS: dict[str, type[SynthesisError]] = {
    error.kind: error for error in (NothingToSpeakError, TextRefusedError, BadAudioError)
}
_TAGGED = re.compile(r"\[(\w+)\] (.*)", re.DOTALL)
_DEAD_STUB = re.compile(r"stub process .* is not healthy", re.IGNORECASE)
_WARM_UP_TEXT = "This is a warm up sentence."


@dataclass(frozen=True)
class TritonOptions:
    """Where Triton is, and how much it is given at once (default: from the number of its instances)."""

    url: str
    metrics_url: str
    model: str
    streams: int | None = None
    warmup_requests: int = 3


class Lane:
    """One gRPC stream, one sentence at a time. A stream that breaks, or is cancelled, is opened again."""

    def __init__(self, owner: TritonBackend) -> None:
        self._owner = owner
        self._requests: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._responses: Any = None
        self._loss: SynthesisError | None = None
        self.task: Task | None = None
        self.opened = asyncio.Event()

    @property
    def free(self) -> bool:
        """Whether it would take a sentence."""
        return self.opened.is_set() and self.task is None

    def submit(self, task: Task) -> None:
        """Send a sentence."""
        self.task = task
        text = triton.InferInput("target_text", [1, 1], "BYTES")
        text.set_data_from_numpy(np.array([[task.text.encode("utf-8")]], dtype=np.object_))
        self._requests.put_nowait(
            {
                "model_name": self._owner.model,
                "inputs": [text],
                # Never empty: models that keep state by request id have mixed the sound of requests without one.
                "request_id": str(uuid.uuid4()),
                "enable_empty_final_response": True,
            }
        )

    def cancel(self, error: SynthesisError) -> None:
        """End the stream, on which Triton cancels its request; the task gets this error."""
        self.opened.clear()
        self._loss = error
        if self._responses is not None:
            self._responses.cancel()

    async def run(self) -> None:
        """Keep a stream open until cancelled."""
        while True:
            self._requests = asyncio.Queue()
            self._loss = None
            try:
                self._responses = self._owner.client.stream_infer(self._feed(self._requests))
                self.opened.set()
                self._owner.on_free()
                async for result, error in self._responses:
                    self._received(result, error)
                self._ended(BackendLostError("Triton closed the stream"))
            except (grpc.RpcError, InferenceServerException) as error:
                self._ended(BackendLostError(f"the stream to Triton broke: {_reason(error)}"))
            except asyncio.CancelledError:
                # A call that was cancelled on purpose raises this too; only the task's own cancellation ends the lane.
                self._loss = self._loss or BackendLostError("the stream was cancelled")
                self._ended(self._loss)
                if (current := asyncio.current_task()) is not None and current.cancelling():
                    raise
            await self._owner.wait_connected()

    def _ended(self, error: SynthesisError) -> None:
        self.opened.clear()
        self._responses = None
        on_purpose = self._loss is not None
        task, self.task = self.task, None
        if not on_purpose:
            self._owner.lost(str(error))
        if task is not None:
            task.fail(self._loss or error)

    def _received(self, result: triton.InferResult, error: InferenceServerException | None) -> None:
        task = self.task
        if task is None:
            return
        if error is not None:
            self._free()
            failure = classify(error.message())
            if isinstance(failure, BackendLostError):
                self._owner.stub_died(str(failure))
            task.fail(failure)
            self._owner.on_free()
            return
        wave = result.as_numpy("waveform")
        if wave is not None and wave.size:
            wave = wave.reshape(-1)
            if defect := audio.defect(wave):
                self._free()
                task.fail(BadAudioError(f"Triton's sound is {defect}"))
                self.cancel(BadAudioError("the rest is not wanted"))
                return
            task.deliver(audio.to_pcm16(wave))
        final = result.get_response().parameters.get("triton_final_response")
        if final is not None and final.bool_param:
            self._free()
            task.finish()
            self._owner.on_free()

    def _free(self) -> None:
        self.task = None

    @staticmethod
    async def _feed(requests: asyncio.Queue[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
        while True:
            yield await requests.get()


class TritonBackend:
    """The backend: lanes, and a supervisor that finds Triton, warms it up, and finds it again after a restart."""

    def __init__(self, options: TritonOptions, on_load: Callable[[float | None], None] = lambda _: None) -> None:
        self._options = options
        self._on_load = on_load
        self._lanes: list[Lane] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._facts: BackendFacts | None = None
        self._trouble: str | None = "Triton is not ready yet"
        self._connected = asyncio.Event()
        self._serving = False
        self._broken: str | None = None
        self._engines = 1
        self._lost = asyncio.Event()
        self.model = options.model
        self.on_free: Callable[[], None] = lambda: None
        self.client: Any = None

    @property
    def facts(self) -> BackendFacts | None:
        """As the model exports them; None until it has been warmed up once."""
        return self._facts

    @property
    def engines(self) -> int:
        """One for each instance of the model."""
        return self._engines

    @property
    def broken(self) -> str | None:
        """A process of the Python backend is dead: Triton 2.51 never starts it again, and stays "ready"."""
        return self._broken

    @property
    def trouble(self) -> str | None:
        """Why nothing can be spoken at the moment."""
        return self._trouble

    async def start(self, on_free: Callable[[], None]) -> None:
        """Begin to look for Triton."""
        self.on_free = on_free
        self.client = triton.InferenceServerClient(self._options.url, channel_args=_CHANNEL)
        self._tasks = [asyncio.create_task(self._supervise(), name="triton")]

    def free_slots(self) -> int:
        """Sentences it would take now."""
        return sum(lane.free for lane in self._lanes) if self._serving else 0

    def submit(self, task: Task) -> None:
        """Give it to a free lane."""
        next(lane for lane in self._lanes if lane.free).submit(task)

    def cancel(self, task: Task) -> None:
        """Triton is told to stop."""
        for lane in self._lanes:
            if lane.task is task:
                lane.cancel(BackendLostError("cancelled"))

    def abandon(self, task: Task) -> None:
        """As `cancel`: a Triton that hangs is restarted by the kubelet, whose probe asks for the self-synthesis."""
        for lane in self._lanes:
            if lane.task is task:
                lane.task = None
                lane.cancel(BackendLostError("abandoned"))

    async def close(self) -> None:
        """Close the streams and the channel."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.client is not None:
            await self.client.close()

    async def wait_connected(self) -> None:
        """Until the supervisor has found a ready Triton."""
        await self._connected.wait()

    def stub_died(self, reason: str) -> None:
        """Triton says that one of its model processes is dead."""
        if self._broken is None:
            _log.error("Triton is broken", extra={"data": {"reason": reason}})
        self._broken = reason

    def lost(self, reason: str) -> None:
        """A stream broke: look for Triton anew."""
        if self._connected.is_set():
            _log.error("Triton lost", extra={"data": {"reason": reason}})
        self._trouble = reason
        self._serving = False
        self._connected.clear()
        self._lost.set()

    async def _supervise(self) -> None:
        while True:
            self._lost.clear()
            await self._wait_ready()
            self._broken = None
            self._connected.set()
            await self._open_lanes()
            if not await self._warm_up():
                await asyncio.sleep(_POLL_SECONDS)
                continue
            facts = await tritonfacts.fetch(self._options.metrics_url)
            self._on_load(facts.load_seconds)
            self._facts = facts
            self._trouble = None
            self._serving = True
            self.on_free()
            await self._lost.wait()

    async def _wait_ready(self) -> None:
        while True:
            try:
                if await self.client.is_model_ready(self.model, client_timeout=_CALL_SECONDS):
                    return
                self._trouble = f"Triton has no ready model {self.model!r}"
            except (grpc.RpcError, InferenceServerException) as error:
                self._trouble = f"Triton does not answer at {self._options.url}: {_reason(error)}"
            await asyncio.sleep(_POLL_SECONDS)

    async def _open_lanes(self) -> None:
        if not self._lanes:
            self._engines = await self._instances()
            count = self._options.streams or DEPTH * self._engines
            self._lanes = [Lane(self) for _ in range(count)]
            self._tasks += [asyncio.create_task(lane.run(), name="triton-lane") for lane in self._lanes]
        for lane in self._lanes:
            await lane.opened.wait()

    async def _instances(self) -> int:
        try:
            answer = await self.client.get_model_config(self.model, client_timeout=_CALL_SECONDS)
        except (grpc.RpcError, InferenceServerException):
            return 1
        return max(1, sum(int(group.count) for group in answer.config.instance_group))

    async def _warm_up(self) -> bool:
        """Speak a few sentences; False when that does not work."""
        for _ in range(self._options.warmup_requests):
            attempt = _Attempt(_WARM_UP_TEXT)
            if not (free := [lane for lane in self._lanes if lane.free]):
                return False
            free[0].submit(attempt)
            try:
                async with asyncio.timeout(60):
                    await attempt.ended
            except (SynthesisError, TimeoutError) as error:
                self._trouble = f"the warm-up failed: {error or type(error).__name__}"
                _log.error("warm-up failed", extra={"data": {"reason": self._trouble}})
                return False
        return True


class _Attempt:
    """A sentence whose sound nobody hears. Implements `backends.Task`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def deliver(self, pcm: bytes | bytearray) -> None:
        """Nobody listens."""

    def finish(self) -> None:
        """Done."""
        if not self.ended.done():
            self.ended.set_result(None)

    def fail(self, error: SynthesisError) -> None:
        """Failed."""
        if not self.ended.done():
            self.ended.set_exception(error)


def classify(message: str) -> SynthesisError:
    """The error that a message on the stream means, which has no status code: our models put its kind in brackets before it."""
    if _DEAD_STUB.search(message):
        return BackendLostError(message[:300])
    match = _TAGGED.search(message)
    if match and (kind := _KINDS.get(match[1])):
        return kind(match[2][:300])
    return SynthesisError(message[:300])


def _reason(error: Exception) -> str:
    if isinstance(error, grpc.RpcError):
        code = getattr(error, "code", lambda: None)()
        return str(getattr(code, "name", code))
    return str(error)[:200]
