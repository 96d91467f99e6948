"""The wanted children of a resource, as parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cosyvoice_operator.api.defaults import EffectiveResources, EffectiveSpec
from cosyvoice_operator.api.spec import Backend
from cosyvoice_operator.core.children import (
    ChildParams,
    ContainerParams,
    DeploymentParams,
    DisruptionBudgetParams,
    EngineMount,
    JobParams,
    Owner,
    ServiceAccountParams,
    ServiceParams,
)
from cosyvoice_operator.core.engine_jobs import ARCH_LABEL, claim
from cosyvoice_operator.core.failover import Allocation, Assignment
from cosyvoice_operator.core.model import Json
from cosyvoice_operator.core.naming import (
    DEPLOYMENT_LABEL,
    ENGINE_LABEL,
    POOL_LABEL,
    TIER_LABEL,
    common_labels,
    service_account_name,
)
from cosyvoice_operator.core.observe import PoolView
from cosyvoice_operator.core.pools import Pool
from cosyvoice_operator.core.rollout import surge, unavailable
from cosyvoice_operator.core.tolerations import tolerations

TRITON_GRPC = "127.0.0.1:8001"
TRITON_METRICS = "http://127.0.0.1:8002/metrics"

ENGINE_DIR = "/engine"
"""Where runtime pods find their engine."""


def build_children(
    owner: Json, spec: EffectiveSpec, views: Sequence[PoolView], allocation: Allocation, cleanups: Sequence[JobParams]
) -> tuple[ChildParams, ...]:
    """Give the parameters of all children, in the order in which they are applied: what pods need comes before them."""
    who = owner_of(owner)
    labels = common_labels(who.name)
    selector = {DEPLOYMENT_LABEL: who.name}
    ready_units = sum(view.ready_units for view in views)
    pools = [
        _deployment(who, spec, view, share, others_serve=ready_units > view.ready_units)
        for view, share in zip(views, allocation.pools, strict=True)
        # A pool that was never needed has no Deployment; one that was keeps it, at zero.
        if view.available and (share.pods or view.deployment)
    ]
    cache = claim(who, spec.engines) if spec.engines else None
    return (
        *((cache,) if cache else ()),
        ServiceAccountParams(who, service_account_name(who.name), labels, selector),
        ServiceParams(who, who.name, labels, selector),
        DisruptionBudgetParams(who, who.name, labels, selector, max_unavailable=1 + _replaced(views, allocation)),
        *pools,
        *cleanups,
    )


def owner_of(resource: Json) -> Owner:
    """Give what children need to know of their owner."""
    meta = resource["metadata"]
    return Owner(meta["name"], meta["namespace"], meta["uid"])


def _replaced(views: Sequence[PoolView], allocation: Allocation) -> int:
    """Count pods that aren't ready and that other pools stand in for.

    The budget must not count them as lost: with the one pod that waits for a GPU no node could be drained as long as the shortage lasts.
    """
    return sum(
        max(0, share.pods - len(view.ready))
        for view, share in zip(views, allocation.pools, strict=True)
        if share.failed_over
    )


def _deployment(
    owner: Owner, spec: EffectiveSpec, view: PoolView, share: Assignment, *, others_serve: bool
) -> DeploymentParams:
    pool = view.pool
    extra = surge(on_gpu=pool.tier.gpu is not None, replicas=share.pods, others_serve=others_serve)
    waiting = sum(pod.pending for pod in view.facts.live) if share.failed_over else 0
    labels = {**common_labels(owner.name), TIER_LABEL: pool.tier.name, POOL_LABEL: pool.name}
    on_triton = pool.tier.backend == Backend.TRITON
    engine = view.engine.mount
    env = (*_gateway_env(spec, pool, engine), *(variable.to_json() for variable in spec.runtime.env))
    if on_triton:
        gateway = ContainerParams(spec.runtime.gateway_image, _amounts(spec.runtime.gateway_resources), env)
        triton = ContainerParams(
            pool.tier.image,
            _amounts(pool.tier.resources),
            (*_triton_env(spec, engine), *(v.to_json() for v in spec.runtime.env)),
        )
    else:
        gateway, triton = ContainerParams(pool.tier.image, _amounts(pool.tier.resources), env), None
    return DeploymentParams(
        owner=owner,
        name=pool.name,
        labels=labels,
        selector={DEPLOYMENT_LABEL: owner.name, POOL_LABEL: pool.name},
        pool_labels={**labels, ENGINE_LABEL: engine.key} if engine else labels,
        replicas=share.pods,
        surge=extra,
        unavailable=unavailable(surge=extra, waiting=min(waiting, max(0, share.pods - 1))),
        gateway=gateway,
        triton=triton,
        service_account=service_account_name(owner.name),
        terms=pool.terms,
        # An engine for CPUs is for one architecture; that of a GPU type is part of where its pods may run.
        node_selector={
            **(spec.scheduling.node_selector or {}),
            **({ARCH_LABEL: engine.arch} if engine and not pool.gpu_type else {}),
        },
        tolerations=tolerations(spec.scheduling, pool.tier.gpu.resource if pool.tier.gpu else None),
        priority_class=spec.scheduling.priority_class_name,
        pull_secrets=spec.runtime.image_pull_secrets,
        load_timeout=spec.runtime.load_timeout,
        drain_timeout=spec.runtime.drain_timeout,
        engine=engine,
        hold=view.engine.stale,
    )


def _gateway_env(spec: EffectiveSpec, pool: Pool, engine: EngineMount | None) -> list[Mapping[str, object]]:
    """Say to the gateway what it is part of; the names are those of its settings, with the prefix ``COSYVOICE_``."""
    embedded = spec.model.source.embedded
    values = {
        "BACKEND": pool.tier.backend.value.lower(),
        "FAMILY": spec.model.family.value,
        "MODEL": spec.model.family.value.lower(),
        **({"VOICE": embedded.voice} if embedded else {}),
        **({"ENGINE_DIR": ENGINE_DIR} if engine else {}),
        "TIER": pool.tier.name,
        "POOL": pool.name,
        "EXECUTION_PROVIDER": pool.tier.execution_provider.value,
        "WARMUP_REQUESTS": str(spec.runtime.warmup_requests),
        # How long the gateway holds a backend for one that is still loading; without it a slow load is restarted early.
        "LOAD_TIMEOUT": f"{spec.runtime.load_timeout.total_seconds():.15g}",
        # The gateway takes no zero, and a second to end is what the kubelet gives at least.
        "DRAIN_SECONDS": f"{max(1.0, spec.runtime.drain_timeout.total_seconds()):.15g}",
    }
    if pool.tier.backend == Backend.TRITON:
        values |= {"TRITON_URL": TRITON_GRPC, "TRITON_METRICS_URL": TRITON_METRICS}
    return [{"name": f"COSYVOICE_{name}", "value": value} for name, value in values.items()]


def _triton_env(spec: EffectiveSpec, engine: EngineMount | None) -> list[Mapping[str, object]]:
    embedded = spec.model.source.embedded
    voice = [{"name": "COSYVOICE_VOICE", "value": embedded.voice}] if embedded else []
    return [*voice, *([{"name": "COSYVOICE_ENGINE_DIR", "value": ENGINE_DIR}] if engine else [])]


def _amounts(resources: EffectiveResources) -> Mapping[str, Mapping[str, str]]:
    return resources.to_json()
