"""Asks a runtime pod's gateway what it serves, on what, and how long its model took to load."""

from __future__ import annotations

import json
from typing import Any, Self

import aiohttp

from cosyvoice_operator.core.model import ProgressReport, RuntimeReport

_LARGEST_ANSWER = 256 * 1024


class ProbeError(Exception):
    """The pod gave no usable report. The message says why."""


class RuntimeClient:
    """An HTTP client for ``/status`` of gateways. Pods are many and short-lived, so no connection is kept."""

    def __init__(self, timeout: float, connections: int) -> None:
        """Make a client.

        Args:
            timeout: Seconds for a whole answer.
            connections: Most pods asked at once.
        """
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=timeout),
            connector=aiohttp.TCPConnector(limit=connections, force_close=True),
            # A pod's address is never behind the cluster's egress proxy.
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def fetch(self, url: str) -> RuntimeReport:
        """Ask one pod.

        Raises:
            ProbeError: It didn't answer in time, or not with a report.
        """
        return parse_report(await self._get(url))

    async def fetch_progress(self, url: str) -> ProgressReport:
        """Ask the pod of a Job how far it is.

        Raises:
            ProbeError: It didn't answer in time, or not with its progress.
        """
        return parse_progress(await self._get(url))

    async def _get(self, url: str) -> bytes:
        try:
            async with self._session.get(url, allow_redirects=False) as answer:
                if answer.status != 200:
                    raise ProbeError(f"{url} answered {answer.status}")
                body = b""
                async for piece in answer.content.iter_any():
                    body += piece
                    if len(body) > _LARGEST_ANSWER:
                        raise ProbeError(f"{url} answered with more than {_LARGEST_ANSWER} bytes")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ProbeError(f"{url} gave no answer: {type(error).__name__} {error}".rstrip()) from error
        return body


def parse_report(body: bytes) -> RuntimeReport:
    """Read the JSON of ``/status``. What is in the pod is another release than the operator now and then, so unknown keys are ignored.

    Raises:
        ProbeError: It isn't a report.
    """
    try:
        status: Any = json.loads(body)
        if status["executionProvider"] is None:
            raise ProbeError("its model has not loaded yet")
        load_seconds, engine_key = status.get("loadSeconds"), status.get("engineKey")
        return RuntimeReport(
            ready=status["ready"] is True,
            family=str(status["family"]),
            backend=str(status["backend"]),
            provider=str(status["executionProvider"]),
            load_seconds=None if load_seconds is None else float(load_seconds),
            engine_key=None if engine_key is None else str(engine_key),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProbeError(f"not a runtime report: {type(error).__name__} {error}") from error


def parse_progress(body: bytes) -> ProgressReport:
    """Read the JSON of ``/progress``, and round it.

    Raises:
        ProbeError: It isn't one.
    """
    try:
        told: Any = json.loads(body)
        parts = [str(told["phase"])[:80]]
        done, total, rate, left = (told.get(key) for key in ("done", "total", "perSecond", "secondsLeft"))
        if total:
            parts.append(
                f"{100 * (done or 0) // total:.0f} %" + (f" of {_size(total)}" if told.get("unit") == "bytes" else "")
            )
        if rate and told.get("unit") == "bytes":
            parts.append(f"{_size(rate)}/s")
        if left is not None:
            parts.append(f"about {_rough(left)} left")
        return ProgressReport(", ".join(parts))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProbeError(f"not a progress report: {type(error).__name__} {error}") from error


def _size(count: float) -> str:
    """Write bytes with two digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.2g} {unit}" if count < 100 else f"{round(count, -1):.0f} {unit}"
        count /= 1000
    return f"{count:.2g} TB"


def _rough(seconds: float) -> str:
    """Write how long it takes as one would say it: a status must not change with every second."""
    if seconds < 90:
        return f"{max(10, 10 * round(seconds / 10))} s"
    return f"{round(seconds / 60)} min"
