"""What counts as speech in these tests, and the texts that are spoken."""

from __future__ import annotations

import io
import wave

import numpy as np

from cosyvoice_runtime import audio

SHORT = "Good morning, and welcome to the test of speech."
LONG = (
    "Good morning, my friends, and welcome to the test. The quick brown fox jumps over the lazy dog. "
    "She sells sea shells by the sea shore. It was a bright cold day in April, and the clocks were striking. "
)
# Characters of English spoken in a second.
RATE = 15.0


def samples(body: bytes) -> np.ndarray:
    """Samples of a WAV, also of a streamed one whose header has no length."""
    with wave.open(io.BytesIO(body)) as reader:
        assert (reader.getframerate(), reader.getnchannels(), reader.getsampwidth()) == (24_000, 1, 2)
    return np.frombuffer(body[44:], "<i2")


def assert_speech(body: bytes, text: str) -> None:
    """24 kHz mono, loud enough, neither clipped nor stuck, and of a plausible length for the text."""
    pcm = samples(body)
    seconds = pcm.size / audio.SAMPLE_RATE
    assert audio.dbfs(pcm.tobytes()) > -40
    assert len(text) / RATE / 2 < seconds < len(text) / RATE * 2
    assert np.mean(np.abs(pcm) == 32767) < 0.001
    # A second of speech is never one tone or one value.
    assert len(np.unique(pcm[:24_000])) > 200
