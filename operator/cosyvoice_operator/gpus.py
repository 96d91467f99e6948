"""What GPU types a cluster or a file has, as the operator sees them: ``cosyvoice-operator gpus``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic.alias_generators import to_camel

from cosyvoice_operator.api.source import Family
from cosyvoice_operator.core.gpu import (
    UNKNOWN,
    GPUOffer,
    NodeFacts,
    NodeRule,
    Sharing,
    merge_slices,
    parse_node,
    parse_slice,
    slug,
    type_facts,
    unplaceable,
    verdicts,
)
from cosyvoice_operator.core.model import Json
from cosyvoice_operator.kube.client import KubeClient
from cosyvoice_operator.kube.errors import ForbiddenError, NotFoundError
from cosyvoice_operator.kube.limiter import TokenBucket
from cosyvoice_operator.kube.login import load_login
from cosyvoice_operator.kube.resources import NODE, RESOURCE_SLICE, Resource
from cosyvoice_operator.offline import OfflineError, read_objects
from cosyvoice_operator.settings import Settings

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Row:
    """One GPU type on one node. The fields are those of the JSON output.

    Attributes:
        node: Name of the node.
        gpu_type: Normalised product; ``Unknown`` where nothing tells it.
        slug: What stands for the type in names of Deployments.
        resource: What a pod asks for; empty where the kubelet offers nothing.
        count: Allocatable units of ``resource``.
        memory_mib: Memory of one GPU or slice in MiB, as the operator counts with it.
        pod_mib: What one pod gets of it in MiB: less where MPS divides it.
        compute_capability: ``major.minor``.
        mig_profile: Profile of a MIG slice.
        sharing: How several pods get at one GPU.
        clients: Pods that share one GPU.
        arch: Architecture of the host.
        ready: Whether the node is.
        schedulable: Whether new pods may come.
        source: What told the type: the key of a label, or ``ResourceSlice``.
        backends: Backends that can serve the family, best first.
        refusals: Why the others can't, and what to do about it.
    """

    node: str
    gpu_type: str
    slug: str
    resource: str
    count: int
    memory_mib: int | None
    pod_mib: int | None
    compute_capability: str | None
    mig_profile: str | None
    sharing: Sharing
    clients: int
    arch: str
    ready: bool
    schedulable: bool
    source: str
    backends: tuple[str, ...]
    refusals: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Give it with the names that JSON has elsewhere."""
        return {to_camel(name).replace("Mib", "MiB"): value for name, value in asdict(self).items()}


async def from_cluster(settings: Settings, family: Family) -> tuple[Row, ...]:
    """List the GPU types of a cluster.

    Raises:
        LoginError: There are no credentials.
        ApiError: Nodes can't be listed.
    """
    login = await load_login(settings.kubeconfig, settings.context, connections=2)
    writes = TokenBucket(settings.write_qps, settings.write_burst, time.monotonic)
    async with KubeClient(login, writes, _Nobody(), settings.request_timeout) as client:
        nodes = await _list(client, NODE)
        try:
            slices = await _list(client, RESOURCE_SLICE)
        except (NotFoundError, ForbiddenError):
            slices = []
    return rows(nodes, slices, family, settings.gpu_rules())


def from_file(file: Path, settings: Settings, family: Family) -> tuple[Row, ...]:
    """List the GPU types of the Nodes, and of the ResourceSlices if there are any, in a file.

    Raises:
        OfflineError: The file can't be read, or has no Node.
    """
    nodes = list(read_objects(file, "Node"))
    if not nodes:
        raise OfflineError(f"{file}: there is no Node in it; `kubectl get nodes -o yaml` writes such a file")
    return rows(nodes, list(read_objects(file, "ResourceSlice")), family, settings.gpu_rules())


def rows(
    nodes: Sequence[Json], slices: Sequence[Json], family: Family, rules: tuple[NodeRule, ...] = ()
) -> tuple[Row, ...]:
    """Say what each node with GPUs offers and what that can serve, in the order of the nodes."""
    parsed = merge_slices(
        [_read("Node", node, lambda raw: parse_node(raw, rules)) for node in nodes],
        [_read("ResourceSlice", one, parse_slice) for one in slices],
    )
    return tuple(row for facts in parsed for row in _of_node(facts, family))


def _read(kind: str, raw: Json, parse: Callable[[Json], _T]) -> _T:
    try:
        return parse(raw)
    except (AttributeError, TypeError, ValueError) as error:
        # An API server would have refused it; in a file anything may stand.
        raise OfflineError(f"{kind} {raw['metadata']['name']} can't be read: {error}") from error


def as_json(found: Sequence[Row], family: Family) -> str:
    """Write rows for programs."""
    return json.dumps({"family": family, "gpus": [row.to_json() for row in found]}, indent=2)


def as_table(found: Sequence[Row], family: Family) -> str:
    """Write rows for people; refusals are numbered, since many nodes have the same."""
    if not found:
        return "No node has a GPU."
    notes = {text: number for number, text in enumerate(dict.fromkeys(t for row in found for t in row.refusals), 1)}
    lines = [_HEADER, *(_cells(row, notes) for row in found)]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    table = ("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
    legend = [f"Backends are those that can serve family {family}."] if notes else []
    return "\n".join((*table, "", *legend, *(f"[{number}] {text}" for text, number in notes.items()))).rstrip()


_HEADER = (
    "NODE",
    "TYPE",
    "SLUG",
    "RESOURCE",
    "COUNT",
    "MEMORY",
    "CC",
    "SHARING",
    "ARCH",
    "READY",
    "BACKENDS",
    "WHY NOT",
)


def _cells(row: Row, notes: dict[str, int]) -> tuple[str, ...]:
    memory = "-" if row.pod_mib is None else f"{row.pod_mib}Mi"
    sharing = row.sharing if row.clients == 1 else f"{row.sharing}/{row.clients}"
    ready = "no" if not row.ready else "yes" if row.schedulable else "cordoned"
    why = " ".join(f"[{notes[text]}]" for text in row.refusals)
    backends = ",".join(row.backends) or "-"
    identity = (row.node, row.gpu_type, row.slug, row.resource or "-", str(row.count))
    return (*identity, memory, row.compute_capability or "-", sharing, row.arch, ready, backends, why)


def _of_node(facts: NodeFacts, family: Family) -> Iterable[Row]:
    for offer in facts.offers:
        if offer.placeable:
            found = verdicts(type_facts([facts], offer.gpu_type, offer.resource), family)
            backends = tuple(verdict.backend for verdict in found if verdict.supported)
            yield _row(facts, offer, backends, tuple(verdict.refusal for verdict in found if not verdict.supported))
        else:
            yield _row(facts, offer, (), unplaceable([facts], offer.resource))
    if facts.labelled and not facts.offers:
        why = f"The labels tell {facts.labelled}, and the kubelet offers no GPU: look at the driver and the device plugin."
        yield _row(facts, GPUOffer(facts.labelled, "", 0), (), (why,))
    elif facts.invalid:
        why = "GPU Feature Discovery can't name the MIG slices: cut all GPUs of the node in one way, or use strategy mixed."
        yield _row(facts, GPUOffer(UNKNOWN, "", 0), (), (why,))


def _row(facts: NodeFacts, offer: GPUOffer, backends: tuple[str, ...], refusals: tuple[str, ...]) -> Row:
    about = type_facts([facts], offer.gpu_type, offer.resource)
    return Row(
        node=facts.name,
        gpu_type=offer.gpu_type,
        slug=slug(offer.gpu_type),
        resource=offer.resource,
        count=offer.allocatable,
        memory_mib=about.memory_mib,
        pod_mib=about.pod_mib,
        compute_capability=about.compute_capability,
        mig_profile=about.mig_profile,
        sharing=offer.sharing,
        clients=offer.clients,
        arch=about.arch,
        ready=facts.ready,
        schedulable=facts.schedulable,
        source=offer.source,
        backends=backends,
        refusals=refusals,
    )


class _Nobody:
    """Is told of every request, and keeps no count."""

    def observe_request(self, verb: str, kind: str, code: int, seconds: float) -> None:
        """Do nothing."""


async def _list(client: KubeClient, resource: Resource) -> list[Json]:
    return [item async for items, _ in client.pages(resource) for item in items]
