"""What each child object is made from: parameters only, so that templates decide how it looks and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True)
class Owner:
    """The resource that owns the children: enough for their ownerReference and labels."""

    name: str
    namespace: str
    uid: str


@dataclass(frozen=True)
class ObjectRef:
    """One child object."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True)
class ChildParams:
    """Base of all parameters.

    Attributes:
        owner: The owning resource.
        name: Name of the child.
        labels: All labels of the child.
        selector: Labels that choose the runtime pods this child is about.
    """

    kind = ""  # the Kubernetes kind; a plain class attribute, so no field

    owner: Owner
    name: str
    labels: Mapping[str, str]
    selector: Mapping[str, str]

    @property
    def ref(self) -> ObjectRef:
        """Where the child lives."""
        return ObjectRef(self.kind, self.owner.namespace, self.name)


@dataclass(frozen=True)
class ServiceAccountParams(ChildParams):
    """The identity of the runtime pods; it holds no token, since they never call the API server."""

    kind = "ServiceAccount"


@dataclass(frozen=True)
class ServiceParams(ChildParams):
    """One address over all pools."""

    kind = "Service"


@dataclass(frozen=True)
class DisruptionBudgetParams(ChildParams):
    """One budget over all pools: a drain takes one pod at a time, whatever tier it is on.

    Attributes:
        max_unavailable: Pods that may be unready before a drain has to wait.
    """

    kind = "PodDisruptionBudget"

    max_unavailable: int


@dataclass(frozen=True)
class ClaimParams(ChildParams):
    """The volume of fetched models and built engines.

    Attributes:
        size: How much is asked for.
        storage_class_name: Storage class; None for the cluster's default.
        access_modes: How many nodes may mount it.
    """

    kind = "PersistentVolumeClaim"

    size: str
    storage_class_name: str | None
    access_modes: tuple[str, ...]


@dataclass(frozen=True)
class MountParams:
    """A volume of a Job besides the cache, with the model's files. Exactly one of the two is set.

    Attributes:
        claim_name: A claim, mounted read-only.
        sub_path: Folder in it; empty for its root.
        image: An OCI image.
    """

    claim_name: str | None = None
    sub_path: str = ""
    image: str | None = None


@dataclass(frozen=True)
class JobParams(ChildParams):
    """A program that runs to its end: a fetch, a build, or a removal from the cache.

    Several resources may need the same Job; each is an owner and none the controller, so it goes with the last of them.

    Attributes:
        image: Image of the program.
        args: Its arguments.
        env: Environment variables as they stand in a container, in order.
        resources: ``requests`` and ``limits``.
        claim_name: Claim that is mounted at ``/cache``.
        model: The model's own volume, mounted at ``/model``; None when it is in the cache.
        service_account: Identity of the pod.
        terms: ``nodeSelectorTerms`` of the nodes that will do; empty for any.
        node_selector, tolerations, pull_secrets: As those of the runtime pods.
        timeout: How long it may take.
        shared: Whether several resources may need it, and it waits for its turn.
    """

    kind = "Job"

    image: str
    args: tuple[str, ...]
    env: tuple[Mapping[str, object], ...]
    resources: Mapping[str, Mapping[str, str]]
    claim_name: str
    model: MountParams | None
    service_account: str
    terms: tuple[Mapping[str, object], ...]
    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, object], ...]
    pull_secrets: tuple[str, ...]
    timeout: timedelta
    shared: bool = True


@dataclass(frozen=True)
class EngineMount:
    """An engine that runtime pods run, mounted read-only.

    Attributes:
        key: Its key.
        claim_name: Claim of the cache.
        arch: Architecture of the nodes that it runs on.
    """

    key: str
    claim_name: str
    arch: str


@dataclass(frozen=True)
class ContainerParams:
    """What differs between containers of runtime pods.

    Attributes:
        image: Image reference.
        resources: ``requests`` and ``limits``, each a map of resource name to quantity.
        env: Environment variables as they stand in a container, in order.
    """

    image: str
    resources: Mapping[str, Mapping[str, str]]
    env: tuple[Mapping[str, object], ...] = ()


@dataclass(frozen=True)
class DeploymentParams(ChildParams):
    """One pool: a tier on one GPU type, or on CPU.

    Attributes:
        pool_labels: Labels of the pods.
        replicas: Pods to run.
        surge: Pods that a rollout may have above ``replicas``; with 0 it takes one away first.
        unavailable: Pods that may be missing in a rollout.
        gateway: The container that speaks to clients.
        triton: The server behind it; None when the gateway computes by itself.
        service_account: Identity of the pods.
        terms: ``nodeSelectorTerms`` of the nodes that will do; empty for any.
        node_selector, tolerations, priority_class: ``spec.scheduling``, passed on.
        pull_secrets: Names of image pull secrets.
        load_timeout: Budget of the startup probe.
        drain_timeout: Longest time that running streams get to finish.
        engine: The engine that they run; None for the model as it is in the image.
        hold: The pod template of the Deployment that exists stays as it is: image, settings and engine change together.
    """

    kind = "Deployment"

    pool_labels: Mapping[str, str]
    replicas: int
    surge: int
    unavailable: int
    gateway: ContainerParams
    triton: ContainerParams | None
    service_account: str
    terms: tuple[Mapping[str, object], ...]
    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, object], ...]
    priority_class: str | None
    pull_secrets: tuple[str, ...]
    load_timeout: timedelta
    drain_timeout: timedelta
    engine: EngineMount | None = None
    hold: bool = False
