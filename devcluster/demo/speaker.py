"""A client that never stops asking for speech, and writes down how each request went."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
import wave
from collections.abc import AsyncIterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import aiohttp
import numpy as np

SAMPLE_RATE = 24_000
"""Hz; the rate of every CosyVoice voice from version 2 on, and of the embedded one."""

SILENCE_DBFS = -40.0
CHARACTERS_PER_SECOND = 14.0
"""How fast English is read aloud; half or twice as fast is still plausible."""

TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "Speech goes on while the graphics cards are away.",
    "Good morning, and welcome to the demonstration. This sentence follows the first one.",
    "Seven zebras quietly watch the ridge at half past seven in the evening.",
    "When the hardware comes back, so does the first tier. Nobody noticed the difference.",
)


@dataclass(frozen=True)
class Utterance:
    """One request and its answer.

    Attributes:
        text: What was to be said.
        started: Unix time, seconds.
        first_audio: Seconds to the first piece of audio; None when there was none.
        total: Seconds to the end of the answer.
        tier: Tier that answered, from the response header.
        wav: The answer.
        error: What went wrong; None when nothing did.
    """

    text: str
    started: float
    first_audio: float | None
    total: float
    tier: str
    wav: bytes
    error: str | None


def sound_fault(text: str, wav: bytes) -> str | None:
    """Say what is wrong with a WAV answer, if anything: format, finite samples, loudness, and a length that fits the text."""
    try:
        with wave.open(BytesIO(wav)) as reader:
            if (reader.getframerate(), reader.getnchannels(), reader.getsampwidth()) != (SAMPLE_RATE, 1, 2):
                return f"not 24 kHz mono 16 bit: {reader.getparams()}"
            samples = np.frombuffer(reader.readframes(10**9), dtype="<i2").astype(np.float64) / 32768
    except (wave.Error, EOFError) as error:
        return f"not a WAV file: {error}"
    if not samples.size:
        return "no sample"
    loudness = 10 * np.log10(np.mean(samples**2) + 1e-12)
    if loudness <= SILENCE_DBFS:
        return f"silent: {loudness:.1f} dBFS"
    seconds, expected = samples.size / SAMPLE_RATE, len(text) / CHARACTERS_PER_SECOND
    if not expected / 2 <= seconds <= expected * 2:
        return f"{seconds:.1f} s of audio for {len(text)} characters"
    return None


async def speak(session: aiohttp.ClientSession, url: str, text: str) -> Utterance:
    """Ask once for ``text`` and read the answer to its end. Never raises for a failed request: the failure is the result."""
    started, begun = time.time(), time.perf_counter()
    first, tier, body = None, "", bytearray()
    error: str | None = None
    try:
        request = {"model": "demo", "input": text, "voice": "heart", "response_format": "wav"}
        async with session.post(f"{url}/v1/audio/speech", json=request) as answer:
            tier = answer.headers.get("x-cosyvoice-tier", "")
            async for piece in answer.content.iter_any():
                # A WAV header alone is no audio yet.
                if first is None and len(body) + len(piece) > 44:
                    first = time.perf_counter() - begun
                body += piece
            if answer.status != 200:
                error = f"HTTP {answer.status}: {bytes(body[:200]).decode(errors='replace')}"
    except (aiohttp.ClientError, TimeoutError, OSError) as failure:
        error = f"{type(failure).__name__}: {failure}"
    total = time.perf_counter() - begun
    error = error or sound_fault(text, bytes(body))
    return Utterance(text, started, first, total, tier, bytes(body), error)


class Speaker:
    """Several clients at once, each asking again as soon as its answer has ended."""

    def __init__(self, url: str, clients: int = 2, pause: float = 0.15) -> None:
        self.utterances: list[Utterance] = []
        self._url, self._clients, self._pause = url, clients, pause
        self._texts = itertools.cycle(TEXTS)

    @contextlib.asynccontextmanager
    async def speaking(self) -> AsyncIterator[Speaker]:
        """Speak while the context lasts; at its end running requests are finished, not cut."""
        stop = asyncio.Event()
        # A connection for each request: what is measured is the Service, not one long-lived connection to one pod.
        connector = aiohttp.TCPConnector(force_close=True)
        timeout = aiohttp.ClientTimeout(total=60, sock_connect=10)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            tasks = [asyncio.create_task(self._client(session, stop)) for _ in range(self._clients)]
            try:
                yield self
            finally:
                stop.set()
                await asyncio.gather(*tasks)

    async def _client(self, session: aiohttp.ClientSession, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self.utterances.append(await speak(session, self._url, next(self._texts)))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._pause)


def save(utterance: Utterance, path: Path) -> None:
    """Write the answer as a file that a player opens: a streamed WAV can't know its length, so the header is written anew."""
    with wave.open(BytesIO(utterance.wav)) as reader:
        frames = reader.readframes(10**9)
    with wave.open(str(path), "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(SAMPLE_RATE)
        writer.writeframes(frames)
