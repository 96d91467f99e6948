"""Where pods of a GPU type may run, as node selector terms: a function of the type and the operator's settings alone.

Terms that followed the nodes would roll out all pods when a node with another spelling, or from another cloud, joins.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from cosyvoice_operator.core.gpu.labels import (
    ARCH_LABEL,
    CLOUD_LABELS,
    PRODUCT_LABEL,
    CloudLabel,
    NodeRule,
    memory_bounds,
    partitioned,
    product_labels,
)
from cosyvoice_operator.core.gpu.names import OTHER_ARCHS, TypeName, home_arch
from cosyvoice_operator.core.gpu.nodes import DEFAULT_RESOURCE
from cosyvoice_operator.core.gpu.products import HOME_ARCH

Expression = dict[str, Any]
Term = dict[str, list[Expression]]

_MIG_RESOURCE = "nvidia.com/mig-"


@lru_cache(maxsize=512)
def placement(gpu_type: str, resource: str = DEFAULT_RESOURCE, rules: tuple[NodeRule, ...] = ()) -> tuple[Term, ...]:
    """Give the ``nodeSelectorTerms`` of pods that need this type; a node that matches any of them will do.

    The terms say what :func:`labels.learn` reads: each excludes the nodes on which another label wins.

    Args:
        gpu_type: Normalised product.
        resource: Extended resource that the pods ask for. A MIG slice with a resource of its own is found by that resource's label, for
            the node may have whole GPUs and other slices beside it.
        rules: The administrator's own.
    """
    name = TypeName.parse(gpu_type)
    arch = _on(name)
    if not resource.startswith(_MIG_RESOURCE):
        return tuple(_term(*expressions, *arch) for expressions in _of_node(gpu_type, name, rules))
    own = f"{resource.removesuffix('.shared')}.product"
    card = TypeName(name.card, "", name.arch)
    parents = ((*expressions, _absent(own)) for expressions in _of_node(str(card), card, rules))
    return tuple(_term(*expressions, *arch) for expressions in ((_in(own, *product_labels(gpu_type)),), *parents))


def _on(name: TypeName) -> tuple[Expression, ...]:
    """Say which hosts; a card that is soldered to its host needs no word. Nodes that don't tell are taken for amd64."""
    home = home_arch(name.card)
    if name.arch != home:
        return (_in(ARCH_LABEL, name.arch),)
    return (_not_in(ARCH_LABEL, *OTHER_ARCHS),) if home == HOME_ARCH else ()


def _of_node(gpu_type: str, name: TypeName, rules: tuple[NodeRule, ...]) -> Iterable[tuple[Expression, ...]]:
    """List what tells that all GPUs of a node are of this type."""
    product = partitioned(name.card, name.mig)
    if values := product_labels(gpu_type):
        yield (_in(PRODUCT_LABEL, *values),)
    for position, rule in enumerate(rules):
        if rule.product == product:
            yield (_in(rule.label, *rule.values), *_unless(rules[:position], product), _absent(PRODUCT_LABEL))
    for cloud in CLOUD_LABELS:
        if values := tuple(value for value, products in cloud.products.items() if name.card in products):
            told = _told(cloud, values, name)
            if told:
                yield (*told, *_unless(rules, product), _absent(PRODUCT_LABEL))


def _told(cloud: CloudLabel, values: tuple[str, ...], name: TypeName) -> tuple[Expression, ...]:
    """Say in a cloud's words that its nodes have this type; nothing when it has no words for it."""
    if name.mig and not cloud.partition:
        return ()
    told = [_in(cloud.key, *values)]
    if cloud.partition:
        told.append(_in(cloud.partition, name.mig) if name.mig else _absent(cloud.partition))
    if cloud.memory:
        low, high = memory_bounds(name.card)
        told += [_compare(cloud.memory, "Gt", low), _compare(cloud.memory, "Lt", high)]
    return tuple(told)


def _unless(rules: tuple[NodeRule, ...], product: str) -> Iterable[Expression]:
    return (_not_in(rule.label, *rule.values) for rule in rules if rule.product != product)


def _term(*expressions: Expression) -> Term:
    return {"matchExpressions": list(expressions)}


def _in(key: str, *values: str) -> Expression:
    return {"key": key, "operator": "In", "values": list(values)}


def _not_in(key: str, *values: str) -> Expression:
    return {"key": key, "operator": "NotIn", "values": list(values)}


def _absent(key: str) -> Expression:
    return {"key": key, "operator": "DoesNotExist"}


def _compare(key: str, operator: str, value: int) -> Expression:
    return {"key": key, "operator": operator, "values": [str(value)]}
