"""Events: what has changed from one status to the next, told once."""

from __future__ import annotations

from collections.abc import Iterable

from cosyvoice_operator.api.conditions import ConditionType
from cosyvoice_operator.api.status import Condition, CosyVoiceDeploymentStatus, PoolStatus
from cosyvoice_operator.core.classify import SHORTAGES
from cosyvoice_operator.core.model import EventParams

# (condition, its new status): type of the Event, its reason, and what the operator did.
_TOLD: dict[tuple[ConditionType, str], tuple[str, str, str]] = {
    (ConditionType.READY, "True"): ("Normal", "Ready", "Observe"),
    (ConditionType.READY, "False"): ("Warning", "NotReady", "Observe"),
    (ConditionType.STALLED, "True"): ("Warning", "Stalled", "Wait"),
    (ConditionType.FALLBACK_ACTIVE, "True"): ("Warning", "FellBack", "MoveToLowerTier"),
    (ConditionType.FALLBACK_ACTIVE, "False"): ("Normal", "Recovered", "ReturnToUpperTier"),
    (ConditionType.MODEL_LOAD_SLOW, "True"): ("Warning", "ModelLoadSlow", "Observe"),
    (ConditionType.ENGINES_READY, "True"): ("Normal", "EnginesReady", "BuildEngines"),
    (ConditionType.ENGINES_READY, "False"): ("Normal", "BuildingEngines", "BuildEngines"),
    (ConditionType.PROVIDER_MISMATCH, "True"): ("Warning", "ProviderMismatch", "Observe"),
}


def transitions(before: CosyVoiceDeploymentStatus, after: CosyVoiceDeploymentStatus) -> tuple[EventParams, ...]:
    """Give an Event for each transition that a person would want to know of."""
    return (*_of_conditions(before, after), *_of_pools(before, after))


def _of_conditions(before: CosyVoiceDeploymentStatus, after: CosyVoiceDeploymentStatus) -> Iterable[EventParams]:
    old = {condition.type: condition.status for condition in before.conditions or ()}
    for condition in after.conditions or ():
        was = old.get(condition.type)
        # A new resource that isn't ready yet, or has nothing wrong, is no news.
        if was == condition.status or (was is None and not _news(condition)):
            continue
        told = _TOLD.get((ConditionType(condition.type), condition.status))
        if told:
            key = f"{condition.type}-{condition.status}-{condition.last_transition_time}"
            yield EventParams(told[0], told[1], condition.message or condition.reason, told[2], key)


def _news(condition: Condition) -> bool:
    return condition.status == "True"


def _of_pools(before: CosyVoiceDeploymentStatus, after: CosyVoiceDeploymentStatus) -> Iterable[EventParams]:
    old = {pool.name: pool for pool in before.pools or ()}
    for pool in after.pools or ():
        was = old.get(pool.name)
        if _short(pool) and not (was and was.state == pool.state):
            yield EventParams(
                "Warning", pool.state, pool.message or "", "Observe", f"{pool.name}-{pool.state}-{pool.since}"
            )
        elif was and _short(was) and not _short(pool):
            message = f"Pool {pool.name} is no longer short ({was.state} since {was.since}). {pool.message or ''}"
            yield EventParams("Normal", "CapacityReturned", message, "Observe", f"{pool.name}-returned-{pool.since}")


def _short(pool: PoolStatus) -> bool:
    return pool.state in SHORTAGES
