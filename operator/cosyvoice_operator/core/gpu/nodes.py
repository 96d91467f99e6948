"""What nodes offer: GPU types with their figures, from capacity for the numbers and from labels for the types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cosyvoice_operator.api.quantity import parse_quantity
from cosyvoice_operator.core.gpu.labels import (
    ARCH_LABEL,
    INVALID_MIG,
    PRODUCT_LABEL,
    Learnt,
    NodeRule,
    capability,
    labelled,
    learn,
    number,
    partitioned,
)
from cosyvoice_operator.core.gpu.names import SHARED_SUFFIX, UNKNOWN, TypeName, on_arch
from cosyvoice_operator.core.gpu.products import version

DEFAULT_RESOURCE = "nvidia.com/gpu"

_GPU_RESOURCE = re.compile(r"nvidia\.com/(?:gpu|mig-(?P<profile>[a-z0-9.]+?))(?:\.shared)?")

# Pressure on a node, a network that isn't up, a machine that a cloud or its autoscaler is about to take away.
_HEALTH_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "ToBeDeletedByClusterAutoscaler")


class Sharing(StrEnum):
    """How several pods get at one GPU."""

    NONE = "none"
    TIME_SLICING = "time-slicing"
    """In turns, each with the whole memory and nothing that keeps them apart."""
    MPS = "mps"
    """At once, each with an equal part of the memory."""


@dataclass(frozen=True, slots=True)
class GPUOffer:
    """GPUs of one type that one node can hand out.

    Attributes:
        gpu_type: Normalised product, see :func:`normalise_product`; ``Unknown`` where nothing tells it.
        resource: Extended resource name, e.g. ``nvidia.com/gpu``.
        allocatable: Number of ``resource`` units that the kubelet offers.
        source: What told the type: the key of a label, or ``ResourceSlice``; empty where nothing did.
        memory_mib: Memory of one GPU or slice in MiB, as the node tells it.
        compute_capability: ``major.minor``, as the node tells it.
        sharing: How several pods get at one GPU.
        clients: Pods that share one GPU; 1 where it isn't shared.
        placeable: Whether the labels of the node, which pods are placed by, tell this type and no other.
    """

    gpu_type: str
    resource: str
    allocatable: int
    source: str = ""
    memory_mib: int | None = None
    compute_capability: str | None = None
    sharing: Sharing = Sharing.NONE
    clients: int = 1
    placeable: bool = True

    @property
    def whole(self) -> bool:
        """Whether it is about whole GPUs, or all GPUs of the node cut in one way: a node has one offer of this kind."""
        return self.resource.removesuffix(".shared") == DEFAULT_RESOURCE


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What planning needs to know of a node. Equal facts mean that nothing that matters has changed.

    Attributes:
        name: Name of the node.
        ready: Whether its kubelet says so.
        schedulable: Whether new pods may come.
        offers: GPUs that it has, in a fixed order.
        arch: As in ``kubernetes.io/arch``; empty where the node doesn't tell.
        labelled: GPU type that pods find by its labels, whether it has any GPU or not; empty where there is none.
        invalid: Whether its labels say that its MIG slices can't be named.
    """

    name: str
    ready: bool
    schedulable: bool
    offers: tuple[GPUOffer, ...]
    arch: str = ""
    labelled: str = ""
    invalid: bool = False


@dataclass(frozen=True, slots=True)
class GPUTypeFacts:
    """What holds for a GPU type on every node: what an engine may be built for.

    Attributes:
        gpu_type: Normalised product.
        resource: Extended resource name.
        memory_mib: Memory of one GPU or slice in MiB; None when nothing tells it.
        compute_capability: ``major.minor``; None when nothing tells it.
        mig_profile: Profile of a MIG slice, e.g. ``1g.5gb``; None for a whole GPU.
        arch: Architecture of the host, as in ``kubernetes.io/arch``.
        pod_mib: Memory that one pod gets on the node that gives most: less than ``memory_mib`` where MPS divides it.
    """

    gpu_type: str
    resource: str
    memory_mib: int | None
    compute_capability: str | None
    mig_profile: str | None
    arch: str
    pod_mib: int | None


def parse_node(node: Mapping[str, Any], rules: tuple[NodeRule, ...] = ()) -> NodeFacts:
    """Read a raw Node object. What can be handed out comes from ``status.allocatable``: labels are no proof of it."""
    meta = node.get("metadata") or {}
    labels = meta.get("labels") or {}
    status = node.get("status") or {}
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    learnt = learn(labels, rules)
    arch = labels.get(ARCH_LABEL, "")
    return NodeFacts(
        name=meta.get("name", ""),
        ready=conditions.get("Ready") == "True",
        schedulable=_schedulable(node.get("spec") or {}),
        offers=tuple(_offers(labels, status.get("capacity") or {}, status.get("allocatable") or {}, learnt)),
        arch=arch,
        labelled=on_arch(learnt.product, arch) if learnt and learnt.placeable else "",
        invalid=labels.get(PRODUCT_LABEL, "").endswith(INVALID_MIG),
    )


def _schedulable(spec: Mapping[str, Any]) -> bool:
    """Tell whether new pods may come. A taint of Kubernetes' own tells of the node's health; any other is a matter of tolerations."""
    ill = (taint for taint in spec.get("taints") or () if taint.get("key", "").startswith(_HEALTH_TAINTS))
    return not spec.get("unschedulable", False) and all(taint.get("effect") == "PreferNoSchedule" for taint in ill)


def _offers(
    labels: Mapping[str, str],
    capacity: Mapping[str, str],
    allocatable: Mapping[str, str],
    node: Learnt | None,
) -> Iterable[GPUOffer]:
    for resource in sorted({*capacity, *allocatable}):
        match = _GPU_RESOURCE.fullmatch(resource)
        if match is None:
            continue
        free = _count(allocatable.get(resource))
        # A node whose devices are all unhealthy still has them: its type exists, and its pool must not vanish.
        if free or _count(capacity.get(resource)):
            learnt = _slice(labels, resource, match["profile"], node) if match["profile"] else node
            yield _offer(labels, resource, free, learnt)


def _slice(labels: Mapping[str, str], resource: str, profile: str, node: Learnt | None) -> Learnt | None:
    """Read what is told of a MIG slice with a resource of its own, beside which the node may have whole GPUs and other slices."""
    prefix = resource.removesuffix(".shared")
    memory = number(labels.get(f"{prefix}.memory"))
    if product := labels.get(f"{prefix}.product"):
        return labelled(product, f"{prefix}.product", memory, capability(labels))
    if node is None or TypeName.parse(node.product).mig:
        return None
    # A profile with a plus ("1g.10gb+me") makes no valid label, and its resource has a dot instead: "mig-1g.10gb.me".
    return Learnt(partitioned(node.product, re.sub(r"gb\.", "gb", profile)), node.source, memory, capability(labels))


def _offer(labels: Mapping[str, str], resource: str, free: int, learnt: Learnt | None) -> GPUOffer:
    sharing, clients = _sharing(labels, resource)
    if learnt is None:
        return GPUOffer(UNKNOWN, resource, free, sharing=sharing, clients=clients, placeable=False)
    return GPUOffer(
        gpu_type=on_arch(learnt.product, labels.get(ARCH_LABEL, "")),
        resource=resource,
        allocatable=free,
        source=learnt.source,
        memory_mib=learnt.memory_mib,
        compute_capability=learnt.compute_capability,
        sharing=sharing,
        clients=clients,
        placeable=learnt.placeable,
    )


def _sharing(labels: Mapping[str, str], resource: str) -> tuple[Sharing, int]:
    """Read how many pods share a GPU. Old releases label the number and not the strategy."""
    prefix = resource.removesuffix(".shared")
    clients = number(labels.get(f"{prefix}.replicas")) or number(
        labels.get("cloud.google.com/gke-max-shared-clients-per-gpu")
    )
    strategy = labels.get(f"{prefix}.sharing-strategy") or labels.get("cloud.google.com/gke-gpu-sharing-strategy")
    if strategy == Sharing.MPS:
        return Sharing.MPS, clients or 1
    shared = resource != prefix or labels.get(f"{prefix}.product", "").endswith(SHARED_SUFFIX)
    if shared or (clients or 1) > 1:
        return Sharing.TIME_SLICING, clients or 1
    return Sharing.NONE, 1


def _count(quantity: str | None) -> int:
    """Read a number of devices; the API server writes a thousand slices of a shared GPU as ``1k``."""
    return 0 if quantity is None else int(parse_quantity(quantity).value)


def nodes_by_type(nodes: Iterable[NodeFacts], resource: str) -> dict[str, list[NodeFacts]]:
    """Sort nodes by the GPU types that pods can choose under ``resource``; types by name, so that two runs agree.

    Nodes that are cordoned, not ready or out of healthy devices count: their pods' pools must not come and go with them.
    """
    found: dict[str, list[NodeFacts]] = {}
    for node in nodes:
        for offer in node.offers:
            if offer.resource == resource and offer.placeable:
                found.setdefault(offer.gpu_type, []).append(node)
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Supply:
    """Nodes that have one GPU type: how many there are, and how many can take a pod for it now."""

    nodes: int
    usable: int


def supply(nodes: Iterable[NodeFacts], gpu_type: str, resource: str) -> Supply:
    """Count the nodes of a GPU type. A usable one is Ready, not cordoned, and has at least one allocatable GPU."""
    having = [(node, offer) for node in nodes for offer in _matching(node, gpu_type, resource) if offer.placeable]
    return Supply(len(having), sum(node.ready and node.schedulable and offer.allocatable > 0 for node, offer in having))


def unplaceable(nodes: Iterable[NodeFacts], resource: str) -> tuple[str, ...]:
    """Say which nodes have GPUs under ``resource`` that no pod can choose, and what to do about it."""
    unknown: list[str] = []
    others: dict[str, list[str]] = {}
    for node in nodes:
        types = [offer.gpu_type for offer in node.offers if offer.resource == resource and not offer.placeable]
        if UNKNOWN in types:
            unknown.append(node.name)
        elif types:
            others.setdefault(", ".join(types), []).append(node.name)
    told = [f"Nothing tells the GPU type of {_some(unknown)}: {_LABEL_IT}."] if unknown else []
    told += [
        f"The labels of {_some(names)} don't tell that the GPUs are {types}, and pods are placed by labels: {_LABEL_IT}; "
        "several models in one node can't be told apart."
        for types, names in sorted(others.items())
    ]
    return tuple(told)


_LABEL_IT = "run GPU Feature Discovery there, or name the GPUs in the operator's settings (GPU_NODES)"


def _some(names: list[str]) -> str:
    """Name a few nodes; a cluster may have hundreds of a kind."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"node(s) {', '.join(names[:3])}{more}"


def type_facts(nodes: Iterable[NodeFacts], gpu_type: str, resource: str) -> GPUTypeFacts:
    """Say what holds for a GPU type wherever it is.

    The product table comes first and labels second, the least of them: drivers report different figures for one card, and an engine must
    not be built anew because a node with another driver joins. With no node and no entry in the table the figures are None.
    """
    name = TypeName.parse(gpu_type)
    known = name.product
    offers = [offer for node in nodes for offer in _matching(node, gpu_type, resource)]
    memories = [offer.memory_mib for offer in offers if offer.memory_mib]
    capabilities = [offer.compute_capability for offer in offers if offer.compute_capability]
    memory = known.memory_mib if known else min(memories, default=None)
    divisors = [offer.clients if offer.sharing is Sharing.MPS else 1 for offer in offers]
    return GPUTypeFacts(
        gpu_type=gpu_type,
        resource=resource,
        memory_mib=memory,
        compute_capability=known.compute_capability if known else min(capabilities, key=version, default=None),
        mig_profile=name.mig or None,
        arch=name.arch,
        pod_mib=memory // min(divisors, default=1) if memory else None,
    )


def _matching(node: NodeFacts, gpu_type: str, resource: str) -> Iterable[GPUOffer]:
    return (offer for offer in node.offers if (offer.gpu_type, offer.resource) == (gpu_type, resource))
