"""A worker process: loads the embedded voice, then speaks the sentences that come through a socket, one after the other.

Started by `backends.onnxruntime` as `python -m cosyvoice_runtime.backends.worker FD VOICE THREADS WARMUP [ENGINE]`. It ends when the
gateway closes the socket or dies, so that no worker outlives its gateway.
"""

from __future__ import annotations

import gc
import json
import signal
import socket
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cosyvoice_runtime.backends.wire import Kind, Parser, frame, send
from cosyvoice_runtime.errors import BadAudioError, SynthesisError, TextRefusedError

if TYPE_CHECKING:
    from cosyvoice_runtime.voice import EmbeddedVoice

_READ_BYTES = 65536


class GatewayGoneError(Exception):
    """The gateway closed the socket."""


class Inbox:
    """Sentences that wait in this process; cancellations take them out."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._parser = Parser()
        self._waiting: deque[tuple[int, str]] = deque()
        self._cancelled: set[int] = set()
        self._current: int | None = None

    def next(self) -> tuple[int, str]:
        """Wait for the next sentence that is still wanted."""
        self._current = None
        self._cancelled.clear()
        self._read(wait=False)
        while not self._waiting:
            self._read(wait=True)
        self._current, sentence = self._waiting.popleft()
        return self._current, sentence

    def cancelled(self) -> bool:
        """Whether the sentence that is being spoken is no longer wanted."""
        self._read(wait=False)
        return self._current in self._cancelled

    def _read(self, *, wait: bool) -> None:
        try:
            data = self._sock.recv(_READ_BYTES, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if not data:
            raise GatewayGoneError
        for kind, number, payload in self._parser.feed(data):
            if kind == Kind.SPEAK:
                self._waiting.append((number, payload.decode("utf-8")))
            elif number == self._current:
                self._cancelled.add(number)
            else:
                self._drop(number)

    def _drop(self, number: int) -> None:
        kept = [item for item in self._waiting if item[0] != number]
        if len(kept) < len(self._waiting):
            self._waiting = deque(kept)
            self._sock.sendall(frame(Kind.LAST, number))


@dataclass(frozen=True)
class Arguments:
    """The command line after the socket."""

    voice: str
    threads: int
    warmup: int
    engine: Path | None

    @classmethod
    def parse(cls, voice: str, threads: str, warmup: str, engine: str | None = None) -> Arguments:
        """From their texts."""
        return cls(voice, int(threads), int(warmup), None if engine is None else Path(engine))


def load(wanted: Arguments, started: float) -> tuple[EmbeddedVoice, bytes]:
    """Load and warm up; gives the voice and the READY payload. The load time includes importing the runtime libraries."""
    from cosyvoice_runtime.voice import EmbeddedVoice, VoiceFacts, embedded  # noqa: PLC0415 - timed, and errors are reported

    graphs = None if wanted.engine is None else embedded(wanted.voice).within(wanted.engine)
    loaded = EmbeddedVoice(wanted.voice, wanted.threads, graphs=graphs)
    load_seconds = time.perf_counter() - started
    warmup_seconds = loaded.warm_up(wanted.warmup)
    # A hundred megabytes of lexicon live as long as the process; the collector need not look through them again and again.
    gc.freeze()
    facts = VoiceFacts(wanted.voice, loaded.providers, round(load_seconds, 4), round(warmup_seconds, 4))
    return loaded, json.dumps(asdict(facts)).encode()


def speak(voice: EmbeddedVoice, inbox: Inbox, sock: socket.socket, number: int, sentence: str) -> None:
    """Speak one sentence and send its PCM piece by piece; raises BadAudioError when a piece is not sound."""
    from cosyvoice_runtime import audio  # noqa: PLC0415 - numpy is part of the timed load

    pieces = voice.pieces(sentence)
    for left, piece in zip(range(len(pieces) - 1, -1, -1), pieces, strict=True):
        if inbox.cancelled():
            break
        wave = voice.synthesize(piece)
        if defect := audio.defect(wave):
            raise BadAudioError(f"a piece of {len(piece)} phonemes is {defect}")
        send(sock, Kind.PCM if left else Kind.LAST, number, audio.samples16(wave).data)
        if not left:
            return
    sock.sendall(frame(Kind.LAST, number))


def serve(voice: EmbeddedVoice, sock: socket.socket) -> None:
    """Speak until the gateway goes. An error in one sentence is reported, and the next one is spoken."""
    inbox = Inbox(sock)
    while True:
        number, sentence = inbox.next()
        try:
            speak(voice, inbox, sock, number, sentence)
        except (GatewayGoneError, OSError):
            raise
        except (BadAudioError, TextRefusedError) as error:
            _report(sock, number, error.kind, str(error))
        except Exception as error:  # noqa: BLE001 - one text must never take the worker down
            # The type alone: a message could hold the text, and this ends up in logs.
            _report(sock, number, SynthesisError.kind, type(error).__name__)


def _report(sock: socket.socket, number: int, kind: str, message: str) -> None:
    sock.sendall(frame(Kind.FAILED, number, json.dumps({"kind": kind, "message": message}).encode()))


def main(arguments: list[str]) -> int:
    """Entry point."""
    started = time.perf_counter()
    descriptor, *rest = arguments
    # The gateway decides when a worker ends: a signal to the whole process group must not cut a stream that is draining.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sock = socket.socket(fileno=int(descriptor))
    try:
        try:
            voice, ready = load(Arguments.parse(*rest), started)
        except Exception as error:  # noqa: BLE001 - the reason must reach the status, whatever it is
            sock.sendall(frame(Kind.BROKEN, 0, f"{type(error).__name__}: {error}".encode()[:2000]))
            return 1
        sock.sendall(frame(Kind.READY, 0, ready))
        serve(voice, sock)
    except (GatewayGoneError, OSError):
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
