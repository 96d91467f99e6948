"""Asks a runtime pod's gateway what it serves, on what, and how long its model took to load."""

from __future__ import annotations

import json
from typing import Any, Self

import aiohttp

from cosyvoice_operator.core.model import RuntimeReport

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
        return parse_report(body)


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
