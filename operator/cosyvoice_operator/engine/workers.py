"""Takes keys from the queue and reconciles them, several at a time, each with its errors and its log lines kept apart."""

from __future__ import annotations

import logging
from collections.abc import Callable

from cosyvoice_operator.engine.backoff import Backoff
from cosyvoice_operator.engine.failures import Retry, retry_for
from cosyvoice_operator.engine.queue import QueueClosedError, WorkQueue
from cosyvoice_operator.engine.reconciler import Reconciler
from cosyvoice_operator.engine.store import Key
from cosyvoice_operator.telemetry.logs import about
from cosyvoice_operator.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)


class Worker:
    """One of several that share a queue."""

    def __init__(
        self,
        queue: WorkQueue[Key],
        reconciler: Reconciler,
        backoff: Backoff[Key],
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._queue = queue
        self._reconciler = reconciler
        self._backoff = backoff
        self._metrics = metrics
        self._clock = clock

    async def run(self) -> None:
        """Work until the queue is closed; what is being worked on then is finished."""
        while True:
            try:
                key, waited = await self._queue.get()
            except QueueClosedError:
                return
            self._metrics.lag.observe(waited)
            try:
                with about("/".join(key)):
                    await self._work(key)
            finally:
                self._queue.done(key)

    async def _work(self, key: Key) -> None:
        started = self._clock()
        result = "error"
        try:
            outcome = await self._reconciler.reconcile(key)
            result = outcome.result
            self._backoff.forget(key)
            if outcome.requeue_after is not None:
                self._queue.add_after(key, outcome.requeue_after)
            elif outcome.result == "gone":
                self._queue.discard(key)
        except Exception as error:  # noqa: BLE001 - one resource must never stop the others; told and tried again here
            self._try_again(key, error, retry_for(error))
        finally:
            self._metrics.reconciles.labels(result).observe(self._clock() - started)

    def _try_again(self, key: Key, error: Exception, retry: Retry) -> None:
        delay = retry.after if retry.after is not None else self._backoff.next_delay(key)
        self._metrics.retries.labels(retry.reason).inc()
        self._queue.add_after(key, delay)
        extra = {"reason": retry.reason, "retry_in": round(delay, 3)}
        if retry.reason == "Bug":
            logger.error("reconcile failed", extra=extra, exc_info=error)
        elif retry.expected and self._backoff.failures(key) < 5:
            logger.info("will try again: %s", error, extra=extra)
        else:
            logger.warning("will try again: %s", error, extra=extra)
