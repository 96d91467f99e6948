"""Where everything that is heard of the cluster comes in: into the store, and what it touches onto the queue."""

from __future__ import annotations

from typing import Literal

from cosyvoice_operator.core.model import Json
from cosyvoice_operator.engine.queue import WorkQueue
from cosyvoice_operator.engine.store import OWNER, Key, Store
from cosyvoice_operator.telemetry.metrics import Metrics

EventType = Literal["ADDED", "MODIFIED", "DELETED"]


class Intake:
    """Feeds the store and the queue. The kind of event only decides between keeping and forgetting."""

    def __init__(self, store: Store, queue: WorkQueue[Key], metrics: Metrics) -> None:
        self._store = store
        self._queue = queue
        self._metrics = metrics

    def take(self, kind: str, event: str | None, obj: Json) -> bool:
        """Take in one watch event (type None for what was listed), and tell whether it was news."""
        affected = self._store.remove(kind, obj) if event == "DELETED" else self._store.update(kind, obj)
        news = affected is None or bool(affected)
        self._metrics.events.labels(kind, "yes" if news else "no").inc()
        self.look_at(affected, urgent=kind == OWNER and _awaits_answer(obj))
        return news

    @property
    def busy(self) -> bool:
        """Whether resources wait for a worker now."""
        return len(self._queue) > 0

    def look_at(self, affected: frozenset[Key] | None, *, urgent: bool = False) -> None:
        """Queue what was touched; None means everything."""
        for key in self._store.keys() if affected is None else affected:
            self._queue.add(key, urgent=urgent)


def _awaits_answer(owner: Json) -> bool:
    """Tell whether a person changed a resource and no reconcile has answered yet."""
    observed = (owner.get("status") or {}).get("observedGeneration")
    return bool(observed != owner["metadata"].get("generation"))
