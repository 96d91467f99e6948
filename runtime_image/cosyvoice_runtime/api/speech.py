"""`POST /v1/audio/speech`: from a JSON body to sound that leaves sentence by sentence."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from dataclasses import dataclass, field

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cosyvoice_runtime import audio
from cosyvoice_runtime import text as texts
from cosyvoice_runtime.api.schemas import SpeechRequest, parse
from cosyvoice_runtime.dispatch import Stream
from cosyvoice_runtime.errors import (
    ApiError,
    NothingToSpeakError,
    SynthesisError,
    SynthesisTimeoutError,
    TextRefusedError,
)
from cosyvoice_runtime.gateway import Gateway

_log = logging.getLogger(__name__)

_MEDIA_TYPES = {"wav": "audio/wav", "pcm": "audio/pcm"}
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

_PATIENCE = 60.0
"""Seconds that a client may leave a piece of sound unread: clients that never read would hold all streams of the pod."""


class ClientGoneError(SynthesisError):
    """The client hung up."""

    kind = "client_gone"


@dataclass(slots=True)
class Record:
    """What is known of one request, for its headers, its metrics and its line in the log."""

    request_id: str
    started: float
    format: str = ""
    characters: int = 0
    sentences: int = 0
    sent_bytes: int = 0
    first_audio: float | None = None
    error: str | None = None
    status: int = 200


class SpeechEndpoint:
    """Serves speech requests of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        settings = gateway.settings
        self._headers = [
            (b"x-cosyvoice-tier", settings.tier.encode()),
            (b"x-cosyvoice-pool", settings.pool.encode()),
        ]

    async def __call__(self, request: Request) -> Response:
        """The response, once the first sound is there; an error before that has its own status code."""
        record = Record(request_id(request), time.perf_counter())
        try:
            wanted, units = self._accept(await self._body(request), record)
        except ApiError as error:
            self._refused(record, error)
            raise
        stream = self._gateway.dispatcher.open(units)
        response = SpeechResponse(self, stream, wanted, record)
        response.watcher = asyncio.create_task(_hang_up(request.receive, stream))
        prepared = False
        try:
            await response.prepare()
            prepared = True
        except SynthesisError as error:
            answer = _answer(error)
            record.error, record.status = error.kind, answer.status
            self.report(record)
            raise answer from None
        finally:
            if not prepared:
                response.end()
        return response

    async def _body(self, request: Request) -> bytes:
        limit = self._gateway.settings.max_body_bytes
        parts: list[bytes] = []
        size = 0
        try:
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise ApiError(
                        413, f"The body is larger than {limit} bytes; send the text in parts.", "body_too_large"
                    )
                parts.append(part)
        except ClientDisconnect:
            raise ApiError(499, "The client hung up.", "client_gone") from None
        return b"".join(parts)

    def _accept(self, body: bytes, record: Record) -> tuple[SpeechRequest, list[str]]:
        gateway = self._gateway
        settings = gateway.settings
        wanted = parse(body)
        record.format, record.characters = wanted.response_format, len(wanted.input)
        if wanted.model is not None and wanted.model != settings.model:
            message = f"The model {wanted.model[:100]!r} is not served here; write {settings.model!r}."
            raise ApiError(404, message, "model_not_found", "model")
        if wanted.voice is not None and wanted.voice != settings.voice:
            message = f"There is no voice {wanted.voice[:100]!r}; write {settings.voice!r}."
            raise ApiError(400, message, "voice_not_found", "voice")
        if len(wanted.input) > settings.max_input_chars:
            message = f"input has {len(wanted.input)} characters, at most {settings.max_input_chars} are allowed; send it in parts."
            raise ApiError(400, message, "input_too_long", "input")
        units = texts.units(texts.clean(wanted.input))
        if not units:
            raise nothing_to_speak()
        record.sentences = len(units)
        if gateway.backend.facts is None:
            raise ApiError(
                503, "The model is still loading; try again.", "model_not_ready", kind="server_error", retry_after=1
            )
        if gateway.dispatcher.streams >= settings.max_streams:
            message = f"{settings.max_streams} requests are in progress here, no more are taken; try again."
            raise ApiError(429, message, "too_many_streams", kind="rate_limit_error", retry_after=1)
        gateway.metrics.characters.inc(record.characters)
        return wanted, units

    def _refused(self, record: Record, error: ApiError) -> None:
        record.status, record.error = error.status, error.code
        self.report(record)

    def headers(self, record: Record) -> list[tuple[bytes, bytes]]:
        """Headers of a response with sound."""
        return [
            (b"content-type", _MEDIA_TYPES[record.format].encode()),
            (b"x-request-id", record.request_id.encode()),
            *self._headers,
        ]

    def first_audio_deadline(self) -> float:
        """Seconds a listener waits for the first sound at most."""
        return self._gateway.settings.synthesis_timeout

    def report(self, record: Record) -> None:
        """Count the request and write its line."""
        metrics = self._gateway.metrics
        total = time.perf_counter() - record.started
        length = audio.seconds(record.sent_bytes)
        metrics.requests.labels(str(record.status)).inc()
        if record.error == ClientGoneError.kind:
            metrics.hangups.inc()
        elif record.error is not None:
            metrics.errors.labels(record.error).inc()
        elif record.first_audio is not None:
            metrics.first_audio.observe(record.first_audio)
            metrics.total.observe(total)
            metrics.rtf.observe(total / length if length else 0.0)
        metrics.audio_seconds.inc(length)
        if _log.isEnabledFor(logging.INFO):
            data = {
                "request_id": record.request_id,
                "status": record.status,
                "format": record.format,
                "characters": record.characters,
                "sentences": record.sentences,
                "audio_seconds": round(length, 3),
                "first_audio_ms": None if record.first_audio is None else round(record.first_audio * 1e3, 1),
                "total_ms": round(total * 1e3, 1),
                "error": record.error,
            }
            _log.info("speech", extra={"data": data})


@dataclass(slots=True, eq=False)
class SpeechResponse(Response):
    """Sends what a stream gives. Closes the stream, whatever happens."""

    endpoint: SpeechEndpoint
    stream: Stream
    wanted: SpeechRequest
    record: Record
    watcher: asyncio.Task[None] | None = None
    first: bytes = field(default=b"", init=False)
    complete: bool = field(default=False, init=False)
    background: None = field(default=None, init=False)

    async def prepare(self) -> None:
        """Wait for the first sound; for all of it when the request wants no stream."""
        timer = asyncio.get_running_loop().call_later(self.endpoint.first_audio_deadline(), self._too_late)
        try:
            self.first = await self.stream.next_chunk() or b""
        finally:
            timer.cancel()
        if not self.wanted.stream:
            parts = [self.first]
            while (chunk := await self.stream.next_chunk()) is not None:
                parts.append(chunk)
            self.first = b"".join(parts)
        self.complete = self.stream.exhausted
        self.record.first_audio = time.perf_counter() - self.record.started

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """ASGI."""
        try:
            await self._send(send)
        except ClientGoneError as error:
            self.record.error = error.kind
        except SynthesisError as error:
            self.record.error = error.kind
            # The status code is out already: only a broken body can tell the listener that the rest is missing.
            raise
        except asyncio.CancelledError:
            self.record.error = "cancelled"
            raise
        finally:
            self.end()
            self.endpoint.report(self.record)

    async def _send(self, send: Send) -> None:
        headers = self.endpoint.headers(self.record)
        body = self.first
        if self.wanted.response_format == "wav":
            body = audio.wav_header(len(body) if self.complete else None) + body
        if self.complete:
            headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": not self.complete})
        self.record.sent_bytes += len(self.first)
        if self.complete:
            return
        while (chunk := await self.stream.next_chunk()) is not None:
            try:
                async with asyncio.timeout(_PATIENCE):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except TimeoutError as error:
                raise ClientGoneError("the client stopped reading") from error
            self.record.sent_bytes += len(chunk)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def end(self) -> None:
        """Free the stream and stop watching the client."""
        self.stream.close()
        if self.watcher is not None:
            self.watcher.cancel()

    def _too_late(self) -> None:
        self.stream.abort(SynthesisTimeoutError(f"no sound within {self.endpoint.first_audio_deadline():g} s"))


async def _hang_up(receive: Receive, stream: Stream) -> None:
    """Wait until the client has gone, then free the workers."""
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.abort(ClientGoneError("the client hung up"))


def request_id(request: Request) -> str:
    """The caller's, when it is a sane one, else a new one."""
    given = request.headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else str(uuid.uuid4())


def nothing_to_speak() -> ApiError:
    """The text has no letter, digit or symbol that this voice can say."""
    message = "input holds nothing that this voice can say; write words, in English for this voice."
    return ApiError(400, message, NothingToSpeakError.kind, "input")


def _answer(error: SynthesisError) -> ApiError:
    if isinstance(error, NothingToSpeakError):
        return nothing_to_speak()
    if isinstance(error, TextRefusedError):
        return ApiError(400, f"The backend refuses this text: {error}.", error.kind, "input")
    if isinstance(error, ClientGoneError):
        return ApiError(499, "The client hung up.", error.kind)
    if isinstance(error, SynthesisTimeoutError):
        return ApiError(
            504, "The text was not spoken in time; try again.", error.kind, kind="server_error", retry_after=1
        )
    return ApiError(502, "The text could not be spoken; try again.", error.kind, kind="server_error", retry_after=1)
