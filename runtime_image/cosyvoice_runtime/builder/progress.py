"""How far a build is: lines on stdout for people, and `GET /progress` for the operator."""

from __future__ import annotations

import http.server
import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """What is being done; `done` of `total` steps where they can be counted."""

    phase: str
    done: int | None = None
    total: int | None = None

    def document(self) -> dict[str, Any]:
        """As it travels from the process that builds."""
        return {"phase": self.phase, "done": self.done, "total": self.total}


class Progress:
    """The current stage, and what can be told from how long it has taken so far."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stage = Stage("starting")
        self._since = clock()
        self._printed = ""

    def enter(self, stage: Stage) -> None:
        """Tell what is being done now."""
        if stage.phase != self._stage.phase:
            self._since = self._clock()
        self._stage = stage
        line = (
            stage.phase if stage.total is None else f"{stage.phase}: {(stage.done or 0) * 100 // max(stage.total, 1)} %"
        )
        if line != self._printed:
            self._printed = line
            print(line, flush=True)  # noqa: T201 - the log that people read while a build runs

    def document(self) -> dict[str, Any]:
        """The answer of `GET /progress`."""
        stage, elapsed = self._stage, self._clock() - self._since
        rate = stage.done / elapsed if stage.done and elapsed > 0 else None
        left = (stage.total - (stage.done or 0)) / rate if rate and stage.total is not None else None
        return {
            **stage.document(),
            "unit": "steps",
            "perSecond": round(rate, 3) if rate else None,
            "secondsLeft": round(left, 1) if left is not None else None,
        }


class ProgressServer:
    """Serves `GET /progress` from a thread, until the process ends."""

    def __init__(self, progress: Progress, host: str, port: int) -> None:
        self._progress = progress
        self._address = (host, port)
        self.port: int | None = None

    def start(self) -> None:
        """Listen. A port that is taken is told, and the build goes on: progress is worth less than the engine."""
        try:
            server = http.server.ThreadingHTTPServer(self._address, self._handler())
        except OSError as error:
            _log.warning(
                "progress cannot be asked for", extra={"data": {"port": self._address[1], "reason": str(error)}}
            )
            return
        server.daemon_threads = True
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, name="progress", daemon=True).start()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        progress = self._progress

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path.partition("?")[0] == "/progress"
                body = json.dumps(progress.document() if found else {"error": "there is only /progress"}).encode()
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """A request each few seconds is no news."""

        return Handler
