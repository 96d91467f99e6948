"""PCM, WAV headers, and the checks of sound."""

from __future__ import annotations

import io
import math
import struct
import wave

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime import audio


def tone(seconds: float = 0.1, level: float = 0.5) -> np.ndarray:
    time = np.arange(int(seconds * audio.SAMPLE_RATE)) / audio.SAMPLE_RATE
    return (level * np.sin(2 * np.pi * 440 * time)).astype(np.float32)


def test_a_whole_wav_is_read_by_the_standard_library() -> None:
    pcm = audio.to_pcm16(tone())

    with wave.open(io.BytesIO(audio.wav_header(len(pcm)) + pcm)) as reader:
        assert (reader.getframerate(), reader.getnchannels(), reader.getsampwidth()) == (24_000, 1, 2)
        assert reader.readframes(reader.getnframes()) == pcm


def test_a_streamed_wav_says_that_its_length_is_unknown_and_is_still_read() -> None:
    pcm = audio.to_pcm16(tone())
    header = audio.wav_header()

    assert len(header) == 44
    assert struct.unpack_from("<I", header, 4)[0] == struct.unpack_from("<I", header, 40)[0] == 0xFFFF_FFFF
    with wave.open(io.BytesIO(header + pcm)) as reader:
        assert reader.readframes(len(pcm) // 2) == pcm


@given(st.lists(st.floats(-3, 3, width=32), max_size=50))
def test_pcm_has_two_bytes_a_sample_and_clips_what_is_too_loud(samples: list[float]) -> None:
    pcm = np.frombuffer(audio.to_pcm16(np.asarray(samples, np.float32)), "<i2")

    assert len(pcm) == len(samples)
    for sample, value in zip(samples, pcm, strict=True):
        assert abs(int(value) - max(-1.0, min(1.0, sample)) * 32767) <= 1


def test_speech_has_no_defect() -> None:
    assert audio.defect(tone()) is None


@pytest.mark.parametrize(
    ("wave_", "defect"),
    [
        (np.zeros(0, np.float32), "empty"),
        (np.zeros(2400, np.float32), "silent"),
        (tone(level=1e-4), "silent"),
        (np.full(2400, np.nan, np.float32), "not finite"),
        (np.where(np.arange(2400) == 7, np.inf, tone()), "not finite"),
    ],
)
def test_what_is_no_speech_is_named(wave_: np.ndarray, defect: str) -> None:
    assert audio.defect(wave_.astype(np.float32)) == defect


def test_loudness_of_a_full_scale_tone_is_three_decibels_below_full_scale() -> None:
    assert audio.dbfs(audio.to_pcm16(tone(level=1.0))) == pytest.approx(-3.01, abs=0.02)
    assert audio.dbfs(bytes(100)) == -math.inf


def test_seconds_follow_from_bytes() -> None:
    assert audio.seconds(48_000) == 1.0
