"""Asks runtime pods for their reports in the background, so that a pod that doesn't answer never holds up a reconcile."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from cosyvoice_operator.core.model import ProbeTarget, ProgressReport, RuntimeReport
from cosyvoice_operator.engine.backoff import Backoff
from cosyvoice_operator.engine.queue import QueueClosedError, WorkQueue
from cosyvoice_operator.engine.store import Key, Store
from cosyvoice_operator.inference.client import ProbeError
from cosyvoice_operator.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

_FIRST_RETRY, _LONGEST_RETRY = 1.0, 300.0


PROGRESS_EVERY = 5.0
"""Seconds between two questions to the pod of a Job."""


class ReportSource(Protocol):
    """Where reports come from."""

    async def fetch(self, url: str) -> RuntimeReport:
        """Ask a runtime pod; raises ProbeError."""

    async def fetch_progress(self, url: str) -> ProgressReport:
        """Ask the pod of a Job; raises ProbeError."""


class Prober:
    """Keeps asking the pods that plans want a report of, each less and less often while it has none to give."""

    def __init__(
        self,
        source: ReportSource,
        store: Store,
        changed: Callable[[Key], None],
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        """Make a prober.

        Args:
            source: Where reports come from.
            store: Where they go.
            changed: Told of the resource whose pod had news.
            metrics: Counts results.
            clock: Monotonic seconds.
        """
        self._source = source
        self._store = store
        self._changed = changed
        self._metrics = metrics
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._backoff: Backoff[str] = Backoff(_FIRST_RETRY, _LONGEST_RETRY)
        self._targets: dict[str, tuple[Key, ProbeTarget]] = {}
        self._wanted: dict[Key, frozenset[str]] = {}
        self._idle: set[str] = set()  # answered, and not yet asked for again

    def want(self, key: Key, targets: tuple[ProbeTarget, ...]) -> None:
        """Ask exactly these pods of ``key`` from now on."""
        names = frozenset(target.key for target in targets)
        for name in self._wanted.get(key, frozenset()) - names:
            self._drop(name)
        for target in targets:
            known = target.key in self._targets
            self._targets[target.key] = (key, target)
            if not known:
                self._queue.add(target.key)
            elif target.key in self._idle:
                # It answered, and that wasn't enough (not ready yet, say): ask again, ever less often.
                self._idle.discard(target.key)
                self._queue.add_after(target.key, self._backoff.next_delay(target.key))
        if names:
            self._wanted[key] = names
        else:
            self._wanted.pop(key, None)

    async def work(self) -> None:
        """Ask one pod after the other until :meth:`close`; run as many of these as pods may be asked at once."""
        while True:
            try:
                name, _ = await self._queue.get()
            except QueueClosedError:
                return
            try:
                await self._ask(name)
            finally:
                self._queue.done(name)

    def close(self) -> None:
        """Ask no more."""
        self._queue.close()

    async def _ask(self, name: str) -> None:
        if name not in self._targets:
            return
        key, target = self._targets[name]
        report: RuntimeReport | ProgressReport
        try:
            if target.progress:
                report = await self._source.fetch_progress(target.url)
            else:
                report = await self._source.fetch(target.url)
        except ProbeError as error:
            self._metrics.probes.labels("failed").inc()
            if name in self._targets:
                self._queue.add_after(name, self._backoff.next_delay(name))
            logger.debug("no report yet: %s", error, extra={"resource": "/".join(key)})
            return
        self._metrics.probes.labels("answered").inc()
        if name not in self._targets:
            return
        if isinstance(report, ProgressReport):
            if self._store.set_progress(name, report):
                self._changed(key)
            self._queue.add_after(name, PROGRESS_EVERY)
            return
        self._idle.add(name)
        if self._store.set_report(name, report):
            if report.load_seconds is not None:
                self._metrics.model_load.labels(report.family, report.backend).observe(report.load_seconds)
            self._changed(key)
        else:
            self._idle.discard(name)
            self._queue.add_after(name, self._backoff.next_delay(name))

    def _drop(self, name: str) -> None:
        self._targets.pop(name, None)
        self._idle.discard(name)
        self._backoff.forget(name)
        self._queue.discard(name)
