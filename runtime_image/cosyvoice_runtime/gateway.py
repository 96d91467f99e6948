"""The parts of one gateway put together, and what it says about itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cosyvoice_runtime.backends import Backend, BackendFacts
from cosyvoice_runtime.dispatch import Dispatcher
from cosyvoice_runtime.engines import Engine, Expected, find
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.selfcheck import CheckTimes, SelfCheck
from cosyvoice_runtime.settings import Settings

_log = logging.getLogger(__name__)


@dataclass
class Lifecycle:
    """Where the process is between its start and its end."""

    started: float
    draining: bool = False
    hopeless: str | None = None
    """Why the process should end by itself: the model can't be loaded, and trying on would only hide it."""

    def give_up(self, reason: str) -> None:
        """End the process, for this reason."""
        self.hopeless = reason


class Gateway:
    """One backend, its dispatcher, its health and its metrics."""

    def __init__(self, settings: Settings) -> None:
        """Put the parts together; raises EngineError when the engine that is mounted is not the one for this pod."""
        self.settings = settings
        self.engine = mounted_engine(settings)
        self.metrics = Metrics()
        self.lifecycle = Lifecycle(started=time.monotonic())
        times = CheckTimes(settings.self_synthesis_interval, settings.self_synthesis_timeout, settings.load_timeout)
        self.check = SelfCheck(times, time.monotonic, lambda: datetime.now(UTC))
        self.backend = make_backend(settings, self.metrics, self.lifecycle, self.engine)
        self.dispatcher = Dispatcher(self.backend, settings.synthesis_timeout, self.check)
        self._loaded = asyncio.Event()
        self._watch()

    def _watch(self) -> None:
        watch = self.metrics.watch
        watch("cosyvoice_streams", "Speech requests in progress.", lambda: self.dispatcher.streams)
        watch("cosyvoice_queued_sentences", "Sentences that no worker has yet.", lambda: self.dispatcher.queued)
        watch("cosyvoice_retries", "Sentences spoken again after a failure.", lambda: self.dispatcher.retries)
        watch("cosyvoice_ready", "1 when requests are wanted.", lambda: self.not_ready is None)
        watch(
            "cosyvoice_self_synthesis_ok", "1 when the last synthesis was good and is fresh.", lambda: self.check.sane
        )
        watch(
            "cosyvoice_self_synthesis_seconds", "Duration of the last self-synthesis.", lambda: last_seconds(self.check)
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load, prove, serve; stop everything at the end."""
        await self.backend.start(self._on_free)
        check = asyncio.create_task(self._check_when_loaded(), name="self-synthesis")
        try:
            yield
        finally:
            check.cancel()
            await asyncio.gather(check, return_exceptions=True)
            await self.backend.close()

    def _on_free(self) -> None:
        if self.backend.facts is not None:
            self._loaded.set()
        self.dispatcher.pump()

    async def _check_when_loaded(self) -> None:
        await self._loaded.wait()
        facts = self.backend.facts
        _log.info("model loaded", extra={"data": describe(facts)})
        await self.check.run(self.dispatcher, self.backend.engines)

    @property
    def not_ready(self) -> str | None:
        """Why no request should be sent here; None when it is ready."""
        if self.lifecycle.draining:
            return "the gateway is shutting down"
        facts = self.backend.facts
        if facts is None or self.backend.trouble is not None:
            return self.backend.trouble or "the model is loading"
        wanted = self.settings.execution_provider
        if facts.execution_provider != wanted:
            return f"the model computes on {facts.execution_provider}, but {wanted} is wanted"
        return self.check.complaint

    @property
    def not_alive(self) -> str | None:
        """Why this container should be restarted: only what a restart of it can mend."""
        if self.settings.backend == "onnxruntime" and not self.check.alive:
            return self.check.complaint
        return None

    @property
    def backend_not_alive(self) -> str | None:
        """Why the backend should be restarted."""
        return self.backend.broken or (None if self.check.alive else self.check.complaint)

    def status(self) -> dict[str, Any]:
        """What the operator reads."""
        settings, facts, last = self.settings, self.backend.facts, self.check.last
        reason = self.not_ready
        return {
            "ready": reason is None,
            "reason": reason,
            "family": settings.family,
            "model": settings.model,
            "voice": settings.voice,
            "tier": settings.tier,
            "pool": settings.pool,
            "backend": settings.backend_title,
            "executionProvider": facts.execution_provider if facts else None,
            "providers": list(facts.providers) if facts else [],
            "loadSeconds": facts.load_seconds if facts else None,
            "warmupSeconds": facts.warmup_seconds if facts else None,
            "engineKey": self.engine.key if self.engine else None,
            "uptimeSeconds": round(time.monotonic() - self.lifecycle.started, 3),
            "streams": self.dispatcher.streams,
            "selfSynthesis": {
                "ok": self.check.sane,
                "at": last.at.isoformat(timespec="milliseconds") if last else None,
                "seconds": round(last.seconds, 4) if last else None,
                "error": last.error if last else None,
            },
        }


def last_seconds(check: SelfCheck) -> float:
    """Duration of the last self-synthesis, 0 before the first."""
    return check.last.seconds if check.last else 0.0


def describe(facts: BackendFacts | None) -> dict[str, Any]:
    """For the log."""
    if facts is None:
        return {}
    return {"providers": facts.providers, "loadSeconds": facts.load_seconds, "warmupSeconds": facts.warmup_seconds}


def mounted_engine(settings: Settings) -> Engine | None:
    """The engine that the pod was given; None without one. Raises EngineError when it was built for something else."""
    if settings.engine_dir is None:
        return None
    expected = Expected(settings.backend_title, settings.family, settings.voice, settings.execution_provider)
    return find(settings.engine_dir, expected)


def make_backend(settings: Settings, metrics: Metrics, lifecycle: Lifecycle, engine: Engine | None) -> Backend:
    """The backend that the settings name. Imports only what that one needs: an image holds the libraries of one backend."""
    if settings.backend == "triton":
        from cosyvoice_runtime.backends.triton import TritonBackend, TritonOptions  # noqa: PLC0415

        options = TritonOptions(
            url=settings.triton_url,
            metrics_url=settings.triton_metrics_url,
            model=settings.triton_model,
            streams=settings.triton_streams,
            warmup_requests=settings.warmup_requests,
        )
        return TritonBackend(options, metrics.loaded)
    from cosyvoice_runtime.backends.onnxruntime import PoolOptions, WorkerPool  # noqa: PLC0415

    pool = WorkerPool(
        PoolOptions(
            settings.worker_count,
            settings.voice,
            warmup_requests=settings.warmup_requests,
            engine=engine.folder if engine else None,
        ),
        lambda facts: metrics.loaded(facts.load_seconds),
        lifecycle.give_up,
    )
    metrics.watch("cosyvoice_workers", "Worker processes that can speak.", lambda: pool.ready_workers)
    metrics.watch("cosyvoice_worker_restarts", "Worker processes that ended and were replaced.", lambda: pool.restarts)
    return pool
