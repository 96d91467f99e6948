"""What planning reads and what it gives: the two ends of the pure part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cosyvoice_operator.api.defaults import Images
from cosyvoice_operator.core.children import ChildParams, JobParams, ObjectRef
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
class ProgressReport:
    """How far a fetch or a build is, in words, and rounded: they stand in a status, and should change a few times a minute."""

    text: str


@dataclass(frozen=True, slots=True)
class BuildTicket:
    """A build's place in the order of all builds of the cluster.

    Attributes:
        namespace: Its namespace.
        name: Name of its Job.
        created: When the Job was made.
        running: Whether it has been started.
    """

    namespace: str
    name: str
    created: datetime
    running: bool


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
        jobs: Raw Jobs of the namespace that build engines or fetch models, whoever needs them.
        job_pods: Raw pods of those Jobs.
        builds: All builds of the cluster that have not ended.
        progress: How far running Jobs are, by the uid of their pod.
    """

    owner: Json
    children: tuple[Json, ...]
    pods: tuple[Json, ...]
    nodes: tuple[NodeFacts, ...]
    reports: Mapping[str, RuntimeReport]
    blocked: tuple[Blocked, ...] = ()
    jobs: tuple[Json, ...] = ()
    job_pods: tuple[Json, ...] = ()
    builds: tuple[BuildTicket, ...] = ()
    progress: Mapping[str, ProgressReport] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """A pod that is to be asked: a runtime pod for its report, or the pod of a Job, again and again, for how far it is.

    Attributes:
        key: Key of the report; the uid of a Job's pod.
        url: Address to ask.
        progress: Whether it is the pod of a Job.
    """

    key: str
    url: str
    progress: bool = False


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
class JobAction:
    """What is to be done with one Job. It is made when it is missing and wanted; of one that exists only these parts are ever changed.

    Attributes:
        name: Its name.
        wanted: What it is made from; None when this resource doesn't need it any more, and gives it up.
        start: Whether it may run now.
        result: What is to be noted on it, as JSON text; None for nothing.
        delete: It is to be removed, and made anew at the next look if it is still wanted.
    """

    name: str
    wanted: JobParams | None
    start: bool = False
    result: str | None = None
    delete: bool = False


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
        jobs: What is to be done with Jobs that several resources may need.
    """

    children: tuple[ChildParams, ...]
    keep: frozenset[ObjectRef]
    status: Json
    events: tuple[EventParams, ...] = ()
    probes: tuple[ProbeTarget, ...] = ()
    requeue_after: float | None = None
    jobs: tuple[JobAction, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanConfig:
    """The operator's own settings that planning depends on."""

    images: Images
    gpu_rules: tuple[NodeRule, ...] = ()
    """What the administrator says of nodes that no label tells the GPU type of."""
    builds: int = 8
    """Builds and fetches that may run at once in the cluster."""
    builds_per_namespace: int = 2
    """The same for one namespace."""
