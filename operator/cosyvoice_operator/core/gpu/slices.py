"""What dynamic resource allocation tells of GPUs: ResourceSlices of NVIDIA's driver, laid over what labels and capacity tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cosyvoice_operator.api.quantity import parse_quantity
from cosyvoice_operator.core.gpu.labels import partitioned
from cosyvoice_operator.core.gpu.names import UNKNOWN, normalise_product, on_arch
from cosyvoice_operator.core.gpu.nodes import DEFAULT_RESOURCE, GPUOffer, NodeFacts

DRIVER = "gpu.nvidia.com"
SLICE_SOURCE = "ResourceSlice"
MIG_CLASS = "mig.nvidia.com"
"""Device class of MIG slices. It stands in place of a resource name: only a resource claim can ask for it."""


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU or MIG slice.

    Attributes:
        product: Normalised, with the MIG profile.
        resource: What a pod asks for to get it.
        memory_mib: Memory in MiB.
        compute_capability: ``major.minor``.
        healthy: Whether it can be handed out.
    """

    product: str
    resource: str
    memory_mib: int | None
    compute_capability: str | None
    healthy: bool


@dataclass(frozen=True, slots=True)
class SliceFacts:
    """What planning needs to know of a ResourceSlice.

    Attributes:
        node: Node that has the devices; empty for slices that aren't about NVIDIA GPUs of one node.
        pool: Name of the pool that the slice is a part of.
        generation: Generation of the pool; slices of an earlier one are on their way out.
        devices: In the order in which they stand there.
    """

    node: str
    pool: str
    generation: int
    devices: tuple[Device, ...]


def parse_slice(raw: Mapping[str, Any]) -> SliceFacts:
    """Read a raw ResourceSlice of ``resource.k8s.io/v1``."""
    spec = raw.get("spec") or {}
    pool = spec.get("pool") or {}
    ours = spec.get("driver") == DRIVER
    devices = (_device(device) for device in (spec.get("devices") or () if ours else ()))
    return SliceFacts(
        node=spec.get("nodeName", "") if ours else "",
        pool=pool.get("name", ""),
        generation=pool.get("generation", 0),
        devices=tuple(device for device in devices if device),
    )


def _device(device: Mapping[str, Any]) -> Device | None:
    """Read a device; None for one that isn't there yet: a MIG slice that a claim would have to cut first, or no GPU at all."""
    attributes = {name.rpartition("/")[2]: value for name, value in (device.get("attributes") or {}).items()}
    kind, profile = _text(attributes, "type"), _text(attributes, "profile")
    if kind not in {"gpu", "mig"} or (kind == "mig" and device.get("consumesCounters")):
        return None
    memory = ((device.get("capacity") or {}).get("memory") or {}).get("value")
    version = _text(attributes, "cudaComputeCapability")
    product = normalise_product(_text(attributes, "productName"))
    return Device(
        product=normalise_product(partitioned(product, profile if kind == "mig" else "")),
        resource=DEFAULT_RESOURCE if kind == "gpu" else MIG_CLASS,
        memory_mib=int(parse_quantity(memory).value) // 1024**2 if memory else None,
        compute_capability=".".join(version.split(".")[:2]) if version else None,
        healthy=all(taint.get("effect") == "None" for taint in device.get("taints") or ()),
    )


def _text(attributes: Mapping[str, Any], name: str) -> str:
    value = attributes.get(name) or {}
    return str(value.get("string") or value.get("version") or "")


def merge_slices(nodes: Iterable[NodeFacts], slices: Iterable[SliceFacts]) -> tuple[NodeFacts, ...]:
    """Lay what ResourceSlices tell over what the nodes tell.

    Slices name each device, so that they win. Pods however are placed by node labels: where these tell nothing, or something else, or the
    node has several models, the type is known and no pod of ours can choose it.
    """
    by_node: dict[str, list[SliceFacts]] = {}
    for facts in slices:
        by_node.setdefault(facts.node, []).append(facts)
    return tuple(_with_devices(node, _current(by_node[node.name])) if node.name in by_node else node for node in nodes)


def _current(slices: Iterable[SliceFacts]) -> list[Device]:
    newest: dict[str, int] = {}
    held = list(slices)
    for facts in held:
        newest[facts.pool] = max(facts.generation, newest.get(facts.pool, 0))
    return [device for facts in held if facts.generation == newest[facts.pool] for device in facts.devices]


def _with_devices(node: NodeFacts, devices: list[Device]) -> NodeFacts:
    whole, parts = (_by_type(node, devices, resource) for resource in (DEFAULT_RESOURCE, MIG_CLASS))
    counted = [offer for offer in node.offers if offer.whole]
    offers = [offer for offer in node.offers if not offer.whole]
    if not whole:
        offers += counted
    elif len(whole) == 1 and counted:
        # The device plugin counts what pods can ask for: shares of a GPU, and healthy ones only.
        [(gpu_type, (first, *_))] = whole.items()
        offers += [_confirmed(offer, gpu_type, first) for offer in counted]
    else:
        alone = len(whole) == 1
        offers += [
            _offered(gpu_type, found, placeable=alone and gpu_type == node.labelled)
            for gpu_type, found in whole.items()
        ]
    offers += [_offered(gpu_type, found, placeable=False) for gpu_type, found in parts.items()]
    return replace(node, offers=tuple(offers))


def _by_type(node: NodeFacts, devices: Iterable[Device], resource: str) -> dict[str, list[Device]]:
    found: dict[str, list[Device]] = {}
    for device in devices:
        if device.resource == resource and device.product != UNKNOWN:
            found.setdefault(on_arch(device.product, node.arch), []).append(device)
    return dict(sorted(found.items()))


def _confirmed(offer: GPUOffer, gpu_type: str, device: Device) -> GPUOffer:
    return replace(
        offer,
        gpu_type=gpu_type,
        source=SLICE_SOURCE,
        memory_mib=device.memory_mib or offer.memory_mib,
        compute_capability=device.compute_capability or offer.compute_capability,
        placeable=offer.placeable and offer.gpu_type == gpu_type,
    )


def _offered(gpu_type: str, devices: list[Device], *, placeable: bool) -> GPUOffer:
    return GPUOffer(
        gpu_type=gpu_type,
        resource=devices[0].resource,
        allocatable=sum(device.healthy for device in devices),
        source=SLICE_SOURCE,
        memory_mib=min((device.memory_mib for device in devices if device.memory_mib), default=None),
        compute_capability=devices[0].compute_capability,
        placeable=placeable,
    )
