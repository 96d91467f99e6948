"""What a program that runs in a Job tells the operator: how far it is, and at its end what came of it."""

from __future__ import annotations

import contextlib
import http.server
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)


def serve_progress(document: Callable[[], dict[str, Any]], host: str, port: int) -> int | None:
    """Answer `GET /progress` from a thread that ends with the process.

    Returns:
        The port; None where it is taken: that is told, and the work goes on, since progress is worth less than its result.
    """
    try:
        server = http.server.ThreadingHTTPServer((host, port), _handler(document))
    except OSError as error:
        _log.warning("progress cannot be asked for", extra={"data": {"port": port, "reason": str(error)}})
        return None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="progress", daemon=True).start()
    return int(server.server_address[1])


def _handler(document: Callable[[], dict[str, Any]]) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path.partition("?")[0] == "/progress"
            body = json.dumps(document() if found else {"error": "there is only /progress"}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A request each few seconds is no news."""

    return Handler


def leave_result(text: str, termination_message: Path) -> None:
    """Print the result, and leave it where the kubelet takes it into the container's status."""
    print(text, flush=True)  # noqa: T201 - for people; programs read the termination message
    with contextlib.suppress(OSError):  # there is none outside a pod
        if termination_message.exists():
            termination_message.write_text(text, encoding="utf-8", errors="replace")
