"""Pools: each tier of the spec on each GPU type that it may use, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from cosyvoice_operator.api.defaults import EffectiveGPU, EffectiveSpec, EffectiveTier
from cosyvoice_operator.api.source import Family
from cosyvoice_operator.core.gpu import (
    NodeFacts,
    NodeRule,
    Supply,
    Term,
    normalise_product,
    placement,
    refusal,
    slug,
    supply,
    type_facts,
    types_present,
    unplaceable,
)
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
        terms: ``nodeSelectorTerms`` of its pods; empty on CPU.
        unsupported: Why the GPU type can't serve this tier, or, without a type, why none of those that the cluster has can.
    """

    name: str
    tier: EffectiveTier
    rank: int
    gpu_type: str | None
    supply: Supply | None
    terms: tuple[Term, ...] = ()
    unsupported: str = ""

    @property
    def placeless(self) -> bool:
        """A GPU tier that finds no type, or a type that can't serve it: there is nothing to make a Deployment for."""
        return self.supply is not None and (self.gpu_type is None or bool(self.unsupported))

    @property
    def resource(self) -> str:
        """What a pod needs of a node above all."""
        return self.tier.gpu.resource if self.tier.gpu else "cpu"


def expand(
    owner: str,
    spec: EffectiveSpec,
    nodes: Sequence[NodeFacts],
    in_use: Collection[tuple[str, str]] = (),
    rules: tuple[NodeRule, ...] = (),
) -> tuple[Pool, ...]:
    """List the pools of a resource, first choice first.

    Args:
        owner: Name of the resource.
        spec: Its spec.
        nodes: All nodes.
        in_use: Tier and GPU type of the pools that were asked for pods so far. A tier over every type keeps such a type when its last
            node goes away: the pod that then waits is what an autoscaler brings the node back for.
        rules: What the administrator says of nodes that no label tells.
    """
    return tuple(
        pool
        for rank, tier in enumerate(spec.tiers)
        for pool in _pools_of(owner, rank, tier, _Sight(spec.model.family, nodes, rules), in_use)
    )


def left_out(spec: EffectiveSpec, nodes: Sequence[NodeFacts]) -> tuple[str, ...]:
    """Say which GPUs of the cluster, or of the products that a tier lists, can't be used, and why."""
    sight = _Sight(spec.model.family, nodes, ())
    told = (text for tier in spec.tiers if tier.gpu for text in sight.left_out(tier, tier.gpu))
    return tuple(dict.fromkeys(told))


@dataclass(frozen=True, slots=True)
class _Sight:
    """What the GPU types of pools are chosen on."""

    family: Family
    nodes: Sequence[NodeFacts]
    rules: tuple[NodeRule, ...]

    def refusal(self, tier: EffectiveTier, gpu: EffectiveGPU, gpu_type: str) -> str:
        facts = type_facts(self.nodes, gpu_type, gpu.resource)
        if facts.compute_capability is None and not supply(self.nodes, gpu_type, gpu.resource).nodes:
            return ""  # the first node of the type will tell
        return refusal(facts, self.family, tier.backend, tier.precision)

    def left_out(self, tier: EffectiveTier, gpu: EffectiveGPU) -> list[str]:
        listed = [normalise_product(product) for product in gpu.products]
        refusals = (self.refusal(tier, gpu, name) for name in listed or types_present(self.nodes, gpu.resource))
        return [*filter(None, refusals), *(() if listed else unplaceable(self.nodes, gpu.resource))]

    def gpu_types(self, tier: EffectiveTier, gpu: EffectiveGPU, in_use: Sequence[str]) -> tuple[str, ...]:
        # A dict keeps the user's order, and two spellings of one card make one pool.
        wanted = dict.fromkeys(normalise_product(product) for product in gpu.products)
        # Types that serve keep their place: a node of another type that joins must not move every unit onto itself. What has no node left
        # comes last, so that it goes as soon as the other types cover it.
        present = types_present(self.nodes, gpu.resource)
        serving = [gpu_type for gpu_type in in_use if gpu_type in present]
        found = dict.fromkeys((*serving, *present, *in_use))
        return tuple(wanted or (gpu_type for gpu_type in found if not self.refusal(tier, gpu, gpu_type)))


def _pools_of(
    owner: str, rank: int, tier: EffectiveTier, sight: _Sight, in_use: Collection[tuple[str, str]]
) -> Iterable[Pool]:
    gpu = tier.gpu
    if gpu is None:
        yield Pool(pool_name(owner, tier.name, None), tier, rank, gpu_type=None, supply=None)
        return
    gpu_types = sight.gpu_types(tier, gpu, [gpu_type for name, gpu_type in in_use if name == tier.name])
    for gpu_type in gpu_types:
        yield Pool(
            name=pool_name(owner, tier.name, slug(gpu_type)),
            tier=tier,
            rank=rank,
            gpu_type=gpu_type,
            supply=supply(sight.nodes, gpu_type, gpu.resource),
            terms=placement(gpu_type, gpu.resource, sight.rules),
            unsupported=sight.refusal(tier, gpu, gpu_type),
        )
    if not gpu_types:
        why = " ".join(sight.left_out(tier, gpu))
        yield Pool(pool_name(owner, tier.name, None), tier, rank, gpu_type=None, supply=Supply(0, 0), unsupported=why)
