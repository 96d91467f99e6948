"""The operator's own HTTP server: ``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

from aiohttp import web

from cosyvoice_operator.telemetry.health import Health
from cosyvoice_operator.telemetry.metrics import Metrics


class TelemetryServer:
    """Serves until it is closed."""

    def __init__(self, health: Health, metrics: Metrics, host: str, port: int) -> None:
        self._health = health
        self._metrics = metrics
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Listen, and give the port (the one that was free, where 0 was asked for)."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._scrape)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        await site.start()
        address = self._runner.addresses[0]
        return int(address[1])

    async def close(self) -> None:
        """Stop listening."""
        if self._runner:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return self._answer(ready=False)

    async def _readyz(self, _: web.Request) -> web.Response:
        return self._answer(ready=True)

    def _answer(self, *, ready: bool) -> web.Response:
        problems = self._health.problems(ready=ready)
        response = web.json_response({"ok": not problems, "problems": problems}, status=503 if problems else 200)
        response.force_close()  # an idle connection would hold up the shutdown
        return response

    async def _scrape(self, _: web.Request) -> web.Response:
        response = web.Response(
            body=self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )
        response.force_close()
        return response
