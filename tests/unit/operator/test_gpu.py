"""GPU types from nodes: the names that engines, pools and messages are made from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_operator.core.gpu import (
    Supply,
    normalise_product,
    parse_node,
    product_labels,
    slug,
    supply,
    types_present,
)
from tests.unit.operator.builders import node

FIXTURES = Path(__file__).parents[2] / "fixtures" / "gpu-nodes.yaml"

# Node of the fixtures -> (GPU type, allocatable), for the nodes with whole or MIG-single GPUs that GPU Feature Discovery has labelled.
OFFERED = {
    "gce-t4x2": ("Tesla-T4", 2),
    "eks-g4dn-t4-oldgfd": ("Tesla-T4", 1),
    "eks-g5-a10g-timesliced": ("A10G", 2),
    "onprem-a100-mig-single": ("A100-SXM4-40GB-MIG-1g.5gb", 14),
    "dgx-a100-80x8": ("A100-SXM4-80GB", 8),
    "xe9680-h100x8": ("H100-80GB-HBM3", 8),
    "onprem-4090x8-mps": ("GeForce-RTX-4090", 16),
    "k3s-4070super": ("GeForce-RTX-4070-SUPER", 1),
    "lke-rtx4000ada": ("RTX-4000-Ada-Generation", 1),
    "rke2-a16-vgpu": ("A16-4Q", 1),
    "openshift-v100": ("Tesla-V100-SXM2-16GB", 1),
    "catalyst-l40s": ("L40S", 1),
    "x-h100x8-two-xid": ("H100-80GB-HBM3", 6),
    "x-l4-notready": ("L4", 1),
    "x-l4-cordoned": ("L4", 1),
    "x-timeslice-renamed": ("Tesla-T4", 4),
}


@pytest.mark.parametrize(
    "raw", [n for n in yaml.safe_load_all(FIXTURES.read_text()) if n], ids=lambda n: n["metadata"]["name"]
)
def test_each_fixture_node_offers_what_its_kubelet_says_and_not_what_its_labels_say(raw: dict) -> None:
    facts = parse_node(raw)
    expected = OFFERED.get(facts.name)
    assert [(offer.gpu_type, offer.allocatable) for offer in facts.offers] == ([expected] if expected else [])


def test_one_card_has_one_name_however_old_its_labels_are() -> None:
    names = {"A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB-SHARED", "A100-SXM4-40GB-SHARED"}
    assert {normalise_product(name) for name in names} == {"A100-SXM4-40GB"}
    assert set(product_labels("A100-SXM4-40GB")) == names


def test_an_l4_is_not_an_l40s() -> None:
    nodes = [parse_node(node("a", "NVIDIA-L40S", 4))]
    assert supply(nodes, "L4", "nvidia.com/gpu") == Supply(0, 0)
    assert supply(nodes, "L40S", "nvidia.com/gpu") == Supply(1, 1)


def test_a_type_stays_known_while_its_nodes_are_cordoned_not_ready_or_without_healthy_devices() -> None:
    broken = node("c", "NVIDIA-T4", 0)
    broken["status"]["capacity"]["nvidia.com/gpu"] = "2"
    nodes = [
        parse_node(n)
        for n in (node("a", "NVIDIA-L4", 1, cordoned=True), node("b", "NVIDIA-A10", 1, ready=False), broken)
    ]
    assert types_present(nodes, "nvidia.com/gpu") == ("A10", "L4", "T4")
    assert [supply(nodes, gpu, "nvidia.com/gpu").usable for gpu in ("A10", "L4", "T4")] == [0, 0, 0]


def test_a_heartbeat_changes_no_facts() -> None:
    before, after = node("a", "NVIDIA-L4", 2), node("a", "NVIDIA-L4", 2)
    after["metadata"]["resourceVersion"] = "99"
    after["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:00:00Z"
    assert parse_node(before) == parse_node(after)


@given(st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", fullmatch=True))
def test_a_slug_is_a_piece_of_a_dns_label(gpu_type: str) -> None:
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,22}[a-z0-9])?", slug(gpu_type))


def test_types_that_differ_only_in_what_a_name_can_not_hold_get_different_slugs() -> None:
    similar = ("A100-MIG-1g.5gb", "A100-MIG-1g-5gb", "A100-MIG-1g_5gb")
    assert len({slug(gpu_type) for gpu_type in similar}) == len(similar)


@pytest.mark.parametrize(
    ("taint", "schedulable"),
    [
        ({"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}, False),
        ({"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}, False),
        ({"key": "node.kubernetes.io/memory-pressure", "effect": "PreferNoSchedule"}, True),
        ({"key": "nvidia.com/gpu", "effect": "NoSchedule"}, True),
    ],
)
def test_a_node_that_kubernetes_itself_has_tainted_takes_no_pods(taint: dict, schedulable: bool) -> None:
    raw = node("a", "NVIDIA-L4", 2)
    raw["spec"]["taints"] = [taint]
    assert parse_node(raw).schedulable is schedulable


def test_a_thousand_slices_of_a_shared_gpu_are_counted() -> None:
    raw = node("a", "NVIDIA-A100-SHARED", 1)
    raw["status"]["allocatable"]["nvidia.com/gpu"] = "1k"
    assert parse_node(raw).offers[0].allocatable == 1000
