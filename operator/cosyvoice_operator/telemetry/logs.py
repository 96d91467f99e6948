"""Structured logs: one JSON object a line, each with the resource that it is about."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

_resource: ContextVar[str] = ContextVar("resource", default="")

# What every record has; anything else was passed as `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "settings",
    "k8s_skip",
    "k8s_ref",
}


@contextlib.contextmanager
def about(resource: str) -> Iterator[None]:
    """Say which resource all log lines inside this block are about, e.g. ``namespace/name``."""
    token = _resource.set(resource)
    try:
        yield
    finally:
        _resource.reset(token)


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the line, without its end."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name.removeprefix("cosyvoice_operator."),
            "message": record.getMessage(),
        }
        if resource := _resource.get():
            line["resource"] = resource
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """Formats a record for a person at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the line, without its end."""
        extra = " ".join(f"{name}={value}" for name, value in vars(record).items() if name not in _STANDARD)
        resource = f"[{_resource.get()}] " if _resource.get() else ""
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        text = f"{moment} {record.levelname:<7} {resource}{record.getMessage()} {extra}".rstrip()
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def configure_logging(level: str, style: Literal["json", "text"]) -> None:
    """Send all logs of the process to standard error, in one style."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # Kopf writes a line for each object it hears of; what it can't cope with comes as a warning or worse.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
