"""`POST /v1/audio/speech`: from a JSON body to sound that leaves sentence by sentence."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import time
from dataclasses import dataclass

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

_MEDIA_TYPES = {"wav": b"audio/wav", "pcm": b"audio/pcm"}
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


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
    """Serves speech requests of one gateway. A plain ASGI application: half of a request's cost here is what is around it."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        settings = gateway.settings
        self._headers = [
            (b"x-cosyvoice-tier", settings.tier.encode()),
            (b"x-cosyvoice-pool", settings.pool.encode()),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        record = Record(request_id(scope), time.perf_counter())
        try:
            wanted, units = self._accept(await self._body(receive), record)
        except ApiError as error:
            await self._refuse(error, record, send)
            self._report(record)
            return
        stream = self._gateway.dispatcher.open(units)
        watcher = asyncio.create_task(_hang_up(receive, stream))
        try:
            await self._speak(stream, wanted, record, send)
        except ClientGoneError as error:
            record.error = error.kind
        except SynthesisError as error:
            record.error = error.kind
            # The status code is out already: only a broken body can tell the listener that the rest is missing.
            raise
        except asyncio.CancelledError:
            record.error = "cancelled"
            raise
        finally:
            stream.close()
            watcher.cancel()
            self._report(record)

    async def _body(self, receive: Receive) -> bytes:
        limit = self._gateway.settings.max_body_bytes
        parts: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ApiError(499, "The client hung up.", ClientGoneError.kind)
            part: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            size += len(part)
            if size > limit:
                advice = f"The body is larger than {limit} bytes; send the text in parts."
                raise ApiError(413, advice, "body_too_large")
            parts.append(part)
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
            limit = settings.max_input_chars
            message = f"input has {len(wanted.input)} characters, at most {limit} are allowed; send it in parts."
            raise ApiError(400, message, "input_too_long", "input")
        units = texts.units(texts.clean(wanted.input))
        if not units:
            raise nothing_to_speak()
        record.sentences = len(units)
        if gateway.backend.facts is None:
            message = "The model is still loading; try again."
            raise ApiError(503, message, "model_not_ready", kind="server_error", retry_after=1)
        if gateway.dispatcher.streams >= settings.max_streams:
            message = f"{settings.max_streams} requests are in progress here, no more are taken; try again."
            raise ApiError(429, message, "too_many_streams", kind="rate_limit_error", retry_after=1)
        gateway.metrics.characters.inc(record.characters)
        return wanted, units

    async def _speak(self, stream: Stream, wanted: SpeechRequest, record: Record, send: Send) -> None:
        """Send the sound; an error before any of it is there has its own status code."""
        try:
            first = await self._first(stream, wanted)
        except ClientGoneError:
            raise
        except SynthesisError as error:
            await self._refuse(_answer(error), record, send)
            return
        record.first_audio = time.perf_counter() - record.started
        whole = stream.exhausted
        start = b""
        if wanted.response_format == "wav":
            start = audio.wav_header(len(first) if whole else None)
        headers = self._success(record, len(start) + len(first) if whole else None)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if start:
            # On its own: put before the sound it would cost a copy of that.
            await send({"type": "http.response.body", "body": start, "more_body": True})
        await self._send_sound(first, record, send, more=not whole)
        if whole:
            return
        while (chunk := await stream.next_chunk()) is not None:
            await self._send_sound(chunk, record, send, more=True)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_sound(self, pcm: bytes | bytearray, record: Record, send: Send, *, more: bool) -> None:
        """Send some sound; a client that leaves it unread for too long has gone, or it would hold its place for ever."""
        patience = self._gateway.settings.slow_reader_timeout
        try:
            async with asyncio.timeout(patience):
                await send({"type": "http.response.body", "body": pcm, "more_body": more})
        except TimeoutError:
            raise ClientGoneError(f"the client read nothing for {patience:g} s") from None
        record.sent_bytes += len(pcm)

    async def _first(self, stream: Stream, wanted: SpeechRequest) -> bytes | bytearray:
        """The first sound; all of it when the request wants no stream."""
        seconds = self._gateway.settings.synthesis_timeout
        error = SynthesisTimeoutError(f"no sound within {seconds:g} s")
        timer = asyncio.get_running_loop().call_later(seconds, stream.abort, error)
        try:
            first = await stream.next_chunk() or b""
        finally:
            timer.cancel()
        if wanted.stream:
            return first
        parts = [first]
        while (chunk := await stream.next_chunk()) is not None:
            parts.append(chunk)
        return b"".join(parts)

    def _success(self, record: Record, length: int | None) -> list[tuple[bytes, bytes]]:
        headers = [
            (b"content-type", _MEDIA_TYPES[record.format]),
            (b"x-request-id", record.request_id.encode()),
            *self._headers,
        ]
        if length is not None:
            headers.append((b"content-length", str(length).encode()))
        return headers

    async def _refuse(self, error: ApiError, record: Record, send: Send) -> None:
        record.status, record.error = error.status, error.code
        body = json.dumps(error.body()).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"x-request-id", record.request_id.encode()),
        ]
        if error.retry_after is not None:
            headers.append((b"retry-after", str(error.retry_after).encode()))
        await send({"type": "http.response.start", "status": error.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _report(self, record: Record) -> None:
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


async def _hang_up(receive: Receive, stream: Stream) -> None:
    """Wait until the client has gone, then free the workers."""
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.abort(ClientGoneError("the client hung up"))


def request_id(scope: Scope) -> str:
    """The caller's, when it is a sane one, else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and (given := _REQUEST_ID.fullmatch(value)):
            return str(given.group(), "ascii")
    return os.urandom(16).hex()


def nothing_to_speak() -> ApiError:
    """The text has no letter, digit or symbol that this voice can say."""
    message = "input holds nothing that this voice can say; write words, in English for this voice."
    return ApiError(400, message, NothingToSpeakError.kind, "input")


def _answer(error: SynthesisError) -> ApiError:
    if isinstance(error, NothingToSpeakError):
        return nothing_to_speak()
    if isinstance(error, TextRefusedError):
        return ApiError(400, f"The backend refuses this text: {error}.", error.kind, "input")
    if isinstance(error, SynthesisTimeoutError):
        return ApiError(
            504, "The text was not spoken in time; try again.", error.kind, kind="server_error", retry_after=1
        )
    return ApiError(502, "The text could not be spoken; try again.", error.kind, kind="server_error", retry_after=1)
