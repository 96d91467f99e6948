"""The plan: from a snapshot and the time to wanted children, status, events and the next look. The one way through the core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from pydantic import ValidationError

from cosyvoice_operator.api.conditions import ConditionType, Reason
from cosyvoice_operator.api.defaults import EffectiveSpec, effective
from cosyvoice_operator.api.deployment import CosyVoiceDeployment
from cosyvoice_operator.api.source import Family
from cosyvoice_operator.api.status import CosyVoiceDeploymentStatus, PoolStatus
from cosyvoice_operator.core.build import build_children, owner_of
from cosyvoice_operator.core.children import ObjectRef
from cosyvoice_operator.core.classify import SHORTAGES, PoolState
from cosyvoice_operator.core.clock import format_precise_time, parse_time
from cosyvoice_operator.core.engine_jobs import claim
from cosyvoice_operator.core.engines import EnginePlan, claims_in_use, plan_engines
from cosyvoice_operator.core.errors import Blocked, Invalid
from cosyvoice_operator.core.failover import Allocation, Assignment, allocate
from cosyvoice_operator.core.model import Json, Plan, PlanConfig, ProbeTarget, Snapshot
from cosyvoice_operator.core.observe import PoolView, RetiredPool, observe
from cosyvoice_operator.core.pools import expand, left_out
from cosyvoice_operator.core.rollout import settled
from cosyvoice_operator.core.status import (
    Judgement,
    Outcome,
    PoolOutcome,
    build_status,
    date_conditions,
    judge_engines,
    judge_gpus,
    model_status,
)
from cosyvoice_operator.core.transitions import transitions

GATEWAY_PORT = 8080


def make_plan(snapshot: Snapshot, config: PlanConfig, now: datetime) -> Plan:
    """Decide what one CosyVoiceDeployment needs now.

    Raises:
        Invalid: The spec can't be served; :func:`stalled_plan` says so in the status.
    """
    resource = _parse(snapshot.owner)
    spec = effective(resource.spec, config.images)
    previous = _previous(snapshot.owner)
    in_use = [(pool.tier, pool.gpu_type) for pool in previous.pools or () if pool.gpu_type and pool.desired]
    pools = expand(snapshot.owner["metadata"]["name"], spec, snapshot.nodes, in_use, config.gpu_rules)
    engines = plan_engines(snapshot, spec, pools, previous, config, now)
    if spec.model.family != Family.DEMO:
        return _prepared(snapshot, spec, engines, previous, now)
    views, retired = observe(
        snapshot, spec, pools, engines.pools, {pool.name: pool for pool in previous.pools or ()}, now
    )
    allocation = _allocate(spec, views, now)
    outcomes = _outcomes(views, allocation, retired, previous)
    outcome = Outcome(
        name=snapshot.owner["metadata"]["name"],
        namespace=snapshot.owner["metadata"]["namespace"],
        generation=snapshot.owner["metadata"]["generation"],
        spec=spec,
        pools=outcomes,
        blocked=snapshot.blocked,
        engines=engines,
        left_out=left_out(spec, snapshot.nodes),
    )
    status = build_status(outcome, previous, now)
    return Plan(
        children=() if spec.paused else build_children(snapshot.owner, spec, views, allocation, engines.cleanups),
        keep=_kept(snapshot, retired, outcome),
        status=status.to_json(),
        events=transitions(previous, status),
        probes=(*_probes(views, snapshot), *engines.probes),
        requeue_after=_next_look(allocation, views, outcomes, spec, [engines.next_look], now),
        jobs=() if spec.paused else engines.jobs,
    )


def stalled_plan(snapshot: Snapshot, error: Invalid, now: datetime) -> Plan:
    """Leave everything as it is, and tell why in the status: a spec that can't be served takes nothing away from what serves."""
    meta = snapshot.owner["metadata"]
    previous = _previous(snapshot.owner)
    old = {condition.type: condition for condition in previous.conditions or ()}
    ready = old.get(ConditionType.READY)
    judgements = [
        Judgement(ConditionType.STALLED, "True", error.reason, error.message),
        Judgement(
            ConditionType.RECONCILING, "False", Reason.WAITING_FOR_PERSON, "Waits for a person: see condition Stalled."
        ),
    ]
    if ready is None:
        judgements.insert(0, Judgement(ConditionType.READY, "False", Reason.NO_UNITS_READY, error.message))
    changed = date_conditions(judgements, previous.conditions or (), meta["generation"], now)
    names = {condition.type for condition in changed}
    others = tuple(condition for condition in previous.conditions or () if condition.type not in names)
    status = previous.model_copy(update={"observed_generation": meta["generation"], "conditions": (*others, *changed)})
    return Plan(
        children=(),
        keep=frozenset(_ref(child) for child in snapshot.children),
        status=status.to_json(),
        events=transitions(previous, status),
    )


def _prepared(
    snapshot: Snapshot, spec: EffectiveSpec, engines: EnginePlan, previous: CosyVoiceDeploymentStatus, now: datetime
) -> Plan:
    """Fetch the model and build the engines of a family that this version can't serve yet, and leave what serves as it is."""
    error = Invalid(
        Reason.UNSUPPORTED_SOURCE,
        f"This version of the operator fetches models and builds engines of every family, and serves family Demo only; spec.model.family "
        f"is {spec.model.family}. Use family Demo with source.embedded, or a version that serves this one.",
    )
    problem = engines.problem or Blocked(error.reason, error.message)
    plan = stalled_plan(snapshot, Invalid(problem.reason, problem.message), now)
    meta = snapshot.owner["metadata"]
    status = CosyVoiceDeploymentStatus.model_validate(plan.status)
    judgements = (*judge_engines(engines), *judge_gpus(left_out(spec, snapshot.nodes)))
    told = date_conditions(judgements, previous.conditions or (), meta["generation"], now)
    judged = {ConditionType.ENGINES_READY, ConditionType.GPU_TYPES_LEFT_OUT}
    status = status.model_copy(
        update={
            "model": model_status(spec.model, engines.model, previous, now),
            "engines": engines.statuses or None,
            "conditions": (*(c for c in status.conditions or () if c.type not in judged), *told),
        }
    )
    cache = claim(owner_of(snapshot.owner), spec.engines) if spec.engines else None
    children = () if spec.paused else (*((cache,) if cache else ()), *engines.cleanups)
    return replace(
        plan,
        children=children,
        # What serves stays; a Job that has removed an engine has nothing more to do.
        keep=frozenset(ref for ref in plan.keep if spec.paused or ref.kind != "Job"),
        status=status.to_json(),
        events=transitions(previous, status),
        jobs=() if spec.paused else engines.jobs,
        probes=engines.probes,
        requeue_after=(engines.next_look - now).total_seconds() if engines.next_look else None,
    )


def _previous(owner: Json) -> CosyVoiceDeploymentStatus:
    """Read the last status. One that can't be read (another release wrote it, or a person) must not end the service: it is written anew."""
    try:
        return CosyVoiceDeploymentStatus.model_validate(owner.get("status") or {})
    except ValidationError:
        return CosyVoiceDeploymentStatus()


def _parse(owner: Json) -> CosyVoiceDeployment:
    try:
        return CosyVoiceDeployment.parse({key: value for key, value in owner.items() if key != "status"})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Invalid(Reason.INVALID_SPEC, f"{where}: {first['msg']}") from error


def _allocate(spec: EffectiveSpec, views: Sequence[PoolView], now: datetime) -> Allocation:
    if spec.paused:
        held = (
            Assignment(
                v.facts.desired // v.pool.tier.pods_per_unit,
                v.facts.desired,
                v.observation().active_since if v.facts.desired else None,
                failed_over=False,
            )
            for v in views
        )
        return Allocation(tuple(held), None)
    # A tier without any place to run, or without its engine, takes no part: what it should serve goes straight to the next one.
    placed = [view for view in views if view.available]
    allocation = allocate(spec.replicas, [view.observation() for view in placed], spec.failover, now)
    shares = iter(allocation.pools)
    nothing = Assignment(spec.replicas, 0, None, failed_over=True)
    return Allocation(tuple(next(shares) if view.available else nothing for view in views), allocation.next_look)


def _outcomes(
    views: Sequence[PoolView],
    allocation: Allocation,
    retired: Sequence[RetiredPool],
    previous: CosyVoiceDeploymentStatus,
) -> tuple[PoolOutcome, ...]:
    per_unit = {tier.name: tier.replicas_per_unit for tier in previous.effective.tiers} if previous.effective else {}
    outcomes = (_outcome(view, share) for view, share in zip(views, allocation.pools, strict=True))
    return (
        *(outcome for outcome in outcomes if not _silent(outcome)),
        *(_retired_outcome(pool, per_unit.get(pool.tier, 1)) for pool in retired),
    )


def _silent(outcome: PoolOutcome) -> bool:
    """A cluster may have a dozen GPU types: those that aren't needed would only hide the ones that are."""
    return outcome.status.state == PoolState.IDLE and outcome.status.gpu_type is not None


def _outcome(view: PoolView, share: Assignment) -> PoolOutcome:
    # A pool that had no pods yet is judged by what it is asked for now; one that can't have any, by what it would be asked for.
    finding, since = view.judged(share.pods if view.available else share.asked_units)
    status = PoolStatus(
        name=view.pool.name,
        tier=view.pool.tier.name,
        gpu_type=view.pool.gpu_type,
        desired=share.pods,
        ready=sum(pod.ready_since is not None for pod in view.facts.live),
        pending=sum(pod.pending for pod in view.facts.live),
        state=finding.state,
        reason=finding.reason,
        message=finding.message,
        since=format_precise_time(since),
        active_since=format_precise_time(share.active_since) if share.active_since else None,
        engine_key=view.engine.mount.key if view.engine.mount else None,
        model_load=view.model_load(),
        provider=view.facts.provider,
    )
    return PoolOutcome(
        status=status,
        rank=view.pool.rank,
        ready_units=view.ready_units,
        asked_units=share.asked_units,
        failed_over=share.failed_over,
        settled=not view.available or settled(view.deployment, share.pods),
        load_budget_seconds=view.pool.tier.load_budget.total_seconds(),
        provider_mismatch=view.facts.provider_mismatch,
    )


def _retired_outcome(pool: RetiredPool, pods_per_unit: int) -> PoolOutcome:
    status = PoolStatus(
        name=pool.deployment["metadata"]["name"],
        tier=pool.tier,
        desired=pool.deployment["spec"].get("replicas", 0),
        ready=pool.ready_pods,
        state=PoolState.SERVING if pool.ready_pods else PoolState.IDLE,
        reason="Retiring",
        message="The spec no longer has this pool; it is removed when the others serve all units. If they wait for the GPUs that it "
        f"holds, delete Deployment {pool.deployment['metadata']['name']}.",
    )
    return PoolOutcome(status, rank=0, ready_units=pool.ready_pods // pods_per_unit, asked_units=0)


def _kept(snapshot: Snapshot, retired: Sequence[RetiredPool], outcome: Outcome) -> frozenset[ObjectRef]:
    if outcome.spec.paused:
        return frozenset(_ref(child) for child in snapshot.children)
    used = claims_in_use(snapshot)
    caches = {ref for ref in map(_ref, snapshot.children) if ref.kind == "PersistentVolumeClaim" and ref.name in used}
    serving = sum(pool.ready_units for pool in outcome.pools if pool.status.reason != "Retiring")
    # A renamed tier must not take its pods away before the new ones are ready.
    if serving >= outcome.units:
        return frozenset(caches)
    return frozenset({*caches, *(_ref(pool.deployment) for pool in retired if pool.ready_pods)})


def _ref(child: Json) -> ObjectRef:
    return ObjectRef(child["kind"], child["metadata"]["namespace"], child["metadata"]["name"])


def _probes(views: Sequence[PoolView], snapshot: Snapshot) -> tuple[ProbeTarget, ...]:
    # Pods that aren't ready are asked too: one that computes on the wrong silicon keeps itself from becoming ready, and can say why.
    return tuple(
        ProbeTarget(pod.report_key, f"http://{pod.host}:{GATEWAY_PORT}/status")
        for view in views
        for pod in view.facts.live
        if pod.started and pod.ip and pod.report_key not in snapshot.reports
    )


def _next_look(
    allocation: Allocation,
    views: Sequence[PoolView],
    outcomes: Sequence[PoolOutcome],
    spec: EffectiveSpec,
    others: Sequence[datetime | None],
    now: datetime,
) -> float | None:
    looks = [look for look in (allocation.next_look, *others) if look]
    # A shortage that this plan found first: its wait ends without any event.
    looks += [
        parse_time(pool.status.since) + spec.failover.after
        for pool in outcomes
        if pool.status.state in SHORTAGES and pool.status.since and not pool.failed_over
    ]
    looks += [
        pod.loading_since + spec.runtime.load_timeout
        for view in views
        for pod in view.facts.live
        if pod.starting and pod.loading_since
    ]
    due = [look for look in looks if look > now]
    return (min(due) - now).total_seconds() if due else None
