"""A lean client for measurements: it shares the CPUs with what it measures, so what it costs counts against that.

Run as a process: `python -m tests.perf.runtime_load`, one JSON job a line on stdin, one JSON result a line on stdout.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from typing import Any, cast

import httptools

WAV_HEADER = 44
SAMPLE_BYTES_PER_SECOND = 48_000


class Connection(asyncio.Protocol):
    """One kept connection that posts one text after the other."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[None] | None = None
        self._started = 0.0
        self._parser = httptools.HttpResponseParser(self)
        self.first: float | None = None
        self.bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or ConnectionError("closed"))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self.bytes += len(body)
        if self.first is None and self.bytes > WAV_HEADER:
            self.first = time.perf_counter() - self._started

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        self._parser = httptools.HttpResponseParser(self)
        assert self._done is not None
        if status == 200:
            self._done.set_result(None)
        else:
            self._done.set_exception(RuntimeError(f"status {status}"))

    async def speak(self, text: str) -> tuple[float, float, float]:
        """Seconds to the first sound, seconds in total, seconds of sound."""
        assert self._transport is not None
        body = json.dumps({"input": text}).encode()
        self._done = asyncio.get_running_loop().create_future()
        self.first, self.bytes, self._started = None, 0, time.perf_counter()
        head = f"POST /v1/audio/speech HTTP/1.1\r\nhost: perf\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)
        await self._done
        total = time.perf_counter() - self._started
        return self.first or total, total, (self.bytes - WAV_HEADER) / SAMPLE_BYTES_PER_SECOND

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()


async def drive(port: int, concurrency: int, texts: Sequence[str]) -> dict[str, Any]:
    """Speak all texts, `concurrency` at a time; gives wall seconds and a row for each request."""
    loop = asyncio.get_running_loop()
    connections = [(await loop.create_connection(Connection, "127.0.0.1", port))[1] for _ in range(concurrency)]
    todo = iter(texts)
    rows: list[tuple[float, float, float]] = []
    errors: list[str] = []

    async def client(connection: Connection) -> None:
        for text in todo:
            try:
                rows.append(await connection.speak(text))
            except (RuntimeError, ConnectionError) as error:
                errors.append(str(error))

    begun = time.perf_counter()
    await asyncio.gather(*(client(connection) for connection in connections))
    wall = time.perf_counter() - begun
    for connection in connections:
        connection.close()
    return {"wall": wall, "rows": rows, "errors": errors}


async def main() -> None:
    """Jobs from stdin."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        job = json.loads(line)
        print(json.dumps(await drive(job["port"], job["concurrency"], job["texts"])), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
