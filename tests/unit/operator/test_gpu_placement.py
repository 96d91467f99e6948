"""Pods of a GPU type land on the nodes of that type and on no others, whatever label told it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_operator.core.gpu import NodeRule, nodes_by_type, normalise_product, parse_node, placement
from cosyvoice_operator.core.gpu.labels import CLOUD_LABELS
from cosyvoice_operator.core.gpu.products import PRODUCTS
from tests.unit.operator.builders import GPU_THEN_CPU, World, node, resource

FIXTURES = Path(__file__).parents[2] / "fixtures" / "gpu-nodes.yaml"
RAW_NODES = [raw for raw in yaml.safe_load_all(FIXTURES.read_text()) if raw]
GPU = "nvidia.com/gpu"
RESOURCES = (GPU, f"{GPU}.shared", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb", "nvidia.com/mig-7g.40gb")


def fits(terms: tuple[dict[str, Any], ...], labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels matches, by the rules of the scheduler: any term, and all expressions of it."""
    return any(all(_holds(expression, labels) for expression in term["matchExpressions"]) for term in terms)


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values", [])
    if operator == "DoesNotExist":
        return key not in labels
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    compare = {"Gt": int.__gt__, "Lt": int.__lt__}[operator]
    return key in labels and labels[key].isdecimal() and compare(int(labels[key]), int(values[0]))


def labels_of(raw: dict[str, Any]) -> dict[str, str]:
    return raw["metadata"]["labels"]


def gpu_node(labels: Mapping[str, str]) -> dict[str, Any]:
    raw = node("n")
    raw["metadata"]["labels"] = dict(labels)
    raw["status"]["allocatable"] |= {GPU: "1"}
    return raw


@pytest.mark.parametrize("wanted", RESOURCES)
def test_every_node_of_the_fixtures_gets_the_pods_of_its_types_and_no_others(wanted: str) -> None:
    nodes = [parse_node(raw) for raw in RAW_NODES]
    types = list(nodes_by_type(nodes, wanted))
    assert types
    for raw, facts in zip(RAW_NODES, nodes, strict=True):
        offered = [offer.gpu_type for offer in facts.offers if offer.resource == wanted]
        if offered:
            assert [gpu for gpu in types if fits(placement(gpu, wanted), labels_of(raw))] == offered, facts.name


def test_a_pod_for_a_whole_gpu_stays_away_from_a_node_whose_gpus_are_all_cut() -> None:
    [cut] = [raw for raw in RAW_NODES if raw["metadata"]["name"] == "onprem-a100-mig-single"]
    assert not fits(placement("A100-SXM4-40GB"), labels_of(cut))
    assert fits(placement("A100-SXM4-40GB-MIG-1g.5gb"), labels_of(cut))


def test_a_slice_that_no_label_can_name_is_found_by_its_card() -> None:
    # "1g.10gb+me" has a plus, which label keys can't hold; the resource has a dot in its place.
    raw = node("n", "NVIDIA-H100-80GB-HBM3", 0)
    raw["status"]["capacity"]["nvidia.com/mig-1g.10gb.me"] = "1"
    [offer] = parse_node(raw).offers
    assert offer.gpu_type == normalise_product("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb+me") == "H100-80GB-HBM3-MIG-1g.10gbme"
    assert fits(placement(offer.gpu_type, offer.resource), labels_of(raw))


@pytest.mark.parametrize("card", ["L4", "T4", "A100-SXM4-40GB", "RTX-PRO-6000-Blackwell-Server-Edition-MIG-1g.24gb"])
def test_no_term_has_a_value_that_a_label_can_not_have(card: str) -> None:
    # The API server refuses the whole Deployment for one such value.
    values = [v for term in placement(card) for e in term["matchExpressions"] for v in e.get("values", ())]
    assert max(len(value) for value in values) <= 63


def test_a_label_that_no_driver_would_write_is_read_and_gets_no_pods() -> None:
    labels = {"nvidia.com/gpu.product": "nvidia-l4"}
    [offer] = parse_node(gpu_node(labels)).offers
    assert (offer.gpu_type, offer.placeable) == ("L4", False)
    assert not fits(placement("L4"), labels)


def test_a_third_of_a_card_is_not_the_card() -> None:
    labels = {"karpenter.k8s.aws/instance-gpu-name": "l4", "karpenter.k8s.aws/instance-gpu-memory": "2861"}
    assert parse_node(gpu_node(labels)).labelled == ""
    assert not fits(placement("L4"), labels)


@pytest.mark.parametrize(("memory", "gpu_type"), [("40960", "A100-SXM4-40GB"), ("81920", "A100-SXM4-80GB")])
def test_one_name_for_two_cards_is_told_apart_by_memory(memory: str, gpu_type: str) -> None:
    labels = {"karpenter.k8s.aws/instance-gpu-name": "a100", "karpenter.k8s.aws/instance-gpu-memory": memory}
    assert parse_node(gpu_node(labels)).labelled == gpu_type
    assert [gpu for gpu in PRODUCTS if fits(placement(gpu), labels)] == [gpu_type]


def test_gke_partitions_are_slices() -> None:
    labels = {
        "cloud.google.com/gke-accelerator": "nvidia-tesla-a100",
        "cloud.google.com/gke-gpu-partition-size": "1g.5gb",
    }
    gpu_type = parse_node(gpu_node(labels)).labelled
    assert gpu_type == "A100-SXM4-40GB-MIG-1g.5gb"
    assert fits(placement(gpu_type), labels)
    assert not fits(placement("A100-SXM4-40GB"), labels)


def test_a_card_in_a_host_of_another_architecture_is_another_type() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-L40S", "kubernetes.io/arch": "arm64"}
    gpu_type = parse_node(gpu_node(labels)).labelled
    assert gpu_type == "L40S-arm64"
    assert fits(placement(gpu_type), labels)
    assert not fits(placement("L40S"), labels)
    assert not fits(placement(gpu_type), labels | {"kubernetes.io/arch": "amd64"})
    assert (
        parse_node(gpu_node({"nvidia.com/gpu.product": "NVIDIA-GB200", "kubernetes.io/arch": "arm64"})).labelled
        == "GB200"
    )


RULES = (
    NodeRule("node.kubernetes.io/instance-type", ("rke2", "metal-1"), "A16-4Q"),
    NodeRule("example.com/rack", ("r7",), "L40S", memory_mib=46068, compute_capability="8.9"),
)


def told_by_clouds() -> st.SearchStrategy[dict[str, str]]:
    """Labels of one cloud, true or not."""
    memory = st.sampled_from(("15109", "22888", "40960", "81920", "3000", "much"))
    return st.sampled_from(CLOUD_LABELS).flatmap(
        lambda cloud: st.fixed_dictionaries(
            {cloud.key: st.sampled_from((*cloud.products, "other"))},
            optional={key: memory for key in (cloud.memory,) if key}
            | {key: st.sampled_from(("1g.5gb", "2g.10gb")) for key in (cloud.partition,) if key},
        )
    )


@given(
    gfd=st.sampled_from(({}, {"nvidia.com/gpu.product": "NVIDIA-L4"}, {"nvidia.com/gpu.product": "Tesla-T4-SHARED"})),
    cloud=told_by_clouds(),
    rule=st.sampled_from(({}, {"example.com/rack": "r7"}, {"example.com/rack": "r8"})),
    arch=st.sampled_from(({}, {"kubernetes.io/arch": "amd64"}, {"kubernetes.io/arch": "arm64"})),
)
def test_what_labels_tell_and_where_pods_go_are_one(
    gfd: dict[str, str], cloud: dict[str, str], rule: dict[str, str], arch: dict[str, str]
) -> None:
    labels = cloud | rule | gfd | arch
    told = parse_node(gpu_node(labels), RULES).labelled
    candidates = {*PRODUCTS, *(normalise_product(f"{card}-arm64") for card in PRODUCTS), "A16-4Q", "A10-8Q", told} - {
        ""
    }
    assert {gpu for gpu in candidates if fits(placement(gpu, GPU, RULES), labels)} == ({told} if told else set())


def test_an_administrator_names_what_no_label_tells() -> None:
    raw = gpu_node({"example.com/rack": "r7"})
    [unknown] = parse_node(raw).offers
    assert (unknown.gpu_type, unknown.placeable) == ("Unknown", False)
    [offer] = parse_node(raw, RULES).offers
    assert (offer.gpu_type, offer.memory_mib, offer.compute_capability) == ("L40S", 46068, "8.9")


def test_a_node_that_joins_from_another_cloud_or_with_another_spelling_rolls_out_no_pods() -> None:
    world = World(resource(tiers=GPU_THEN_CPU), nodes=[node("a", "NVIDIA-L4", 1)])
    world.plan()
    before = world.children["Deployment", "hello-gpu-l4"]["spec"]["template"]
    gke = gpu_node({"cloud.google.com/gke-accelerator": "nvidia-l4"})
    world.nodes += [node("b", "L4-SHARED", 4), gke, node("c", "NVIDIA-L40S", 1)]
    world.plan()
    assert world.children["Deployment", "hello-gpu-l4"]["spec"]["template"] == before
    world.nodes.clear()
    world.plan()
    assert world.children["Deployment", "hello-gpu-l4"]["spec"]["template"] == before
