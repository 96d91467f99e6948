"""The frames between the gateway and a worker process, over one Unix socket: a fixed header and a payload.

A stream socket with frames, since it tells at once when the other side dies, needs no file in /dev/shm (64 MB in a pod), and
carries PCM at a cost that is small beside the synthesis: 150 kB take about 0.1 ms, a sentence of that length 25 ms.
"""

from __future__ import annotations

import enum
import socket
import struct
from collections.abc import Iterator

HEADER = struct.Struct("<BxxxII")


class Kind(enum.IntEnum):
    """What a frame says. To the worker: SPEAK, CANCEL. From it: the others."""

    SPEAK = 1  # payload: the sentence in UTF-8
    CANCEL = 2
    READY = 3  # payload: JSON of VoiceFacts
    PCM = 4  # payload: PCM, more follows
    LAST = 5  # payload: PCM or nothing; the sentence is done
    FAILED = 6  # payload: JSON {kind, message}
    BROKEN = 7  # payload: why the model did not load, in words; the worker exits


def frame(kind: Kind, number: int, payload: bytes = b"") -> bytes:
    """One frame as bytes."""
    return HEADER.pack(kind, number, len(payload)) + payload


def send(sock: socket.socket, kind: Kind, number: int, payload: memoryview) -> None:
    """Send one frame without putting its parts together first, which would copy the payload."""
    rest: list[memoryview] = [memoryview(HEADER.pack(kind, number, payload.nbytes)), payload.cast("B")]
    while rest:
        sent = sock.sendmsg(rest)
        while rest and sent >= rest[0].nbytes:
            sent -= rest.pop(0).nbytes
        if rest:
            rest[0] = rest[0][sent:]


class Parser:
    """Turns what a socket gives, cut anywhere, into frames; a large payload is copied once."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._payload = bytearray()
        self._filled = 0
        self._kind = 0
        self._number = 0
        self._in_payload = False

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytearray]]:
        """The frames that are complete with this data: kind, number, payload."""
        view = memoryview(data)
        while view or self._complete:
            if self._complete:
                self._in_payload = False
                yield self._kind, self._number, self._payload
            elif self._in_payload:
                part = view[: len(self._payload) - self._filled]
                self._payload[self._filled : self._filled + len(part)] = part
                self._filled += len(part)
                view = view[len(part) :]
            else:
                part = view[: HEADER.size - len(self._head)]
                self._head += part
                view = view[len(part) :]
                self._begin()

    @property
    def _complete(self) -> bool:
        return self._in_payload and self._filled == len(self._payload)

    def _begin(self) -> None:
        """Make room for the payload, once the header is whole."""
        if len(self._head) == HEADER.size:
            self._kind, self._number, length = HEADER.unpack(self._head)
            self._head.clear()
            self._payload = bytearray(length)
            self._filled = 0
            self._in_payload = True
