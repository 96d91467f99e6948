"""Pools: each tier of the spec on each GPU type that it may use, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from cosyvoice_operator.api.defaults import EffectiveGPU, EffectiveSpec, EffectiveTier
from cosyvoice_operator.core.gpu import NodeFacts, Supply, normalise_product, slug, supply, types_present
from cosyvoice_operator.core.naming import pool_name


@dataclass(frozen=True, slots=True)
class Pool:
    """One tier on one GPU type, or on CPU: one Deployment.

    Attributes:
        name: Name of the Deployment.
        tier: The tier, with all defaults.
        rank: Position of the tier; 0 is the first choice.
        gpu_type: Normalised GPU product; None on CPU, and for a tier that finds no GPU type at all.
        supply: Nodes of the GPU type; None on CPU.
    """

    name: str
    tier: EffectiveTier
    rank: int
    gpu_type: str | None
    supply: Supply | None

    @property
    def placeless(self) -> bool:
        """A GPU tier over every type, in a cluster that has none: there is nothing to make a Deployment for."""
        return self.supply is not None and self.gpu_type is None

    @property
    def resource(self) -> str:
        """What a pod needs of a node above all."""
        return self.tier.gpu.resource if self.tier.gpu else "cpu"


def expand(
    owner: str, spec: EffectiveSpec, nodes: Sequence[NodeFacts], in_use: Collection[tuple[str, str]] = ()
) -> tuple[Pool, ...]:
    """List the pools of a resource, first choice first.

    Args:
        owner: Name of the resource.
        spec: Its spec.
        nodes: All nodes.
        in_use: Tier and GPU type of the pools that were asked for pods so far. A tier over every type keeps such a type when its last
            node goes away: the pod that then waits is what an autoscaler brings the node back for.
    """
    return tuple(
        pool
        for rank, tier in enumerate(spec.tiers)
        for pool in _pools_of(owner, rank, tier, nodes, [gpu for name, gpu in in_use if name == tier.name])
    )


def _pools_of(
    owner: str, rank: int, tier: EffectiveTier, nodes: Sequence[NodeFacts], in_use: Sequence[str]
) -> Iterable[Pool]:
    if tier.gpu is None:
        yield Pool(pool_name(owner, tier.name, None), tier, rank, gpu_type=None, supply=None)
        return
    gpu_types = _gpu_types(tier.gpu, nodes, in_use)
    for gpu_type in gpu_types:
        name = pool_name(owner, tier.name, slug(gpu_type))
        yield Pool(name, tier, rank, gpu_type, supply(nodes, gpu_type, tier.gpu.resource))
    if not gpu_types:
        yield Pool(pool_name(owner, tier.name, None), tier, rank, gpu_type=None, supply=Supply(0, 0))


def _gpu_types(gpu: EffectiveGPU, nodes: Sequence[NodeFacts], in_use: Sequence[str]) -> tuple[str, ...]:
    # A dict keeps the user's order, and two spellings of one card make one pool.
    wanted = dict.fromkeys(normalise_product(product) for product in gpu.products)
    # Types that serve keep their place: a node of another type that joins must not move every unit onto itself. What has no node left
    # comes last, so that it goes as soon as the other types cover it.
    present = types_present(nodes, gpu.resource)
    serving = [gpu_type for gpu_type in in_use if gpu_type in present]
    return tuple(wanted or dict.fromkeys((*serving, *present, *in_use)))
