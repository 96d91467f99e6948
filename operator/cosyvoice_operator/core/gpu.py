"""GPU types from nodes: what each node offers, under names that compare exactly."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cosyvoice_operator.api.quantity import parse_quantity

PRODUCT_LABEL = "nvidia.com/gpu.product"
"""Written by GPU Feature Discovery on every node with NVIDIA GPUs."""

DEFAULT_RESOURCE = "nvidia.com/gpu"

# GPU Feature Discovery appends this when a GPU is shared by time-slicing or MPS: the silicon, and so the engine, is the same.
_SHARED_SUFFIX = "-SHARED"
_VENDOR_PREFIX = "NVIDIA-"

# Pressure on a node, a network that isn't up, a machine that a cloud or its autoscaler is about to take away.
_HEALTH_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "ToBeDeletedByClusterAutoscaler")


@dataclass(frozen=True, slots=True)
class GPUOffer:
    """GPUs of one type that one node can hand out.

    Attributes:
        gpu_type: Normalised product, see :func:`normalise_product`.
        resource: Extended resource name, e.g. ``nvidia.com/gpu``.
        allocatable: Number of ``resource`` units that the kubelet offers.
    """

    gpu_type: str
    resource: str
    allocatable: int


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What planning needs to know of a node. Equal facts mean that nothing that matters has changed."""

    name: str
    ready: bool
    schedulable: bool
    offers: tuple[GPUOffer, ...]


def normalise_product(label: str) -> str:
    """Give the one name of a GPU product, however old the labels are.

    The same card is ``A100-SXM4-40GB`` to an old GPU Feature Discovery and ``NVIDIA-A100-SXM4-40GB`` to a new one, and gets
    ``-SHARED`` when it is shared. Compare results for equality only: ``L4`` is a substring of ``L40S``.
    """
    return label.removesuffix(_SHARED_SUFFIX).removeprefix(_VENDOR_PREFIX)


def product_labels(gpu_type: str) -> tuple[str, ...]:
    """List every ``nvidia.com/gpu.product`` value that means this type, in a fixed order.

    A fixed list keeps the pod template stable when a node with another spelling joins: a template that followed the nodes would
    roll out all pods at that moment.
    """
    names = (_VENDOR_PREFIX + gpu_type, gpu_type)
    return (*names, *(name + _SHARED_SUFFIX for name in names))


def slug(gpu_type: str) -> str:
    """Give the part of an object name that stands for a GPU type, at most 24 characters.

    Only what can't be told apart by its letters gets a digest: ``L40S`` -> ``l40s``.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", gpu_type.lower()).strip("-")
    if plain == gpu_type.lower() and len(plain) <= 24:
        return plain
    digest = hashlib.sha256(gpu_type.encode()).hexdigest()[:4]
    return f"{plain[:19].strip('-')}-{digest}"


def parse_node(node: Mapping[str, Any]) -> NodeFacts:
    """Read a raw Node object. What can be handed out comes from ``status.allocatable``: labels are no proof of it."""
    meta = node.get("metadata") or {}
    status = node.get("status") or {}
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    return NodeFacts(
        name=meta.get("name", ""),
        ready=conditions.get("Ready") == "True",
        schedulable=_schedulable(node.get("spec") or {}),
        offers=tuple(_offers(meta.get("labels") or {}, status.get("capacity") or {}, status.get("allocatable") or {})),
    )


def _schedulable(spec: Mapping[str, Any]) -> bool:
    """Tell whether new pods may come. A taint of Kubernetes' own tells of the node's health; any other is a matter of tolerations."""
    ill = (taint for taint in spec.get("taints") or () if taint.get("key", "").startswith(_HEALTH_TAINTS))
    return not spec.get("unschedulable", False) and all(taint.get("effect") == "PreferNoSchedule" for taint in ill)


def _offers(
    labels: Mapping[str, str], capacity: Mapping[str, str], allocatable: Mapping[str, str]
) -> Iterable[GPUOffer]:
    product = labels.get(PRODUCT_LABEL)
    if not product:
        return
    for resource in (DEFAULT_RESOURCE, f"{DEFAULT_RESOURCE}.shared"):
        free = _count(allocatable.get(resource))
        # A node whose devices are all unhealthy still has them: its type exists, and its pool must not vanish.
        if free or _count(capacity.get(resource)):
            yield GPUOffer(normalise_product(product), resource, free)


def _count(quantity: str | None) -> int:
    """Read a number of devices; the API server writes a thousand slices of a shared GPU as ``1k``."""
    return 0 if quantity is None else int(parse_quantity(quantity).value)


def types_present(nodes: Iterable[NodeFacts], resource: str) -> tuple[str, ...]:
    """List the GPU types that nodes have under ``resource``, sorted by name so that two runs agree.

    Nodes that are cordoned, not ready or out of healthy devices count: their pods' pools must not come and go with them.
    """
    return tuple(sorted({offer.gpu_type for node in nodes for offer in node.offers if offer.resource == resource}))


@dataclass(frozen=True, slots=True)
class Supply:
    """Nodes that have one GPU type: how many there are, and how many can take a pod for it now."""

    nodes: int
    usable: int


def supply(nodes: Iterable[NodeFacts], gpu_type: str, resource: str) -> Supply:
    """Count the nodes of a GPU type. A usable one is Ready, not cordoned, and has at least one allocatable GPU."""
    having = [
        (node, offer)
        for node in nodes
        for offer in node.offers
        if (offer.gpu_type, offer.resource) == (gpu_type, resource)
    ]
    return Supply(len(having), sum(node.ready and node.schedulable and offer.allocatable > 0 for node, offer in having))
