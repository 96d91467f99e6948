"""GPU types: found on nodes, named in one way, placed by labels, and matched with what the backends need."""

from cosyvoice_operator.core.gpu.backends import Verdict, refusal, verdicts
from cosyvoice_operator.core.gpu.labels import NodeRule, product_labels
from cosyvoice_operator.core.gpu.names import UNKNOWN, normalise_product, slug
from cosyvoice_operator.core.gpu.nodes import (
    DEFAULT_RESOURCE,
    GPUOffer,
    GPUTypeFacts,
    NodeFacts,
    Sharing,
    Supply,
    nodes_by_type,
    parse_node,
    supply,
    type_facts,
    unplaceable,
)
from cosyvoice_operator.core.gpu.placement import Term, placement
from cosyvoice_operator.core.gpu.slices import SliceFacts, merge_slices, parse_slice

__all__ = [
    "DEFAULT_RESOURCE",
    "UNKNOWN",
    "GPUOffer",
    "GPUTypeFacts",
    "NodeFacts",
    "NodeRule",
    "Sharing",
    "SliceFacts",
    "Supply",
    "Term",
    "Verdict",
    "merge_slices",
    "nodes_by_type",
    "normalise_product",
    "parse_node",
    "parse_slice",
    "placement",
    "product_labels",
    "refusal",
    "slug",
    "supply",
    "type_facts",
    "unplaceable",
    "verdicts",
]
