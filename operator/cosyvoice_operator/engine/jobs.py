"""Carries out what plans want of Jobs. Several resources share one, so none controls it, and nothing is applied to one that exists."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakValueDictionary

from cosyvoice_operator.core.children import JobParams, ObjectRef
from cosyvoice_operator.core.job_patch import is_unneeded, job_patch, owner_reference
from cosyvoice_operator.core.model import JobAction, Json
from cosyvoice_operator.core.naming import MANAGED_BY_LABEL, MANAGER
from cosyvoice_operator.engine.store import Entry, Key, Store
from cosyvoice_operator.engine.writes import DELETION_LOOK, Writes
from cosyvoice_operator.kube.client import KubeClient
from cosyvoice_operator.kube.errors import ConflictError, NotFoundError
from cosyvoice_operator.kube.resources import JOB
from cosyvoice_operator.render import render

logger = logging.getLogger(__name__)


class JobObserver(Protocol):
    """Told of every Job that has ended, once, for metrics."""

    def observe_job(self, params: JobParams | None, result: str) -> None:
        """Take note of a result, which is JSON text; ``params`` is what the Job was made from, where that is still wanted."""


@dataclass(frozen=True, slots=True)
class JobKeeper:
    """Makes, shares, starts and gives up Jobs.

    Attributes:
        store: What is known, and where the answers of writes go.
        client: Writes.
        observer: Told of results.
        look_at: Has resources looked at: what one of them writes, the others that share the Job must hear of.
    """

    store: Store
    client: KubeClient
    observer: JobObserver
    look_at: Callable[[frozenset[Key]], None]
    _locks: WeakValueDictionary[ObjectRef, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    async def carry_out(self, owner: Json, action: JobAction, writes: Writes) -> None:
        """Bring one Job to where the plan of ``owner`` wants it.

        Raises:
            ApiError: As the client does; a conflict after what is stored has been read anew.
        """
        ref = ObjectRef(JOB.kind, owner["metadata"]["namespace"], action.name)
        # Fifty resources that were applied at once want to be owners of one Job: one after the other, each sees the list before it.
        lock = self._locks.setdefault(ref, asyncio.Lock())
        async with lock:
            entry = self.store.child(ref)
            if entry is None and action.wanted and not action.delete:
                entry = await self._create(owner, ref, action.wanted, writes)
            if entry is not None:
                await self._change(owner, ref, action, entry, writes)

    async def _create(self, owner: Json, ref: ObjectRef, wanted: JobParams, writes: Writes) -> Entry | None:
        """Make a Job, and give what is stored where one exists that is shared."""
        body = render(wanted)
        body["metadata"]["ownerReferences"] = [owner_reference(owner)]
        try:
            answer = await self.client.create(JOB, ref.namespace, body)
        except ConflictError:
            live = await self.client.find(JOB, ref.namespace, ref.name)
            if live is None:
                raise
            if (live["metadata"].get("labels") or {}).get(MANAGED_BY_LABEL) != MANAGER:
                writes.refuse(ref, live, owner)
                return None
            self._tell(owner, self.store.confirm(JOB.kind, live))
            return self.store.child(ref)
        logger.info("made a Job", extra={"job": ref.name})
        writes.count += 1
        self._tell(owner, self.store.update(JOB.kind, answer))
        return None

    async def _change(self, owner: Json, ref: ObjectRef, action: JobAction, entry: Entry, writes: Writes) -> None:
        live, reference = entry.obj, owner_reference(owner)
        if live["metadata"].get("deletionTimestamp"):
            if action.wanted:
                writes.look_again(DELETION_LOOK)  # a new one can only be made once this one is gone
        elif is_unneeded(action, live, reference):
            await self._delete(owner, ref, entry, writes)
            if action.wanted:
                writes.look_again(DELETION_LOOK)
        elif patch := job_patch(action, live, reference):
            await self._patch(owner, ref, action, patch, writes)

    async def _patch(self, owner: Json, ref: ObjectRef, action: JobAction, patch: Json, writes: Writes) -> None:
        if "spec" in patch and not self.store.builds.take_turn(ref.namespace, ref.name):
            del patch["spec"]  # another took the turn since the plan was made; when there is room again, it is told
            if not patch:
                return
        entry = self.store.child(ref)
        assert entry is not None, "nothing is awaited between looking for it and here"
        # A list of owners is replaced as a whole, and a result belongs to this very Job.
        body = {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": str(entry.version)}}
        try:
            answer = await self.client.merge(JOB, ref.namespace, ref.name, body)
        except (ConflictError, NotFoundError) as error:
            await self._refresh(owner, ref)
            raise ConflictError(error.call, 409, error.reason, error.message) from error
        finally:
            self.store.builds.give_back(ref.namespace, ref.name)
        writes.count += 1
        self._tell(owner, self.store.update(JOB.kind, answer))
        if "spec" in patch:
            logger.info("started a Job", extra={"job": ref.name})
        if action.result is not None and "annotations" in patch.get("metadata", {}):
            self.observer.observe_job(action.wanted, action.result)

    async def _delete(self, owner: Json, ref: ObjectRef, entry: Entry, writes: Writes) -> None:
        try:
            await self.client.delete(JOB, ref.namespace, ref.name, entry.uid)
        except ConflictError:
            await self._refresh(owner, ref)
            raise
        logger.info("deleted a Job", extra={"job": ref.name})
        writes.count += 1
        self._tell(owner, self.store.forget_object(ref))

    async def _refresh(self, owner: Json, ref: ObjectRef) -> None:
        live = await self.client.find(JOB, ref.namespace, ref.name)
        self._tell(owner, self.store.confirm(JOB.kind, live) if live else self.store.forget_object(ref))

    def _tell(self, owner: Json, affected: frozenset[Key] | None) -> None:
        itself = (owner["metadata"]["namespace"], owner["metadata"]["name"])
        self.look_at((affected or frozenset()) - {itself})
