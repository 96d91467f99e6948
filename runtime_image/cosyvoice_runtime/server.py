"""The HTTP server process, and its end: no stream that has begun is ever cut by a shutdown."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from types import FrameType

import uvicorn

from cosyvoice_runtime.api.app import make_app
from cosyvoice_runtime.gateway import Gateway
from cosyvoice_runtime.settings import Settings

_log = logging.getLogger(__name__)


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
        if self._close_at is not None and time.monotonic() >= self._close_at and not self.should_exit:
            _log.info("draining", extra={"data": {"streams": self._gateway.dispatcher.streams}})
            self.should_exit = True
        return await super().on_tick(counter)


async def serve(settings: Settings) -> None:
    """Run one gateway until it is told to stop."""
    gateway = Gateway(settings)
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
        backlog=2048,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
    )
    server = DrainingServer(config, gateway)
    await server.serve()
    _log.info("stopped")


def run(settings: Settings) -> None:
    """Run on uvloop where there is one."""
    try:
        import uvloop  # noqa: PLC0415 - Linux only
    except ImportError:
        asyncio.run(serve(settings))
    else:
        uvloop.run(serve(settings))
