"""The yardstick: the same voice called in-process, without any server, in two processes with one thread each.

It is the library as its own users call it, `Hibari(threads=1).stream(text)`.

Run as a process: `python -m tests.perf.runtime_inprocess`, one JSON job a line on stdin (`{"text": ...}`), one JSON result a line.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import psutil

SAMPLE_RATE = 24_000


def serve() -> None:
    """Speak what comes on stdin, sentence by sentence as a caller of the library would, and tell how long it took."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    from hibari import Hibari

    voice = Hibari(threads=1)
    for text in ("Warm up.", "This is a longer warm up sentence, with 1,250 numbers in it.", "Zxqvorbl is no word."):
        voice(text)
    print("ready", flush=True)
    for line in sys.stdin:
        begun = time.perf_counter()
        first, samples = None, 0
        for wave in voice.stream(json.loads(line)):
            samples += wave.size
            first = first or time.perf_counter() - begun
        print(json.dumps((first, time.perf_counter() - begun, samples / SAMPLE_RATE)), flush=True)


class Turnstile:
    """Hands out what is free in the order of asking: a plain queue lets those in that are just passing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: deque[subprocess.Popen[str]] = deque()
        self._waiting: deque[queue.SimpleQueue[subprocess.Popen[str]]] = deque()

    def get(self) -> subprocess.Popen[str]:
        """Wait for one."""
        mine: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()
        with self._lock:
            if self._free:
                return self._free.popleft()
            self._waiting.append(mine)
        return mine.get()

    def put(self, process: subprocess.Popen[str]) -> None:
        """Give one back."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().put(process)
            else:
                self._free.append(process)


class InProcess:
    """Two such processes behind a queue: a caller takes the one that is free first."""

    def __init__(self, processes: int = 2) -> None:
        command = [sys.executable, "-m", "tests.perf.runtime_inprocess"]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(processes)
        ]
        self._free = Turnstile()
        for process in self._processes:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready"
            self._free.put(process)

    def drive(self, concurrency: int, texts: Sequence[str]) -> dict[str, Any]:
        """Speak all texts, `concurrency` at a time; gives wall seconds and a row for each text, waiting included."""
        todo: queue.SimpleQueue[str] = queue.SimpleQueue()
        for text in texts:
            todo.put(text)
        rows: list[tuple[float, float, float]] = []

        def caller() -> None:
            while True:
                try:
                    text = todo.get_nowait()
                except queue.Empty:
                    return
                rows.append(self._speak(text))

        begun = time.perf_counter()
        threads = [threading.Thread(target=caller) for _ in range(concurrency)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"wall": time.perf_counter() - begun, "rows": rows, "errors": []}

    def _speak(self, text: str) -> tuple[float, float, float]:
        begun = time.perf_counter()
        process = self._free.get()
        waited = time.perf_counter() - begun
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(text) + "\n")
        process.stdin.flush()
        first, _, seconds = json.loads(process.stdout.readline())
        self._free.put(process)
        return waited + first, time.perf_counter() - begun, seconds

    def processes(self) -> list[psutil.Process]:
        """The two, for their CPU time."""
        return [psutil.Process(process.pid) for process in self._processes]

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    serve()
