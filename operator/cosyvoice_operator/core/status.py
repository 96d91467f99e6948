"""The status of a resource: what serves, and conditions that say why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from cosyvoice_operator.api.conditions import ConditionType, Reason
from cosyvoice_operator.api.defaults import EffectiveSpec
from cosyvoice_operator.api.source import ModelSpec
from cosyvoice_operator.api.status import (
    Condition,
    CosyVoiceDeploymentStatus,
    ModelStatus,
    PoolStatus,
    ServingStatus,
)
from cosyvoice_operator.core.classify import SHORTAGES, TRIMMED, PoolState
from cosyvoice_operator.core.clock import format_precise_time, format_time
from cosyvoice_operator.core.engine_jobs import claim_name
from cosyvoice_operator.core.engine_model import ModelFacts
from cosyvoice_operator.core.engines import NO_NODE, UNUSED, EnginePlan
from cosyvoice_operator.core.errors import Blocked
from cosyvoice_operator.core.jobs import JobState
from cosyvoice_operator.core.naming import DEPLOYMENT_LABEL

ConditionStatus = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class PoolOutcome:
    """One pool after planning: what its conditions are made from.

    Attributes:
        status: The pool as it stands in ``status.pools``.
        rank: Position of its tier.
        ready_units: Units that it serves now.
        asked_units: Units that it should serve.
        failed_over: Its shortage has lasted ``failover.after``: the pools below stand in.
        settled: Its Deployment runs nothing but the wanted version, in the wanted number.
        load_budget_seconds: See ``runtime.loadBudget``.
        provider_mismatch: It computes elsewhere than its tier says.
    """

    status: PoolStatus
    rank: int
    ready_units: int
    asked_units: int
    failed_over: bool = False
    settled: bool = True
    load_budget_seconds: float = 0.0
    provider_mismatch: bool = False

    @property
    def short(self) -> bool:
        """It lacks capacity for what it was asked for."""
        return self.asked_units > 0 and self.status.state in SHORTAGES


@dataclass(frozen=True, slots=True)
class Outcome:
    """A whole resource after planning."""

    name: str
    namespace: str
    generation: int
    spec: EffectiveSpec
    pools: tuple[PoolOutcome, ...]
    blocked: tuple[Blocked, ...]
    engines: EnginePlan
    left_out: tuple[str, ...] = ()

    @property
    def units(self) -> int:
        """Units that were asked for."""
        return self.spec.replicas

    @property
    def ready_units(self) -> int:
        """Units that are ready, at most as many as were asked for."""
        return min(self.units, sum(pool.ready_units for pool in self.pools))


@dataclass(frozen=True, slots=True)
class Judgement:
    """A condition before it gets its times."""

    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str


def build_status(outcome: Outcome, previous: CosyVoiceDeploymentStatus, now: datetime) -> CosyVoiceDeploymentStatus:
    """Put the whole status together."""
    return CosyVoiceDeploymentStatus(
        observed_generation=outcome.generation,
        replicas=outcome.ready_units,
        selector=f"{DEPLOYMENT_LABEL}={outcome.name}",
        url=f"http://{outcome.name}.{outcome.namespace}.svc",
        serving=_serving(outcome),
        pools=tuple(pool.status for pool in outcome.pools),
        model=model_status(outcome.spec.model, outcome.engines.model, previous, now),
        engines=outcome.engines.statuses or None,
        effective=outcome.spec.to_status(
            claim_name(outcome.name, outcome.spec.engines) if outcome.spec.engines else None
        ),
        conditions=date_conditions(judge(outcome), previous.conditions or (), outcome.generation, now),
    )


def date_conditions(
    judgements: Iterable[Judgement], previous: Sequence[Condition], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Turn judgements into conditions; ``lastTransitionTime`` moves with ``status`` alone."""
    before = {condition.type: condition for condition in previous}
    dated = []
    for judgement in judgements:
        old = before.get(judgement.type)
        moved = old is None or old.status != judgement.status
        dated.append(
            Condition(
                type=judgement.type,
                status=judgement.status,
                observed_generation=generation,
                last_transition_time=format_time(now) if moved or old is None else old.last_transition_time,
                reason=judgement.reason,
                message=judgement.message,
            )
        )
    return tuple(dated)


def judge(outcome: Outcome) -> Iterable[Judgement]:
    """Give every condition, in the order in which they are shown."""
    stalled = _stalled(outcome)
    return (
        _ready(outcome),
        _reconciling(outcome, stalled=stalled.status == "True"),
        stalled,
        _capacity(outcome),
        _fallback(outcome),
        _load(outcome),
        _provider(outcome),
        *judge_engines(outcome.engines),
        *judge_gpus(outcome.left_out),
    )


def model_status(
    spec: ModelSpec, facts: ModelFacts | None, previous: CosyVoiceDeploymentStatus, now: datetime
) -> ModelStatus:
    """Say what is served, and where its files stand."""
    before = previous.model
    if facts is None or spec.source.embedded:
        return ModelStatus(family=spec.family, source=spec.source.kind)
    since = before.since if before and before.state == facts.state else format_precise_time(now)
    return ModelStatus(
        family=spec.family,
        source=spec.source.kind,
        digest=facts.digest,
        path=facts.path,
        state=facts.state,
        message=facts.message or None,
        since=since,
        bytes=facts.bytes,
        attempt=facts.attempt,
    )


def judge_gpus(left_out: Sequence[str]) -> Iterable[Judgement]:
    """Tell which GPUs of the cluster the tiers can't use; nothing where they can use all."""
    if left_out:
        message = f"{' '.join(left_out)} `cosyvoice-operator gpus` lists all types and what they can serve."
        yield Judgement(ConditionType.GPU_TYPES_LEFT_OUT, "True", Reason.UNSUPPORTED_TYPES, message)


def judge_engines(engines: EnginePlan) -> Iterable[Judgement]:
    """Tell whether the engines are there; nothing where none is needed."""
    model, problem = engines.model, engines.problem
    if model is None:
        return ()
    if problem:
        return (Judgement(ConditionType.ENGINES_READY, "False", problem.reason, problem.message),)
    if model.digest is None:
        message = f"The model is on its way ({model.state}): {model.message}"
        return (Judgement(ConditionType.ENGINES_READY, "False", Reason.FETCHING_MODEL, message),)
    needed = [engine for engine in engines.statuses if engine.state not in {UNUSED, NO_NODE}]
    unready = [engine for engine in needed if engine.state != JobState.SUCCEEDED]
    if unready:
        first = unready[0]
        message = (
            f"{len(unready)} of {len(needed)} engine(s) are not built yet; that for {first.gpu_type or 'CPU'} is "
            f"{first.state}: {first.message}"
        )
        return (Judgement(ConditionType.ENGINES_READY, "False", Reason.BUILDING_ENGINES, message),)
    if engines.unbuildable:
        message = next(iter(engines.unbuildable.values()))
        return (Judgement(ConditionType.ENGINES_READY, "False", Reason.UNKNOWN_GPU, message),)
    message = f"All {len(needed)} engine(s) are built."
    return (Judgement(ConditionType.ENGINES_READY, "True", Reason.ALL_ENGINES_READY, message),)


def _serving(outcome: Outcome) -> ServingStatus:
    serving = [pool for pool in outcome.pools if pool.ready_units]
    tiers = list(dict.fromkeys(pool.status.tier for pool in serving))
    gpus = list(dict.fromkeys(pool.status.gpu_type for pool in serving if pool.status.gpu_type))
    loads = [pool.status.model_load.seconds for pool in serving if pool.status.model_load]
    slowest = max((seconds for seconds in loads if seconds is not None), default=None)
    return ServingStatus(
        units=outcome.units,
        ready_units=outcome.ready_units,
        summary=f"{outcome.ready_units}/{outcome.units}",
        tier=(tiers[0] if len(tiers) == 1 else "mixed") if tiers else None,
        gpu=",".join(gpus) or None,
        load=None if slowest is None else f"{slowest:.1f}s",
    )


def _ready(outcome: Outcome) -> Judgement:
    if not outcome.units:
        return Judgement(
            ConditionType.READY, "True", Reason.SCALED_TO_ZERO, "spec.replicas is 0: nothing is asked for."
        )
    have = f"{outcome.ready_units} of {outcome.units} unit(s) are ready"
    if outcome.ready_units >= outcome.units:
        return Judgement(ConditionType.READY, "True", Reason.ALL_UNITS_READY, f"{have}.")
    reason = Reason.UNITS_MISSING if outcome.ready_units else Reason.NO_UNITS_READY
    troubled = [
        pool.status.message for pool in outcome.pools if pool.asked_units and pool.status.state != PoolState.SERVING
    ]
    return Judgement(ConditionType.READY, "False", reason, " ".join([f"{have}.", *filter(None, troubled)]))


def _reconciling(outcome: Outcome, *, stalled: bool) -> Judgement:
    told: tuple[ConditionStatus, Reason, str]
    if outcome.spec.paused:
        told = ("False", Reason.PAUSED, "spec.paused is true: children are left as they are.")
    elif stalled:
        told = ("False", Reason.WAITING_FOR_PERSON, "Waits for a person: see condition Stalled.")
    else:
        told = next(_work(outcome), ("False", Reason.UP_TO_DATE, "All children are as the spec asks."))
    return Judgement(ConditionType.RECONCILING, *told)


def _work(outcome: Outcome) -> Iterator[tuple[ConditionStatus, Reason, str]]:
    """Name what goes on, the most telling first."""
    for pool in outcome.pools:
        if pool.status.state == PoolState.WAITING_FOR_ENGINE and pool.status.name not in outcome.engines.unbuildable:
            yield "True", Reason.BUILDING_ENGINES, pool.status.message or ""
    for pool in outcome.pools:
        if pool.short and not pool.failed_over and outcome.ready_units < outcome.units:
            message = f"Pool {pool.status.name} is short since {pool.status.since}; the next tiers take over after failover.after."
            yield "True", Reason.MOVING_TO_LOWER_TIER, message
    for pool in outcome.pools:
        if not pool.settled:
            yield "True", Reason.ROLLING_OUT, f"Deployment {pool.status.name} is not yet as the spec asks."
    for pool in outcome.pools:
        if pool.status.state == PoolState.STARTING:
            yield "True", Reason.STARTING_PODS, pool.status.message or ""


def _stalled(outcome: Outcome) -> Judgement:
    for blocked in filter(None, (*outcome.blocked, outcome.engines.problem)):
        return Judgement(ConditionType.STALLED, "True", blocked.reason, blocked.message)
    for pool in outcome.pools:
        if pool.status.state in {PoolState.MISCONFIGURED, PoolState.LOAD_FAILED}:
            return Judgement(ConditionType.STALLED, "True", pool.status.state, pool.status.message or "")
    return Judgement(ConditionType.STALLED, "False", Reason.NOT_STALLED, "Nothing needs a person.")


def _capacity(outcome: Outcome) -> Judgement:
    short = [pool for pool in outcome.pools if pool.short and pool.status.state in TRIMMED]
    if short:
        message = " ".join(f"Since {pool.status.since}: {pool.status.message}" for pool in short)
        return Judgement(ConditionType.CAPACITY_AVAILABLE, "False", Reason.SHORTAGE, message)
    return Judgement(
        ConditionType.CAPACITY_AVAILABLE, "True", Reason.ROOM_FOR_ALL, "Every pool has room for what it was asked for."
    )


def _fallback(outcome: Outcome) -> Judgement:
    lower = [pool for pool in outcome.pools if pool.rank and (pool.ready_units or pool.status.desired)]
    if not lower:
        return Judgement(ConditionType.FALLBACK_ACTIVE, "False", Reason.FIRST_TIER_SERVES, "No lower tier is in use.")
    first = lower[0].status
    message = (
        f"Tier {first.tier} has {lower[0].ready_units} of {outcome.units} unit(s) ready, in use since {first.active_since}. "
        "It shrinks when the tiers above have been ready for failover.recoverAfter."
    )
    returning = not any(pool.short for pool in outcome.pools if pool.rank < lower[0].rank)
    reason = Reason.RETURNING_TO_UPPER_TIER if returning else Reason.LOWER_TIER_SERVES
    return Judgement(ConditionType.FALLBACK_ACTIVE, "True", reason, message)


def _load(outcome: Outcome) -> Judgement:
    loads = [(pool, pool.status.model_load) for pool in outcome.pools if pool.status.model_load]
    for pool, load in loads:
        if load.slow:
            message = (
                f"Pool {pool.status.name} took {load.seconds} s to load its model, more than runtime.loadBudget "
                f"({pool.load_budget_seconds:g} s). Look at the volume's throughput and the CPU limit, or raise the budget."
            )
            return Judgement(ConditionType.MODEL_LOAD_SLOW, "True", Reason.OVER_BUDGET, message)
    if not any(load.seconds is not None for _, load in loads):
        return Judgement(
            ConditionType.MODEL_LOAD_SLOW, "False", Reason.NOT_REPORTED, "No pod has reported a load time yet."
        )
    return Judgement(
        ConditionType.MODEL_LOAD_SLOW, "False", Reason.WITHIN_BUDGET, "Every load stayed within its budget."
    )


def _provider(outcome: Outcome) -> Judgement:
    for pool in outcome.pools:
        if pool.provider_mismatch:
            return Judgement(
                ConditionType.PROVIDER_MISMATCH, "True", Reason.PROVIDER_MISMATCH, pool.status.message or ""
            )
    if not any(pool.status.provider for pool in outcome.pools):
        return Judgement(ConditionType.PROVIDER_MISMATCH, "False", Reason.NOT_REPORTED, "No pod has reported yet.")
    return Judgement(
        ConditionType.PROVIDER_MISMATCH,
        "False",
        Reason.AS_ASKED,
        "Every pod that reports computes where its tier asks.",
    )
