"""Defaults: the spec as the operator reads it, with nothing left open.

They live here and not in the CRD: defaults that the API server writes into the resource look like drift to GitOps
tools.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from cosyvoice_operator.api.engines import AccessMode, EngineCache, Engines, Precision
from cosyvoice_operator.api.pods import DEFAULT_LOAD_TIMEOUT, EnvVar, Resources, Runtime, Scheduling
from cosyvoice_operator.api.quantity import Quantity, parse_quantity
from cosyvoice_operator.api.source import Family, ModelSpec
from cosyvoice_operator.api.spec import (
    GPU,
    GPU_RESOURCE,
    Backend,
    CosyVoiceDeploymentSpec,
    ExecutionProvider,
    Failover,
    Tier,
)
from cosyvoice_operator.api.status import (
    EffectiveEnginesStatus,
    EffectiveFailoverStatus,
    EffectiveStatus,
    EffectiveTierStatus,
)


@dataclass(frozen=True, slots=True)
class Images:
    """Images that the operator was installed with.

    Attributes:
        cpu: CPU pods.
        gateway: The gateway beside Triton.
        triton: Triton for family Demo.
        fetch: Jobs that fetch models.
        builder: Jobs that build engines for ONNX Runtime in another precision than that of the graphs.
        gpu_builder: Jobs that build engines for Triton.
    """

    cpu: str
    gateway: str
    triton: str
    fetch: str = ""
    builder: str = ""
    gpu_builder: str = ""


@dataclass(frozen=True, slots=True)
class EffectiveGPU:
    """GPUs of each pod of a tier. ``products`` is empty when every type of the cluster will do."""

    products: tuple[str, ...]
    resource: str
    count: int


@dataclass(frozen=True, slots=True)
class EffectiveResources:
    """Requests and limits of one container, in canonical text."""

    requests: Mapping[str, str]
    limits: Mapping[str, str]

    def to_json(self) -> dict[str, dict[str, str]]:
        """Give them as they stand in a container."""
        return {"requests": dict(self.requests), "limits": dict(self.limits)}


@dataclass(frozen=True, slots=True)
class EffectiveTier:
    """A tier with all defaults filled in.

    Attributes:
        name: Name of the tier.
        backend: What computes.
        gpu: GPUs of each pod; None on CPU.
        pods_per_unit: Pods that serve as much as one unit.
        execution_provider: What must really compute.
        image: Image of the container that computes.
        builder_image: Image that builds its engines.
        build_resources: Resources of the Jobs that build its engines, GPUs included.
        precision: Number format of its engines; None for the builder's choice.
        resources: Resources of the container that computes, GPUs included.
        load_budget: Model load time above which a load counts as slow.
    """

    name: str
    backend: Backend
    gpu: EffectiveGPU | None
    pods_per_unit: int
    execution_provider: ExecutionProvider
    image: str
    builder_image: str
    build_resources: EffectiveResources
    precision: Precision | None
    resources: EffectiveResources
    load_budget: timedelta


@dataclass(frozen=True, slots=True)
class EffectiveFailover:
    """``spec.failover`` with all defaults filled in."""

    after: timedelta
    recover_after: timedelta
    minimum_dwell: timedelta


@dataclass(frozen=True, slots=True)
class EffectiveCache:
    """The claim that holds models and engines.

    Attributes:
        claim_name: A claim that exists; None for one to make.
        size: Size of the one to make, in canonical text.
        storage_class_name: Its storage class; None for the cluster's default.
        access_modes: Its access modes.
    """

    claim_name: str | None
    size: str
    storage_class_name: str | None
    access_modes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EffectiveEngines:
    """``spec.engines`` with all defaults filled in. ``fetch_resources`` are those of the Job that fetches the model."""

    cache: EffectiveCache
    timeout: timedelta
    keep_unused: timedelta
    fetch_image: str
    fetch_resources: EffectiveResources


@dataclass(frozen=True, slots=True)
class EffectiveRuntime:
    """What all tiers share of ``spec.runtime``, with all defaults filled in.

    ``gateway_image`` and ``gateway_resources`` are those of the gateway beside Triton.
    """

    gateway_image: str
    gateway_resources: EffectiveResources
    streaming: bool
    load_timeout: timedelta
    warmup_requests: int
    drain_timeout: timedelta
    env: tuple[EnvVar, ...]
    image_pull_secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EffectiveSpec:
    """A spec with all defaults filled in. ``engines`` is None where the model runs as it is."""

    model: ModelSpec
    replicas: int
    tiers: tuple[EffectiveTier, ...]
    failover: EffectiveFailover
    engines: EffectiveEngines | None
    runtime: EffectiveRuntime
    scheduling: Scheduling
    paused: bool

    def to_status(self, claim: str | None = None) -> EffectiveStatus:
        """Give the part that users want to see in ``status.effective``; ``claim`` holds the engines, where there are any."""
        return EffectiveStatus(
            replicas=self.replicas,
            tiers=tuple(_tier_status(tier, self.runtime) for tier in self.tiers),
            failover=EffectiveFailoverStatus(
                after=self.failover.after,
                recover_after=self.failover.recover_after,
                minimum_dwell=self.failover.minimum_dwell,
            ),
            engines=EffectiveEnginesStatus(
                claim_name=claim, timeout=self.engines.timeout, keep_unused=self.engines.keep_unused
            )
            if self.engines and claim
            else None,
            streaming=self.runtime.streaming,
            load_timeout=self.runtime.load_timeout,
            drain_timeout=self.runtime.drain_timeout,
            warmup_requests=self.runtime.warmup_requests,
        )


DEFAULT_AFTER = timedelta(minutes=2)
DEFAULT_RECOVER_AFTER = timedelta(minutes=5)
DEFAULT_MINIMUM_DWELL = timedelta(minutes=10)
DEFAULT_BUILD_TIMEOUT = timedelta(hours=1)
DEFAULT_KEEP_UNUSED = timedelta(hours=24)
DEFAULT_CACHE = EngineCache(size=parse_quantity("50Gi"))
DEFAULT_DRAIN_TIMEOUT = timedelta(seconds=30)
DEFAULT_WARMUP_REQUESTS = 2
SMALL_LOAD_BUDGET = timedelta(seconds=5)
LARGE_LOAD_BUDGET = timedelta(minutes=1)
"""Load budgets: of the small voice and of ONNX Runtime; of Triton with an LLM and TensorRT engines."""

_AUTOMATIC_TIERS = (
    Tier(name="gpu", backend=Backend.TRITON, gpu=GPU()),
    Tier(name="cpu", backend=Backend.ONNXRUNTIME),
)
_DEMO_TIERS = (Tier(name="cpu", backend=Backend.ONNXRUNTIME),)


def _amounts(**texts: str) -> dict[str, Quantity]:
    return {name: parse_quantity(text) for name, text in texts.items()}


# Limits stand above requests: a burst of long texts needs memory for a moment, and synthesis takes the CPU there is.
_GATEWAY = (_amounts(cpu="100m", memory="128Mi"), _amounts(cpu="1", memory="256Mi"))
_CONTAINERS = {
    (True, Backend.ONNXRUNTIME): (_amounts(cpu="500m"), _amounts(cpu="2")),
    (True, Backend.TRITON): (_amounts(cpu="500m", memory="768Mi"), _amounts(cpu="2", memory="1536Mi")),
    (False, Backend.ONNXRUNTIME): (_amounts(cpu="4", memory="8Gi"), _amounts(cpu="8", memory="12Gi")),
    (False, Backend.TRITON): (_amounts(cpu="4", memory="16Gi"), _amounts(cpu="8", memory="24Gi")),
}

# A build holds the source graph and what it makes of it, and checks one against the other.
_BUILDS = {
    (True, Backend.ONNXRUNTIME): (_amounts(cpu="500m", memory="1Gi"), _amounts(cpu="2", memory="2Gi")),
    (True, Backend.TRITON): (_amounts(cpu="500m", memory="1Gi"), _amounts(cpu="2", memory="2Gi")),
    (False, Backend.ONNXRUNTIME): (_amounts(cpu="4", memory="12Gi"), _amounts(cpu="8", memory="12Gi")),
    (False, Backend.TRITON): (_amounts(cpu="4", memory="24Gi"), _amounts(cpu="8", memory="48Gi")),
}
_FETCH = (_amounts(cpu="100m", memory="256Mi"), _amounts(cpu="2", memory="1Gi"))

_MI = 1024**2
_VOICE_GATEWAY, _VOICE_WORKER = 128 * _MI, 192 * _MI
"""Memory of a CPU pod with the small voice: its gateway, and each worker process; there is one for each CPU of the
limit. Under load they took 50 and 201 MB. Limits are twice that."""


def effective(spec: CosyVoiceDeploymentSpec, images: Images) -> EffectiveSpec:
    """Fill in every default. The same spec and images always give the same result."""
    tiers = spec.tiers or (_DEMO_TIERS if spec.model.family == Family.DEMO else _AUTOMATIC_TIERS)
    runtime = spec.runtime or Runtime()
    return EffectiveSpec(
        model=spec.model,
        replicas=1 if spec.replicas is None else spec.replicas,
        tiers=tuple(
            _effective_tier(tier, spec, images, below_gpu=any(above.gpu for above in tiers[:position]))
            for position, tier in enumerate(tiers)
        ),
        failover=_effective_failover(spec.failover or Failover()),
        engines=_effective_engines(spec, images),
        runtime=_effective_runtime(runtime, spec.model.family, images),
        scheduling=spec.scheduling or Scheduling(),
        paused=bool(spec.paused),
    )


def _effective_tier(tier: Tier, spec: CosyVoiceDeploymentSpec, images: Images, *, below_gpu: bool) -> EffectiveTier:
    demo = spec.model.family == Family.DEMO
    runtime, engines = spec.runtime or Runtime(), spec.engines or Engines()
    gpu = _effective_gpu(tier.gpu) if tier.gpu else None
    pods_per_unit = 2 if gpu is None and below_gpu and not demo else 1
    operator_image = images.triton if tier.backend == Backend.TRITON else images.cpu
    small = demo or tier.backend == Backend.ONNXRUNTIME
    budget = SMALL_LOAD_BUDGET if small else LARGE_LOAD_BUDGET
    return EffectiveTier(
        name=tier.name,
        backend=tier.backend,
        gpu=gpu,
        pods_per_unit=tier.replicas_per_unit or pods_per_unit,
        execution_provider=tier.execution_provider or (ExecutionProvider.CUDA if gpu else ExecutionProvider.CPU),
        image=tier.image or runtime.image or operator_image,
        builder_image=engines.builder_image or _builder(images, tier, demo=demo),
        build_resources=merge_resources(engines.resources, *_BUILDS[demo, tier.backend], gpu=gpu),
        precision=tier.precision,
        resources=merge_resources(tier.resources, *_default_amounts(demo, tier), gpu=gpu),
        load_budget=budget if runtime.load_budget is None else runtime.load_budget,
    )


def _default_amounts(demo: bool, tier: Tier) -> tuple[Mapping[str, Quantity], Mapping[str, Quantity]]:  # noqa: FBT001
    """Give default requests and limits of the container that computes in a tier."""
    requests, limits = _CONTAINERS[demo, tier.backend]
    if not (demo and tier.backend == Backend.ONNXRUNTIME):
        return requests, limits
    cpus = merge_resources(tier.resources, requests, limits).limits["cpu"]
    memory = _VOICE_GATEWAY + _VOICE_WORKER * math.ceil(parse_quantity(cpus).value)
    return requests | _amounts(memory=f"{memory // _MI}Mi"), limits | _amounts(memory=f"{2 * memory // _MI}Mi")


def _effective_gpu(gpu: GPU) -> EffectiveGPU:
    return EffectiveGPU(products=gpu.products or (), resource=gpu.resource_name or GPU_RESOURCE, count=gpu.count or 1)


def _effective_failover(failover: Failover) -> EffectiveFailover:
    return EffectiveFailover(
        after=DEFAULT_AFTER if failover.after is None else failover.after,
        recover_after=DEFAULT_RECOVER_AFTER if failover.recover_after is None else failover.recover_after,
        minimum_dwell=DEFAULT_MINIMUM_DWELL if failover.minimum_dwell is None else failover.minimum_dwell,
    )


def _builder(images: Images, tier: Tier, *, demo: bool) -> str:
    # The voice of family Demo is the same ONNX graph behind either backend.
    if tier.backend == Backend.TRITON and not demo:
        return images.gpu_builder
    # What serves can optimise graphs too, and is on the nodes already; only another precision needs more.
    return images.cpu if tier.precision in {None, Precision.FP32} else images.builder


def _effective_engines(spec: CosyVoiceDeploymentSpec, images: Images) -> EffectiveEngines | None:
    if spec.engines is None and spec.model.family == Family.DEMO:
        return None
    engines = spec.engines or Engines()
    cache = engines.cache or DEFAULT_CACHE
    return EffectiveEngines(
        cache=EffectiveCache(
            claim_name=cache.claim_name,
            size=str(cache.size or DEFAULT_CACHE.size),
            storage_class_name=cache.storage_class_name,
            access_modes=tuple(mode.value for mode in cache.access_modes or (AccessMode.READ_WRITE_MANY,)),
        ),
        timeout=DEFAULT_BUILD_TIMEOUT if engines.timeout is None else engines.timeout,
        keep_unused=DEFAULT_KEEP_UNUSED if engines.keep_unused is None else engines.keep_unused,
        fetch_image=images.fetch,
        fetch_resources=merge_resources(None, *_FETCH),
    )


def _effective_runtime(runtime: Runtime, family: Family, images: Images) -> EffectiveRuntime:
    return EffectiveRuntime(
        gateway_image=runtime.gateway_image or images.gateway,
        gateway_resources=merge_resources(runtime.gateway_resources, *_GATEWAY),
        streaming=family != Family.COSYVOICE2_UNET if runtime.streaming is None else runtime.streaming,
        load_timeout=DEFAULT_LOAD_TIMEOUT if runtime.load_timeout is None else runtime.load_timeout,
        warmup_requests=DEFAULT_WARMUP_REQUESTS if runtime.warmup_requests is None else runtime.warmup_requests,
        drain_timeout=DEFAULT_DRAIN_TIMEOUT if runtime.drain_timeout is None else runtime.drain_timeout,
        env=runtime.env or (),
        image_pull_secrets=tuple(secret.name for secret in runtime.image_pull_secrets or ()),
    )


def merge_resources(
    wanted: Resources | None,
    requests: Mapping[str, Quantity],
    limits: Mapping[str, Quantity],
    *,
    gpu: EffectiveGPU | None = None,
) -> EffectiveResources:
    """Lay what a user wants over the defaults, resource by resource, so that limits stay at or above requests.

    A default gives way to the user's other figure: a limit below the default request lowers that request, and the other
    way round.
    """
    given_requests, given_limits = (wanted.requests or {}, wanted.limits or {}) if wanted else ({}, {})
    merged_requests, merged_limits = dict(given_requests), dict(given_limits)
    for name, default in requests.items():
        merged_requests.setdefault(name, min(default, given_limits.get(name, default), key=_value))
    for name, default in limits.items():
        merged_limits.setdefault(name, max(default, given_requests.get(name, default), key=_value))
    if gpu:
        count = parse_quantity(gpu.count)
        merged_requests[gpu.resource] = merged_limits[gpu.resource] = count
    return EffectiveResources(
        requests={name: str(merged_requests[name]) for name in sorted(merged_requests)},
        limits={name: str(merged_limits[name]) for name in sorted(merged_limits)},
    )


def _value(quantity: Quantity) -> int:
    return quantity.milli


def _tier_status(tier: EffectiveTier, runtime: EffectiveRuntime) -> EffectiveTierStatus:
    return EffectiveTierStatus(
        name=tier.name,
        backend=tier.backend,
        image=tier.image,
        gateway_image=runtime.gateway_image if tier.backend == Backend.TRITON else None,
        execution_provider=tier.execution_provider,
        replicas_per_unit=tier.pods_per_unit,
        load_budget=tier.load_budget,
    )
