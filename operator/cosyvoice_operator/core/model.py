"""What planning reads and what it gives: the two ends of the pure part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cosyvoice_operator.api.defaults import Images
from cosyvoice_operator.core.children import ChildParams, ObjectRef
from cosyvoice_operator.core.errors import Blocked
from cosyvoice_operator.core.gpu import NodeFacts, NodeRule

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RuntimeReport:
    """What a runtime pod says of itself at ``/status``.

    Attributes:
        ready: Loaded, warmed up, and its last synthesis was sane.
        family: Model family that it serves.
        backend: ``ONNXRuntime`` or ``Triton``.
        provider: Where it really computes: ``CPU`` or ``CUDA``.
        load_seconds: Seconds that the model alone took to load; None where the runtime can't tell.
        engine_key: Key of the engine it runs; None when it runs the model as it is.
    """

    ready: bool
    family: str
    backend: str
    provider: str
    load_seconds: float | None
    engine_key: str | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything known of one CosyVoiceDeployment at one moment.

    Attributes:
        owner: The raw resource.
        children: Raw objects that carry its label, pods aside.
        pods: Raw pods that carry its label.
        nodes: Facts of all nodes.
        reports: Reports of runtime pods, by :attr:`PodFacts.report_key`.
        blocked: Children that could not be written last time, and why.
    """

    owner: Json
    children: tuple[Json, ...]
    pods: tuple[Json, ...]
    nodes: tuple[NodeFacts, ...]
    reports: Mapping[str, RuntimeReport]
    blocked: tuple[Blocked, ...] = ()


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """A runtime pod whose report is wanted.

    Attributes:
        key: Key of the report.
        url: Its ``/status`` address.
    """

    key: str
    url: str


@dataclass(frozen=True, slots=True)
class EventParams:
    """A Kubernetes Event about the resource.

    Attributes:
        type: ``Normal`` or ``Warning``.
        reason: CamelCase.
        message: For people.
        action: What the operator did or saw, CamelCase.
        key: Identifies the transition, so that telling it twice makes one Event.
    """

    type: str
    reason: str
    message: str
    action: str
    key: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What should be, and when to look again.

    Attributes:
        children: Parameters of the wanted children, in the order in which they are applied.
        keep: Children that are left as they are: neither applied nor deleted.
        status: The whole wanted status.
        events: Transitions since the previous status.
        probes: Pods whose report is wanted.
        requeue_after: Seconds until time alone may change the plan; None when it can't.
    """

    children: tuple[ChildParams, ...]
    keep: frozenset[ObjectRef]
    status: Json
    events: tuple[EventParams, ...] = ()
    probes: tuple[ProbeTarget, ...] = ()
    requeue_after: float | None = None


@dataclass(frozen=True, slots=True)
class PlanConfig:
    """The operator's own settings that planning depends on."""

    images: Images
    gpu_rules: tuple[NodeRule, ...] = ()
    """What the administrator says of nodes that no label tells the GPU type of."""
