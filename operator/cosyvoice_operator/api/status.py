"""The status of a CosyVoiceDeployment: what really serves, and why it is so.

The schema is lenient where the spec's is strict: a status that the API server refused would leave users without an
answer.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from cosyvoice_operator.api.base import Model
from cosyvoice_operator.api.durations import format_duration, parse_duration

Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
"""RFC 3339, UTC."""

Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string"}),
]
"""A duration as in the spec, without the rules that refuse one."""


class Condition(Model):
    """One observation, in the shape of `metav1.Condition`."""

    type: Annotated[str, Field(max_length=316)]
    """CamelCase name of what is observed."""
    status: Literal["True", "False", "Unknown"]
    """Whether it is so."""
    observed_generation: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] | None = None
    """Generation of the spec that the observation is about."""
    last_transition_time: Time
    """When `status` last changed."""
    reason: Annotated[str, Field(max_length=1024)]
    """CamelCase reason, for programs."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """What, where, since when, and what to do, for people."""


class ServingStatus(Model):
    """What serves now."""

    units: int
    """Units that were asked for."""
    ready_units: int
    """Units that are ready."""
    summary: str
    """Both, for the column: `3/3`."""
    tier: str | None = None
    """Tier whose pods serve, or `mixed`; absent while none serves."""
    gpu: str | None = None
    """GPU types whose pods serve, comma-separated; absent while only CPUs do."""
    load: str | None = None
    """Longest model load among the pools that serve, for the column: `3.2s`."""


class ModelLoad(Model):
    """The last load of a pool's model."""

    seconds: float | None = None
    """Seconds that loading the model took, as the runtime reports them."""
    pod_start_seconds: float | None = None
    """Seconds from the start of the container to ready."""
    slow: bool | None = None
    """Whether `seconds` was above `runtime.loadBudget`."""


class PoolStatus(Model):
    """One tier on one GPU type: one Deployment."""

    name: str
    """Name of the Deployment."""
    tier: str
    """Name of the tier."""
    gpu_type: str | None = None
    """GPU type; absent on CPU."""
    desired: int = 0
    """Pods that are asked for."""
    ready: int = 0
    """Pods that are ready."""
    pending: int = 0
    """Pods that wait for a node."""
    state: str
    """`Serving`, `Starting`, `Idle`, or why it does not get what it was asked for: `Exhausted`, `NoSuchGPU`,
    `Misconfigured`, `LoadFailed`, ..."""
    reason: str | None = None
    """CamelCase detail of the state."""
    message: str | None = None
    """What was seen, and what to do."""
    since: Time | None = None
    """When the state began. A restarted operator goes on from here."""
    active_since: Time | None = None
    """When the pool was last asked for pods after it had none."""
    engine_key: str | None = None
    """Key of the engine that the pods run."""
    model_load: ModelLoad | None = None
    """The last load of the model."""
    provider: str | None = None
    """What the pods really compute on, as they report it: `CPU` or `CUDA`."""


class EngineStatus(Model):
    """One engine that this resource needs, or needed until lately."""

    key: str
    """Names it in the cache: everything that it depends on, digested."""
    backend: str | None = None
    """Backend that it is for."""
    gpu_type: str | None = None
    """GPU type that it is for; absent on CPU."""
    state: str
    """`Queued`, `Building`, `Ready`, `Failed`, `Unused`, or what it waits for: `WaitingForCache`, `WaitingForNode`,
    `NoNode`."""
    reason: str | None = None
    """CamelCase detail of the state."""
    message: str | None = None
    """What was seen, and what to do."""
    since: Time | None = None
    """When the state began."""
    job: str | None = None
    """Job that builds it."""
    seconds: float | None = None
    """Seconds that the build took."""
    bytes: Annotated[int, Field(json_schema_extra={"format": "int64"})] | None = None
    """Size in bytes."""
    rebuilds: int | None = None
    """How often it was built anew because pods found it damaged."""
    attempt: str | None = None
    """Digest of the image, resources and timeout that this resource last had it tried with."""


class ModelStatus(Model):
    """The model that is served."""

    family: str
    """Model family."""
    source: str
    """Kind of source, for example `embedded`."""
    digest: str | None = None
    """Digest over the content of its files; absent until they are there."""
    path: str | None = None
    """Where they are in the cache."""
    state: str | None = None
    """`Fetching`, `Ready`, `Failed`, or what it waits for; absent where nothing is fetched."""
    message: str | None = None
    """What was seen, and what to do."""
    since: Time | None = None
    """When the state began."""
    bytes: Annotated[int, Field(json_schema_extra={"format": "int64"})] | None = None
    """Size of its files in bytes."""
    attempt: str | None = None
    """Digest of the image, resources and timeout that this resource last had it fetched with."""


class EffectiveTierStatus(Model):
    """A tier with all defaults filled in."""

    name: str
    """Name of the tier."""
    backend: str
    """What computes."""
    image: str
    """Image of the container that computes."""
    gateway_image: str | None = None
    """Image of the gateway beside Triton."""
    execution_provider: str
    """What must compute."""
    replicas_per_unit: int
    """Pods for one unit."""
    load_budget: Duration
    """Model load time above which ModelLoadSlow is raised."""


class EffectiveFailoverStatus(Model):
    """The times of failover with all defaults filled in."""

    after: Duration
    """How long a shortage must last."""
    recover_after: Duration
    """How long a tier must have been ready again."""
    minimum_dwell: Duration
    """How long a lower tier serves at least."""


class EffectiveEnginesStatus(Model):
    """`spec.engines` with all defaults filled in."""

    claim_name: str
    """Claim that holds models and engines."""
    timeout: Duration
    """How long a build or a fetch may take."""
    keep_unused: Duration
    """How long an engine is kept that no pool needs."""


class EffectiveStatus(Model):
    """The spec as the operator reads it, defaults included. The spec itself is never written."""

    replicas: int
    """Units to keep up."""
    tiers: Annotated[tuple[EffectiveTierStatus, ...], Field(json_schema_extra={"x-list-key": "name"})]
    """Tiers in the order in which they are tried."""
    failover: EffectiveFailoverStatus
    """The times of failover."""
    engines: EffectiveEnginesStatus | None = None
    """How engines are built and kept; absent where the model runs as it is."""
    streaming: bool
    """Whether the model's server answers in pieces."""
    load_timeout: Duration
    """How long a pod may take from start to ready."""
    drain_timeout: Duration
    """How long running streams may take to end."""
    warmup_requests: int
    """Syntheses before a pod is ready."""


class CosyVoiceDeploymentStatus(Model):
    """What really serves, on what, and why."""

    observed_generation: Annotated[int, Field(json_schema_extra={"format": "int64"})] | None = None
    """Generation of the spec that this status is about."""
    replicas: int | None = None
    """Ready units, for the scale subresource."""
    selector: str | None = None
    """Label selector of the runtime pods, for the scale subresource."""
    url: str | None = None
    """Address of the speech API inside the cluster."""
    serving: ServingStatus | None = None
    """What serves now."""
    pools: Annotated[tuple[PoolStatus, ...], Field(json_schema_extra={"x-list-key": "name"})] | None = None
    """All pools, in the order in which they are tried."""
    model: ModelStatus | None = None
    """The model that is served."""
    engines: Annotated[tuple[EngineStatus, ...], Field(json_schema_extra={"x-list-key": "key"})] | None = None
    """Engines, those in use first."""
    effective: EffectiveStatus | None = None
    """The spec as the operator reads it, defaults included."""
    conditions: Annotated[tuple[Condition, ...], Field(json_schema_extra={"x-list-key": "type"})] | None = None
    """Ready, Reconciling, Stalled, CapacityAvailable, FallbackActive, ModelLoadSlow, ProviderMismatch, EnginesReady."""
