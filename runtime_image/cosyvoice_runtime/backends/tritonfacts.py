"""What Triton's metrics port tells about the model: Triton itself knows neither load seconds nor execution providers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from cosyvoice_runtime.backends import BackendFacts

LOAD = "cosyvoice_model_load_seconds"
WARMUP = "cosyvoice_model_warmup_seconds"
PROVIDER = "cosyvoice_model_provider"
_TIMEOUT = 2.0
_LIMIT = 4_000_000


def parse(text: str) -> BackendFacts:
    """Facts from the metrics that the Python model exports; of several instances the slowest counts."""
    loads: list[float] = []
    warmups: list[float] = []
    providers: list[str] = []
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == LOAD:
                loads.append(round(sample.value, 4))
            elif sample.name == WARMUP:
                warmups.append(round(sample.value, 4))
            elif sample.name == PROVIDER:
                providers.append(sample.labels["provider"])
    return BackendFacts(tuple(_distinct(providers)), max(loads, default=None), max(warmups, default=None))


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


async def fetch(url: str) -> BackendFacts:
    """Facts from a metrics address; empty ones when it does not answer, which is no reason not to serve."""
    try:
        async with asyncio.timeout(_TIMEOUT):
            return parse(await _get(url))
    except (OSError, TimeoutError, ValueError):
        return BackendFacts((), None, None)


async def _get(url: str) -> str:
    """Body of one plain HTTP GET. The gateway has no HTTP client but for this."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname or "127.0.0.1", parts.port or 80, limit=_LIMIT)
    try:
        # HTTP/1.0: the answer is not chunked and ends with the connection.
        writer.write(f"GET {parts.path or '/'} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())
        answer = await reader.read()
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n", 1)[0]:
        raise ValueError(f"{url} answers {head[:40]!r}")
    return body.decode("utf-8", "replace")
