"""Pools: each tier of the spec on each GPU type that it may use, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cosyvoice_operator.api.defaults import EffectiveGPU, EffectiveSpec, EffectiveTier
from cosyvoice_operator.api.source import Family
from cosyvoice_operator.core.gpu import (
    NodeFacts,
    NodeRule,
    Supply,
    Term,
    nodes_by_type,
    normalise_product,
    placement,
    refusal,
    slug,
    supply,
    type_facts,
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
        for pool in _pools_of(owner, rank, tier, _choices(spec.model.family, tier, nodes), in_use, rules)
    )


def left_out(spec: EffectiveSpec, nodes: Sequence[NodeFacts]) -> tuple[str, ...]:
    """Say which GPUs of the cluster, or of the products that a tier lists, can't be used, and why."""
    choices = (_choices(spec.model.family, tier, nodes) for tier in spec.tiers)
    return tuple(dict.fromkeys(text for choice in choices if choice for text in choice.left_out()))


@dataclass(frozen=True, slots=True)
class _Choices:
    """GPU types for one tier.

    Attributes:
        family: What is to be served.
        tier: The tier.
        gpu: Its GPUs.
        having: GPU types that the cluster has under the tier's resource, each with its nodes, so that a large cluster is gone through once.
        unplaceable: Why pods can't choose the GPUs of some nodes.
    """

    family: Family
    tier: EffectiveTier
    gpu: EffectiveGPU
    having: Mapping[str, Sequence[NodeFacts]]
    unplaceable: tuple[str, ...]

    def types(self, in_use: Sequence[str]) -> tuple[str, ...]:
        """List the types to make pools for."""
        # Types that serve keep their place: a node of another type that joins must not move every unit onto itself. What has no node left
        # comes last, so that it goes as soon as the other types cover it.
        serving = [gpu_type for gpu_type in in_use if gpu_type in self.having]
        found = dict.fromkeys((*serving, *self.having, *in_use))
        return self.listed() or tuple(gpu_type for gpu_type in found if not self.refusal(gpu_type))

    def listed(self) -> tuple[str, ...]:
        """List the types that the user wants, in the user's order; two spellings of one card are one."""
        return tuple(dict.fromkeys(normalise_product(product) for product in self.gpu.products))

    def supply(self, gpu_type: str) -> Supply:
        """Count the nodes of a type."""
        return supply(self.having.get(gpu_type, ()), gpu_type, self.gpu.resource)

    def refusal(self, gpu_type: str) -> str:
        """Say why a type can't serve the tier; nothing when it can."""
        nodes = self.having.get(gpu_type, ())
        facts = type_facts(nodes, gpu_type, self.gpu.resource)
        if facts.compute_capability is None and not nodes:
            return ""  # the first node of the type will tell
        return refusal(facts, self.family, self.tier.backend, self.tier.precision)

    def left_out(self) -> tuple[str, ...]:
        """Say what can't serve the tier, and why."""
        listed = self.listed()
        refusals = (self.refusal(gpu_type) for gpu_type in listed or self.having)
        return (*filter(None, refusals), *(() if listed else self.unplaceable))


def _choices(family: Family, tier: EffectiveTier, nodes: Sequence[NodeFacts]) -> _Choices | None:
    gpu = tier.gpu
    if gpu is None:
        return None
    return _Choices(family, tier, gpu, nodes_by_type(nodes, gpu.resource), unplaceable(nodes, gpu.resource))


def _pools_of(
    owner: str,
    rank: int,
    tier: EffectiveTier,
    choices: _Choices | None,
    in_use: Collection[tuple[str, str]],
    rules: tuple[NodeRule, ...],
) -> Iterable[Pool]:
    if choices is None:
        yield Pool(pool_name(owner, tier.name, None), tier, rank, gpu_type=None, supply=None)
        return
    gpu_types = choices.types([gpu_type for name, gpu_type in in_use if name == tier.name])
    for gpu_type in gpu_types:
        yield Pool(
            name=pool_name(owner, tier.name, slug(gpu_type)),
            tier=tier,
            rank=rank,
            gpu_type=gpu_type,
            supply=choices.supply(gpu_type),
            terms=placement(gpu_type, choices.gpu.resource, rules),
            unsupported=choices.refusal(gpu_type),
        )
    if not gpu_types:
        why = " ".join(choices.left_out())
        yield Pool(pool_name(owner, tier.name, None), tier, rank, gpu_type=None, supply=Supply(0, 0), unsupported=why)
