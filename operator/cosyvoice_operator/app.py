"""Puts the operator together, starts it in the right order, and takes it down in the reverse one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

from cosyvoice_operator import __version__
from cosyvoice_operator.engine.backoff import Backoff
from cosyvoice_operator.engine.builds import Builds
from cosyvoice_operator.engine.intake import Intake
from cosyvoice_operator.engine.jobs import JobKeeper
from cosyvoice_operator.engine.probes import Prober
from cosyvoice_operator.engine.queue import WorkQueue
from cosyvoice_operator.engine.reconciler import Reconciler
from cosyvoice_operator.engine.resync import Resync
from cosyvoice_operator.engine.store import Key, Store
from cosyvoice_operator.engine.workers import Worker
from cosyvoice_operator.handlers.watching import watch
from cosyvoice_operator.inference.client import RuntimeClient
from cosyvoice_operator.kube.client import KubeClient
from cosyvoice_operator.kube.errors import ApiError
from cosyvoice_operator.kube.events import EventWriter
from cosyvoice_operator.kube.lease import LeaseHolder, LeaseLostError, LeaseTerms
from cosyvoice_operator.kube.limiter import TokenBucket
from cosyvoice_operator.kube.login import Login, load_login
from cosyvoice_operator.kube.resources import COSYVOICE_DEPLOYMENT
from cosyvoice_operator.settings import Settings
from cosyvoice_operator.telemetry.health import Health, LoopMonitor
from cosyvoice_operator.telemetry.jobs import JobMetrics
from cosyvoice_operator.telemetry.metrics import Metrics
from cosyvoice_operator.telemetry.plans import PlanMetrics
from cosyvoice_operator.telemetry.server import TelemetryServer

logger = logging.getLogger(__name__)

_CRD_LOOK = 5.0


def _now() -> datetime:
    return datetime.now(UTC)


async def run(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT.

    Returns:
        The exit status: 0 after a signal, 1 when the lease was lost or a watch ended for good.

    Raises:
        LoginError: There are no credentials.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    login = await load_login(settings.kubeconfig, settings.context, settings.connections)
    metrics = Metrics()
    limiter = TokenBucket(settings.write_qps, settings.write_burst, time.monotonic)
    async with (
        KubeClient(login, limiter, metrics, settings.request_timeout) as client,
        RuntimeClient(settings.probe_timeout, settings.probe_concurrency) as runtimes,
    ):
        return await _Operator(settings, login, client, runtimes, metrics, stop).run()


class _Operator:
    """One replica, from standing by to the end."""

    def __init__(
        self,
        settings: Settings,
        login: Login,
        client: KubeClient,
        runtimes: RuntimeClient,
        metrics: Metrics,
        stop: asyncio.Event,
    ) -> None:
        self._settings = settings
        self._login = login
        self._client = client
        self._metrics = metrics
        self._stop = stop
        config = settings.plan_config()
        self._store = Store(settings.gpu_rules(), Builds(config.builds, config.builds_per_namespace))
        self._queue: WorkQueue[Key] = WorkQueue(time.monotonic, settings.spacing)
        self._backoff: Backoff[Key] = Backoff(settings.retry_base, settings.retry_limit)
        self._intake = Intake(self._store, self._queue, metrics)
        self._prober = Prober(runtimes, self._store, self._queue.add, metrics, time.monotonic)
        self._reconciler = Reconciler(
            self._store,
            client,
            JobKeeper(self._store, client, JobMetrics(metrics), self._intake.look_at),
            EventWriter(client, settings.identity, _now),
            self._prober if settings.probes else _NoProbes(),
            PlanMetrics(metrics),
            config=config,
            blocked_retry=settings.blocked_retry,
            busy=lambda: self._queue.urgent,
            now=_now,
        )
        self._resync = Resync(
            client, self._store, self._intake, metrics, interval=settings.resync_interval, clock=time.monotonic
        )
        self._lease = LeaseHolder(client, _terms(settings), time.monotonic, _now)
        self._loop_monitor = LoopMonitor(time.monotonic, metrics.loop_lag)
        self._watching = asyncio.Event()

    async def run(self) -> int:
        self._expose_queue()
        server = TelemetryServer(self._health(), self._metrics, self._settings.host, self._settings.port)
        port = await server.start()
        extra = {
            "version": __version__,
            "server": self._login.server,
            "identity": self._settings.identity,
            "port": port,
        }
        logger.info("started", extra=extra)
        monitor = asyncio.create_task(self._loop_monitor.run(), name="loop monitor")
        try:
            if not await self._unless_stopped(self._stand_by()):
                logger.info("stopped while standing by")
                return 0
            return await self._lead()
        finally:
            monitor.cancel()
            await server.close()

    async def _stand_by(self) -> None:
        if self._settings.leader_election:
            logger.info("waiting for the lease", extra={"lease": self._settings.lease_name})
            await self._lease.acquire()

    async def _lead(self) -> int:
        """Work while holding the lease."""
        self._metrics.leading.set(1)
        # Before everything else: the lease must be renewed while the first lists are read, however long they take.
        tasks = [asyncio.create_task(self._lease.keep(), name="lease")] if self._settings.leader_election else []
        workers: list[asyncio.Task[None]] = []
        try:
            return await self._work(tasks, workers)
        except LeaseLostError as error:
            logger.error("ending: %s", error)  # noqa: TRY400 - expected, and the message says it all
            return 1
        finally:
            self._queue.close()
            self._prober.close()
            await _cancel([*tasks, *workers])
            if self._settings.leader_election:
                await self._lease.release()

    async def _work(self, tasks: list[asyncio.Task[Any]], workers: list[asyncio.Task[None]]) -> int:
        if not await self._unless_stopped(self._get_ready(), *tasks):
            return 0
        make = asyncio.create_task
        for number in range(self._settings.workers):
            worker = Worker(
                self._queue,
                self._reconciler,
                self._backoff,
                self._metrics,
                time.monotonic,
            )
            workers.append(make(worker.run(), name=f"worker {number}"))
        if self._settings.probes:
            tasks += [make(self._prober.work(), name=f"prober {n}") for n in range(self._settings.probe_concurrency)]
        tasks.append(make(self._resync.run(), name="resync"))
        # Strictly after all the others: Kopf ends whatever was started after itself.
        watches = make(watch(self._intake, self._login, self._stop, self._watching), name="watches")
        tasks.append(watches)
        await asyncio.wait([*tasks, *workers], return_when=asyncio.FIRST_COMPLETED)
        return await self._wind_down(tasks, workers, watches)

    async def _wind_down(
        self, tasks: list[asyncio.Task[Any]], workers: list[asyncio.Task[None]], watches: asyncio.Task[None]
    ) -> int:
        """Find out what ended first, and let running reconciles finish if they may."""
        for task in (*tasks, *workers):
            if task.done() and not task.cancelled() and (error := task.exception()):
                if not isinstance(error, LeaseLostError):
                    logger.error("ending: task %s failed", task.get_name(), exc_info=error)
                    return 1
                raise error
        # Kopf takes SIGTERM for itself and returns; nothing but a signal makes it.
        logger.info("stopping", extra={"running": watches.get_name()})
        self._stop.set()
        self._queue.close()
        _, late = await asyncio.wait(workers, timeout=self._settings.shutdown_timeout)
        if late:
            logger.warning("%d reconciles did not finish in time; the next holder repeats them", len(late))
        return 0

    async def _get_ready(self) -> None:
        """List everything once: with half of the facts a plan could take a node that wasn't listed yet for one that is gone."""
        while True:
            try:
                async for _ in self._client.pages(COSYVOICE_DEPLOYMENT, page=1):
                    break
            except ApiError as error:
                hint = (
                    "install the CRDs"
                    if error.status == 404
                    else "is the API server there, and may this ServiceAccount list?"
                )
                logger.warning("cannot list CosyVoiceDeployments yet (%s): %s", hint, error)
                await asyncio.sleep(_CRD_LOOK)
            else:
                break
        await self._resync.first()
        logger.info("listed everything", extra={"objects": self._store.sizes()})

    async def _unless_stopped(self, work: Coroutine[Any, Any, None], *others: asyncio.Task[Any]) -> bool:
        """Run ``work``, and tell whether it ended before a signal came. Raises what ``others`` raise meanwhile."""
        task = asyncio.create_task(work)
        signalled = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([task, signalled, *others], return_when=asyncio.FIRST_COMPLETED)
            for other in others:
                if other.done():
                    other.result()
            if task.done():
                task.result()
            return task.done() and not signalled.done()
        finally:
            await _cancel([task, signalled])

    def _health(self) -> Health:
        health = Health()
        limit = self._settings.stuck_after
        health.live["queue"] = lambda: _too_long("a resource has waited for a worker", self._queue.oldest_wait(), limit)
        health.live["reconcile"] = self._stuck_reconcile
        health.live["resync"] = self._resync.problem
        health.live["loop"] = self._loop_monitor.check(limit / 4)
        if self._settings.leader_election:
            health.live["lease"] = self._lease_problem
            health.ready["api"] = lambda: _too_long("the API server gave no answer", self._lease.silence, 30.0)
        health.ready["sync"] = lambda: (
            "not everything is listed yet" if self._leading and not self._resync.synced else None
        )
        return health

    @property
    def _leading(self) -> bool:
        return self._lease.held if self._settings.leader_election else True

    def _lease_problem(self) -> str | None:
        if self._resync.synced and not self._lease.held:
            return "the lease is lost and the process has not ended"
        return None

    def _stuck_reconcile(self) -> str | None:
        key, seconds = self._queue.longest_work()
        return (
            _too_long(f"the reconcile of {'/'.join(key)} is running", seconds, self._settings.stuck_after)
            if key
            else None
        )

    def _expose_queue(self) -> None:
        gauges = self._metrics.gauge
        gauges("queue_depth", "Keys that wait for a worker.").set_function(lambda: len(self._queue))
        gauges("queue_delayed", "Keys that wait for their time.").set_function(lambda: self._queue.delayed)
        gauges("queue_adds", "Adds to the queue since the start.").set_function(lambda: self._queue.adds)
        gauges("queue_oldest_wait_seconds", "Wait of the key at the head.").set_function(self._queue.oldest_wait)
        builds = self._store.builds
        gauges("builds_queued", "Engine builds and model fetches that wait for their turn.").set_function(
            lambda: builds.count(running=False)
        )
        gauges("builds_running", "Engine builds and model fetches that run.").set_function(
            lambda: builds.count(running=True)
        )
        gauges("reconcile_longest_running_seconds", "Age of the oldest running reconcile.").set_function(
            lambda: self._queue.longest_work()[1]
        )


class _NoProbes:
    """Asks nobody."""

    def want(self, key: Key, targets: tuple[Any, ...]) -> None:
        """Do nothing."""


def _terms(settings: Settings) -> LeaseTerms:
    return LeaseTerms(
        namespace=settings.namespace,
        name=settings.lease_name,
        identity=settings.identity,
        duration=settings.lease_duration,
        renew_deadline=settings.renew_deadline,
        retry_period=settings.retry_period,
    )


def _too_long(what: str, seconds: float, limit: float) -> str | None:
    return f"{what} for {seconds:.0f} s" if seconds > limit else None


async def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
