"""The HTTP server process, and its end: no stream that has begun is ever cut by a shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from pathlib import Path
from types import FrameType

import uvicorn

from cosyvoice_runtime.api.app import make_app
from cosyvoice_runtime.engines import EngineError
from cosyvoice_runtime.gateway import Gateway
from cosyvoice_runtime.settings import Settings

_log = logging.getLogger(__name__)

TERMINATION_MESSAGE = Path("/dev/termination-log")
"""The kubelet's default; absent outside a pod."""


class DrainingServer(uvicorn.Server):
    """uvicorn, but SIGTERM starts a drain in place of closing the door at once.

    Endpoints lag behind a pod's end, so requests still come for a moment: they are answered, with `Connection: close`. After
    that moment the listening socket is closed, streams in progress may run for the drain time, and the exit code is 0.
    """

    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._close_at: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Signal handler."""
        if self._close_at is not None and sig == signal.SIGINT:
            self.should_exit = self.force_exit = True
            return
        if self._close_at is None:
            self._gateway.lifecycle.draining = True
            linger = self._gateway.settings.drain_linger_seconds if sig == signal.SIGTERM else 0.0
            self._close_at = time.monotonic() + linger

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        if self._gateway.lifecycle.hopeless:
            self.should_exit = True
        if self._close_at is not None and time.monotonic() >= self._close_at and not self.should_exit:
            _log.info("draining", extra={"data": {"streams": self._gateway.dispatcher.streams}})
            self.should_exit = True
        return await super().on_tick(counter)


async def serve(settings: Settings) -> int:
    """Run one gateway until it is told to stop, or can't load its model.

    Returns:
        The exit status: 0 after a signal, 1 when the model could not be loaded.
    """
    try:
        gateway = Gateway(settings)
    except EngineError as error:
        _leave(str(error))
        return 1
    config = uvicorn.Config(
        make_app(gateway),
        host=settings.host,
        port=settings.port,
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=2048,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
    )
    server = DrainingServer(config, gateway)
    await server.serve()
    if gateway.lifecycle.hopeless:
        _leave(f"the model can't be loaded: {gateway.lifecycle.hopeless}")
        return 1
    _log.info("stopped")
    return 0


def _leave(reason: str) -> None:
    """Say why the process ends, in the log and where the kubelet takes it into the pod's status."""
    _log.error(reason)
    with contextlib.suppress(OSError):
        TERMINATION_MESSAGE.write_text(reason)


def run(settings: Settings) -> int:
    """Run on uvloop where there is one, and give the exit status."""
    try:
        import uvloop  # noqa: PLC0415 - Linux only
    except ImportError:
        return asyncio.run(serve(settings))
    status: int = uvloop.run(serve(settings))
    return status
