"""What a user may say about the pods that serve: resources, environment, placement and time budgets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from cosyvoice_operator.api.base import Model, Rule
from cosyvoice_operator.api.durations import Duration
from cosyvoice_operator.api.quantity import Quantity, QuantityField
from cosyvoice_operator.api.texts import (
    ContainerResource,
    DataKey,
    Image,
    LabelKey,
    LabelValue,
    ObjectName,
    VariableName,
    limited,
)

ENV_PREFIX = "COSYVOICE_"
"""Variables with this prefix are the operator's own."""


def _limits_cover_requests(resources: Resources) -> bool:
    limits, requests = resources.limits or {}, resources.requests or {}
    return all(name not in limits or request.value <= limits[name].value for name, request in requests.items())


class Resources(Model):
    """Requests and limits of one container, as in a pod. What is left out gets the operator's default."""

    requests: Annotated[Mapping[ContainerResource, QuantityField], Field(max_length=16)] | None = None
    """What the scheduler reserves, for example `{cpu: 500m, memory: 1Gi}`."""
    limits: Annotated[Mapping[ContainerResource, QuantityField], Field(max_length=16)] | None = None
    """What the container may use at most."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.requests) || !has(self.limits) || self.requests.all(name, !(name in self.limits) || "
            "quantity(string(self.requests[name])).compareTo(quantity(string(self.limits[name]))) <= 0)",
            message="a limit is below its request: raise the limit or lower the request, so that limits >= requests",
            holds=_limits_cover_requests,
        ),
    )

    def amounts(self, resource: str) -> tuple[Quantity, ...]:
        """Give what is written for one resource, in requests and limits."""
        return tuple(part[resource] for part in (self.requests, self.limits) if part and resource in part)

    def names(self) -> frozenset[str]:
        """Give the names of all resources that are written."""
        return frozenset(self.requests or ()) | frozenset(self.limits or ())


class KeySelector(Model):
    """One key of a Secret or ConfigMap in the namespace of the resource."""

    name: ObjectName
    """Name of the object."""
    key: DataKey
    """Key in the object."""
    optional: bool | None = None
    """Whether the pod starts when the object or the key is missing."""


class EnvVarSource(Model):
    """Where the value of a variable comes from. Exactly one is set."""

    secret_key_ref: KeySelector | None = None
    """A key of a Secret."""
    config_map_key_ref: KeySelector | None = None
    """A key of a ConfigMap."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.secretKeyRef) != has(self.configMapKeyRef)",
            message="exactly one of secretKeyRef and configMapKeyRef is needed",
            holds=lambda self: (self.secret_key_ref is None) != (self.config_map_key_ref is None),
        ),
    )


class EnvVar(Model):
    """An environment variable of the runtime containers."""

    name: VariableName
    """Name of the variable."""
    value: Annotated[str, limited(4096, shortest=0)] | None = None
    """Its value."""
    value_from: EnvVarSource | None = None
    """Where its value comes from."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!self.name.startsWith('COSYVOICE_')",
            message="variables that start with COSYVOICE_ are set by the operator: use the fields of the resource "
            "instead",
            holds=lambda self: not self.name.startswith(ENV_PREFIX),
        ),
        Rule(
            cel="has(self.value) != has(self.valueFrom)",
            message="an environment variable needs exactly one of value and valueFrom",
            holds=lambda self: (self.value is None) != (self.value_from is None),
        ),
    )


class PullSecret(Model):
    """A Secret of type `kubernetes.io/dockerconfigjson` in the namespace of the resource."""

    name: ObjectName
    """Name of the Secret."""


def _budget_fits(runtime: Runtime) -> bool:
    timeout = DEFAULT_LOAD_TIMEOUT if runtime.load_timeout is None else runtime.load_timeout
    return runtime.load_budget is None or runtime.load_budget <= timeout


DEFAULT_LOAD_TIMEOUT = timedelta(minutes=10)


class Runtime(Model):
    """Images, environment and time budgets of the pods that serve."""

    image: Image | None = None
    """Image of the container that computes, on every tier; a tier's own `image` goes first. Left out: the operator's
    image for the backend."""
    gateway_image: Image | None = None
    """Image of the gateway beside Triton. Left out: the operator's."""
    gateway_resources: Resources | None = None
    """Resources of the gateway beside Triton. On ONNXRuntime tiers the gateway is the container that computes: there
    `tiers[].resources` counts."""
    streaming: bool | None = None
    """Whether the model's server answers in pieces while it still computes. Left out: true wherever the family can."""
    load_timeout: Duration | None = None
    """How long a pod may take from start to ready before it is restarted. Left out: 10m."""
    load_budget: Duration | None = None
    """Model load time above which the condition ModelLoadSlow is raised. Left out: 5s for Demo and on ONNXRuntime, 1m
    on Triton."""
    warmup_requests: Annotated[int, Field(ge=0, le=100)] | None = None
    """Syntheses before a pod is ready. Left out: 2."""
    drain_timeout: Duration | None = None
    """How long running streams may take to end when a pod is stopped. Left out: 30s."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=64, json_schema_extra={"x-list-key": "name"})] | None = None
    """More environment variables for every container of the runtime pods."""
    image_pull_secrets: (
        Annotated[tuple[PullSecret, ...], Field(max_length=16, json_schema_extra={"x-list-key": "name"})] | None
    ) = None
    """Secrets for registries that need a login."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.loadTimeout) || duration(self.loadTimeout) >= duration('1s')",
            message="loadTimeout must be at least 1s: write how long loading may take, for example 10m",
            holds=lambda self: self.load_timeout is None or self.load_timeout >= timedelta(seconds=1),
        ),
        Rule(
            cel="!has(self.loadBudget) || duration(self.loadBudget) <= (has(self.loadTimeout) ? "
            "duration(self.loadTimeout) : duration('10m'))",
            message="loadBudget is above loadTimeout (10m if left out): a pod would be restarted before it counts "
            "as slow; lower loadBudget or raise loadTimeout",
            holds=_budget_fits,
        ),
        Rule(
            cel="!has(self.drainTimeout) || duration(self.drainTimeout) <= duration('1h')",
            message="drainTimeout must be at most 1h: a node could not be drained for that long",
            holds=lambda self: self.drain_timeout is None or self.drain_timeout <= timedelta(hours=1),
        ),
    )


class TolerationOperator(StrEnum):
    """How a toleration compares."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(Model):
    """A taint that the pods tolerate, as in a pod."""

    key: LabelKey | None = None
    """Key of the taint; every key if left out, with operator Exists."""
    operator: TolerationOperator | None = None
    """`Equal` (the default) or `Exists`."""
    value: LabelValue | None = None
    """Value of the taint, for operator Equal."""
    effect: TaintEffect | None = None
    """Effect of the taint; every effect if left out."""
    toleration_seconds: int | None = None
    """For effect NoExecute: how long a pod stays on a node that got the taint."""


class Scheduling(Model):
    """Where the pods of all tiers may run. Nodes with the right GPU are chosen by the operator."""

    node_selector: Annotated[Mapping[LabelKey, LabelValue], Field(max_length=16)] | None = None
    """Labels that a node must have."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] | None = None
    """Taints that the pods tolerate."""
    priority_class_name: ObjectName | None = None
    """Priority class of the pods."""
