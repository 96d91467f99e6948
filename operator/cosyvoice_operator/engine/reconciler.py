"""One reconcile: from what is known to what should be, and the writes in between.

The order is fixed, so that being killed after any of them leaves a state from which the next reconcile goes on: children in the order of
the plan, then Jobs, then deletions, then Events (their names make telling them twice harmless), then the one status patch that ends the
transition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from cosyvoice_operator.core.children import ChildParams, DeploymentParams, JobParams, ObjectRef
from cosyvoice_operator.core.diff import needs_apply, status_differs, status_patch
from cosyvoice_operator.core.errors import Invalid
from cosyvoice_operator.core.model import Json, Plan, PlanConfig, ProbeTarget
from cosyvoice_operator.core.naming import MANAGER
from cosyvoice_operator.core.plan import make_plan, stalled_plan
from cosyvoice_operator.engine.jobs import JobKeeper
from cosyvoice_operator.engine.store import OWNER, Entry, Key, Store, is_controlled_by
from cosyvoice_operator.engine.writes import DELETION_LOOK, Writes
from cosyvoice_operator.kube.client import KubeClient
from cosyvoice_operator.kube.errors import ApiError, ConflictError, NotFoundError
from cosyvoice_operator.kube.events import EventWriter
from cosyvoice_operator.kube.ownership import owns
from cosyvoice_operator.kube.resources import COSYVOICE_DEPLOYMENT, JOB, PERSISTENT_VOLUME_CLAIM, child_resource
from cosyvoice_operator.render import render

logger = logging.getLogger(__name__)


class Probes(Protocol):
    """Asks runtime pods for their reports, in the background."""

    def want(self, key: Key, targets: tuple[ProbeTarget, ...]) -> None:
        """Ask exactly these pods of ``key`` from now on."""


class PlanObserver(Protocol):
    """Told of every plan, for metrics."""

    def observe_plan(self, key: Key, plan: Plan | None, previous: Json | None) -> None:
        """Take note of a plan; None when the resource is gone."""


@dataclass(frozen=True)
class Outcome:
    """How a reconcile ended.

    Attributes:
        result: ``unchanged``, ``written``, ``blocked``, ``invalid`` or ``gone``.
        requeue_after: Seconds until the resource is to be looked at again; None for never by itself.
    """

    result: str
    requeue_after: float | None = None


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Makes the cluster match one resource at a time. It remembers nothing but the store.

    Attributes:
        store: What is known, and where the answers of writes go.
        client: Writes.
        jobs: Writes Jobs, which several resources may share.
        events: Tells of transitions.
        probes: Told which pods' reports are wanted.
        observer: Told of each plan.
        config: Settings that planning depends on.
        blocked_retry: Seconds until a child that something is in the way of is tried again: the operator hears of objects with its own
            label only, so nothing tells it when that goes away.
        busy: Tells whether resources that a person changed wait for a worker.
        now: The wall clock.
    """

    store: Store
    client: KubeClient
    jobs: JobKeeper
    events: EventWriter
    probes: Probes
    observer: PlanObserver
    config: PlanConfig
    blocked_retry: float
    busy: Callable[[], bool]
    now: Callable[[], datetime]

    async def reconcile(self, key: Key) -> Outcome:
        """Bring ``key`` to where its plan wants it.

        Raises:
            ApiError: A write failed in a way that another try may mend.
        """
        owner = self.store.owner(key)
        if owner is None or owner["metadata"].get("deletionTimestamp"):
            # Its children carry its ownerReference: the garbage collector removes them. Writing now would race with it.
            self.probes.want(key, ())
            self.observer.observe_plan(key, None, None)
            self.store.builds.set_aside(key, aside=False)
            return Outcome("gone")
        plan, invalid = self._plan(key)
        pending = Writes(self.blocked_retry)
        self.jobs.look_at(self.store.builds.set_aside(key, aside=not any(action.wanted for action in plan.jobs)))
        if not invalid:
            await self._apply_children(owner, plan, pending)
            await self._carry_out_jobs(owner, plan, pending)
            await self._delete_unwanted(key, owner, plan, pending)
            if pending.count and pending.retry is None and self.busy() and not _must_be_told(plan):
                # A hundred resources were applied at once: children of all of them first. By the time this status is written there is
                # more to say in it, too. The next look writes no child, so it can't come to this again.
                return Outcome("written", 0.0)
            plan = self._plan_again(key, plan, pending)
        self.probes.want(key, plan.probes)
        await self._tell(key, owner, plan, pending)
        self.observer.observe_plan(key, plan, owner.get("status"))
        if pending.retry is not None:
            raise pending.retry
        return Outcome(_result(pending, invalid=invalid), pending.earliest(plan.requeue_after))

    def _plan_again(self, key: Key, plan: Plan, pending: Writes) -> Plan:
        """Plan on what the writes made of it: the status of a new generation must not call a rollout done that has just begun."""
        if not pending.count and tuple(pending.blocked) == self.store.blocked.get(key, ()):
            return plan
        self.store.blocked[key] = tuple(pending.blocked)
        if _must_be_told(plan):
            return plan
        after, _ = self._plan(key)
        if (after.children, after.jobs) != (plan.children, plan.jobs):
            pending.look_again(0.0)
        return after

    def _plan(self, key: Key) -> tuple[Plan, bool]:
        snapshot = self.store.snapshot(key)
        assert snapshot is not None, "nothing is awaited between looking for the owner and here"
        now = self.now()
        try:
            return make_plan(snapshot, self.config, now), False
        except Invalid as error:
            return stalled_plan(snapshot, error, now), True

    async def _apply_children(self, owner: Json, plan: Plan, pending: Writes) -> None:
        for params in plan.children:
            await pending.attempt(params.ref, self._apply(owner, params, pending))

    async def _carry_out_jobs(self, owner: Json, plan: Plan, pending: Writes) -> None:
        for action in plan.jobs:
            ref = ObjectRef(JOB.kind, owner["metadata"]["namespace"], action.name)
            if not (action.wanted and self._is_foreign(owner, plan, action.wanted.claim_name)):
                await pending.attempt(ref, self.jobs.carry_out(owner, action, pending))

    def _is_foreign(self, owner: Json, plan: Plan, claim: str) -> bool:
        """Tell whether a claim is one to be made, and isn't ours: no Job may write into the volume of somebody else."""
        ref = ObjectRef(PERSISTENT_VOLUME_CLAIM.kind, owner["metadata"]["namespace"], claim)
        entry = self.store.child(ref)
        ours = entry is not None and is_controlled_by(entry.obj, owner["metadata"]["uid"])
        return not ours and any(params.ref == ref for params in plan.children)

    async def _apply(self, owner: Json, params: ChildParams, pending: Writes) -> None:
        entry = self.store.child(params.ref)
        if entry is not None and entry.settled == params:
            return
        if entry is None:
            await self._create(owner, params, pending)
            return
        uid = owner["metadata"]["uid"]
        if not is_controlled_by(entry.obj, uid):
            pending.refuse(params.ref, entry.obj, owner)
        elif entry.obj["metadata"].get("deletionTimestamp"):
            pending.look_again(DELETION_LOOK)  # a new one can only be made once this one is gone
        else:
            await self._update(params, entry, pending)

    async def _update(self, params: ChildParams, entry: Entry, pending: Writes) -> None:
        body, version = render(params), entry.version
        if isinstance(params, JobParams):
            # A Job can't be changed; one of ours that exists does what it was made for.
            self.store.settle(params.ref, params, version)
            return
        if isinstance(params, DeploymentParams) and params.hold:
            body["spec"]["template"] = entry.obj["spec"]["template"]
        if needs_apply(body, entry.obj, MANAGER) or not owns(body, entry.obj, MANAGER):
            try:
                answer = await self.client.apply(child_resource(params.kind), body, entry.uid)
            except ConflictError:
                await self._refresh(params.ref)
                raise
            pending.count += 1
            self.store.update(params.kind, answer)
            version = int(answer["metadata"]["resourceVersion"])
        # Also when it was applied: whatever the server made of it, the same apply would change nothing more.
        self.store.settle(params.ref, params, version)

    async def _create(self, owner: Json, params: ChildParams, pending: Writes) -> None:
        resource = child_resource(params.kind)
        try:
            answer = await self.client.apply_new(resource, render(params))
        except ConflictError as conflict:
            # Either ours, and the watch is behind, or of someone else, and then it has no label by which we would ever hear of it.
            live = await self.client.find(resource, params.ref.namespace, params.ref.name)
            if live is None:
                raise
            if is_controlled_by(live, owner["metadata"]["uid"]):
                self.store.confirm(params.kind, live)
                raise conflict from None
            pending.refuse(params.ref, live, owner)
            return
        pending.count += 1
        self.store.update(params.kind, answer)
        self.store.settle(params.ref, params, int(answer["metadata"]["resourceVersion"]))

    async def _refresh(self, ref: ObjectRef) -> None:
        live = await self.client.find(child_resource(ref.kind), ref.namespace, ref.name)
        if live is None:
            self.store.forget_object(ref)
        else:
            self.store.confirm(ref.kind, live)

    async def _delete_unwanted(self, key: Key, owner: Json, plan: Plan, pending: Writes) -> None:
        wanted = {params.ref for params in plan.children} | plan.keep
        for ref, entry in list(self.store.children(key).items()):
            unwanted = ref not in wanted and is_controlled_by(entry.obj, owner["metadata"]["uid"])
            if unwanted and not entry.obj["metadata"].get("deletionTimestamp"):
                await self._delete(ref, entry.uid, pending)

    async def _delete(self, ref: ObjectRef, uid: str, pending: Writes) -> None:
        try:
            await self.client.delete(child_resource(ref.kind), ref.namespace, ref.name, uid)
        except ConflictError:
            await self._refresh(ref)
            raise
        logger.info("deleted a child that is no longer wanted", extra={"child": f"{ref.kind}/{ref.name}"})
        pending.count += 1
        self.store.forget_object(ref)

    async def _tell(self, key: Key, owner: Json, plan: Plan, pending: Writes) -> None:
        for event in plan.events:
            try:
                await self.events.write(owner, event)
            except ApiError as error:
                # An Event is a courtesy, the status is the promise: it must be written whatever became of the Event.
                logger.warning("could not tell in an Event (%s): %s", event.reason, error)
            else:
                pending.count += 1
        live = owner.get("status")
        if not status_differs(live, plan.status):
            return
        try:
            answer = await self.client.patch_status(COSYVOICE_DEPLOYMENT, *key, status_patch(live, plan.status))
        except NotFoundError:
            return  # deleted meanwhile; its own event says so
        pending.count += 1
        self.store.update(OWNER, answer)


def _result(pending: Writes, *, invalid: bool) -> str:
    if invalid:
        return "invalid"
    if pending.blocked:
        return "blocked"
    return "written" if pending.count else "unchanged"


def _must_be_told(plan: Plan) -> bool:
    """Why a Job was deleted, and how often, stands in the status of this plan and nowhere else."""
    return any(action.delete for action in plan.jobs)
