"""PCM and WAV: conversion, headers, and the checks that what a backend gave is sound and not noise or silence."""

from __future__ import annotations

import math
import struct

import numpy as np
import numpy.typing as npt

SAMPLE_RATE = 24_000
SAMPLE_BYTES = 2
# Below this a piece is silence: -60 dBFS. Speech pieces of the embedded voice lie between -26 and -18 dBFS.
SILENCE_RMS = 1e-3
_UNKNOWN_SIZE = 0xFFFF_FFFF

Wave = npt.NDArray[np.float32]


def to_pcm16(wave: Wave) -> bytes:
    """Little-endian 16-bit PCM of a float32 wave [samples] in -1..1; what is outside is clipped."""
    return samples16(wave.copy()).tobytes()


def samples16(wave: Wave) -> npt.NDArray[np.int16]:
    """As `to_pcm16`, but gives samples, and overwrites the wave: a sentence less to allocate counts at this rate."""
    np.multiply(wave, np.float32(32767.0), out=wave)
    np.clip(wave, np.float32(-32767.0), np.float32(32767.0), out=wave)
    return wave.astype("<i2")


def defect(wave: Wave) -> str | None:
    """Why a float32 wave [samples] is not speech, or None.

    One pass: the sum of squares is not finite when any sample is not.
    """
    if wave.size == 0:
        return "empty"
    power = float(np.dot(wave, wave)) / wave.size
    if not math.isfinite(power):
        return "not finite"
    return "silent" if math.sqrt(power) < SILENCE_RMS else None


def dbfs(pcm: bytes | bytearray) -> float:
    """Loudness (RMS) of 16-bit PCM in decibels below full scale; -inf for silence."""
    samples = np.frombuffer(pcm[: len(pcm) // 2 * 2], "<i2").astype(np.float64) / 32768.0
    rms = math.sqrt(float(np.mean(samples * samples))) if samples.size else 0.0
    return 20 * math.log10(rms) if rms > 0 else -math.inf


def wav_header(data_bytes: int | None = None) -> bytes:
    """44-byte header of a mono 24 kHz 16-bit WAV.

    Without `data_bytes` it is a stream of unknown length: both sizes are 0xFFFFFFFF, which players and OpenAI's own
    service use for streams.
    """
    data = _UNKNOWN_SIZE if data_bytes is None else data_bytes
    riff = _UNKNOWN_SIZE if data_bytes is None else 36 + data_bytes
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        riff,
        b"WAVE",
        b"fmt ",
        16,
        1,
        1,
        SAMPLE_RATE,
        SAMPLE_RATE * SAMPLE_BYTES,
        SAMPLE_BYTES,
        8 * SAMPLE_BYTES,
        b"data",
        data,
    )


def seconds(data_bytes: int) -> float:
    """Length of so many bytes of PCM."""
    return data_bytes / (SAMPLE_RATE * SAMPLE_BYTES)
