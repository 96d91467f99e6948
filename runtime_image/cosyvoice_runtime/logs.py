"""JSON lines on stderr. Neither text nor audio of any request is ever logged."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

# Made once: json.dumps with arguments makes an encoder for each line.
_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str, check_circular=False)


class JsonFormatter(logging.Formatter):
    """One JSON object a line; fields come from `extra={"data": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry.update(getattr(record, "data", {}))
        if record.exc_info and record.exc_info[1] is not None:
            # The type and the place, never the message: it could quote the text of a request.
            entry["error"] = type(record.exc_info[1]).__name__
            entry["where"] = _place(record)
        return _ENCODER.encode(entry)


def _place(record: logging.LogRecord) -> str:
    trace = record.exc_info[2] if record.exc_info else None
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""


def configure(level: str) -> None:
    """Send every logger of this process to stderr as JSON."""
    # What no line shows is not looked for; a tenth of a request's cost otherwise (logging's own advice on optimisation).
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    if sys.version_info >= (3, 12):
        logging.logAsyncioTasks = False
    logging._srcfile = None  # noqa: SLF001
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, root.level))
