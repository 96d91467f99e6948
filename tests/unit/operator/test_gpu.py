"""GPU types from nodes: the names that engines, pools and messages are made from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_operator.core.gpu import (
    GPUOffer,
    Sharing,
    Supply,
    nodes_by_type,
    normalise_product,
    parse_node,
    product_labels,
    slug,
    supply,
    type_facts,
)
from cosyvoice_operator.core.gpu.products import PRODUCTS
from tests.unit.operator.builders import node

FIXTURES = Path(__file__).parents[2] / "fixtures" / "gpu-nodes.yaml"
RAW_NODES = [raw for raw in yaml.safe_load_all(FIXTURES.read_text()) if raw]
NODES = [parse_node(raw) for raw in RAW_NODES]

GFD = "nvidia.com/gpu.product"
GKE = "cloud.google.com/gke-accelerator"
GPU = "nvidia.com/gpu"
WHOLE, TURNS, MPS = (Sharing.NONE, 1), (Sharing.TIME_SLICING, 2), (Sharing.MPS, 2)
A100 = "A100-SXM4-40GB"

# Node of the fixtures -> what it offers: type, resource, allocatable, told by, MiB and compute capability as labelled, sharing.
OFFERED = {
    "gce-t4x2": [("T4", GPU, 2, GFD, 15360, "7.5", *WHOLE)],
    "eks-g4dn-t4-oldgfd": [("T4", GPU, 1, GFD, 15109, "7.5", *WHOLE)],
    "eks-g5-a10g-timesliced": [("A10G", GPU, 2, GFD, 23028, "8.6", *TURNS)],
    "eks-g5-a10g-karpenter-nogfd": [
        ("A10G", GPU, 1, "karpenter.k8s.aws/instance-gpu-name", 22888, None, *WHOLE),
    ],
    "gke-l4-nogfd": [("L4", GPU, 1, GKE, None, None, *WHOLE)],
    "gke-l4-timeshared4": [("L4", GPU, 4, GKE, None, None, Sharing.TIME_SLICING, 4)],
    "gce-a100-mig-mixed": [
        (f"{A100}-MIG-1g.5gb", "nvidia.com/mig-1g.5gb", 2, "nvidia.com/mig-1g.5gb.product", 4864, "8.0", *WHOLE),
        (f"{A100}-MIG-2g.10gb", "nvidia.com/mig-2g.10gb", 1, "nvidia.com/mig-2g.10gb.product", 9856, "8.0", *WHOLE),
    ],
    "gce-a100-mig-7g": [
        (f"{A100}-MIG-7g.40gb", "nvidia.com/mig-7g.40gb", 1, "nvidia.com/mig-7g.40gb.product", 40192, "8.0", *WHOLE),
    ],
    "onprem-a100-mig-single": [(f"{A100}-MIG-1g.5gb", GPU, 14, GFD, 4864, "8.0", *WHOLE)],
    "dgx-a100-80x8": [("A100-SXM4-80GB", GPU, 8, GFD, 81920, "8.0", *WHOLE)],
    "xe9680-h100x8": [("H100-80GB-HBM3", GPU, 8, GFD, 81559, "9.0", *WHOLE)],
    "onprem-4090x8-mps": [("GeForce-RTX-4090", GPU, 16, GFD, 24564, "8.9", *MPS)],
    "k3s-4070super": [("GeForce-RTX-4070-SUPER", GPU, 1, GFD, 12282, "8.9", *WHOLE)],
    "lke-rtx4000ada": [("RTX-4000-Ada-Generation", GPU, 1, GFD, 20475, "8.9", *WHOLE)],
    "rke2-a16-vgpu": [("A16-4Q", GPU, 1, GFD, 4096, "8.6", *WHOLE)],
    "openshift-v100": [("V100-SXM2-16GB", GPU, 1, GFD, 16384, "7.0", *WHOLE)],
    "catalyst-l40s": [("L40S", GPU, 1, GFD, 46068, "8.9", *WHOLE)],
    "x-mig-invalid": [],
    "x-aks-a10-noplugin": [],
    "x-h100x8-two-xid": [("H100-80GB-HBM3", GPU, 6, GFD, 81559, "9.0", *WHOLE)],
    "x-l4-notready": [("L4", GPU, 1, GFD, 23034, "8.9", *WHOLE)],
    "x-l4-cordoned": [("L4", GPU, 1, GFD, 23034, "8.9", *WHOLE)],
    "x-timeslice-renamed": [("T4", "nvidia.com/gpu.shared", 4, GFD, 15360, "7.5", Sharing.TIME_SLICING, 4)],
}
NOT_READY, CORDONED = {"x-l4-notready"}, {"x-l4-cordoned"}


def test_the_table_covers_every_node_of_the_fixtures() -> None:
    assert [raw["metadata"]["name"] for raw in RAW_NODES] == list(OFFERED)


@pytest.mark.parametrize("raw", RAW_NODES, ids=lambda n: n["metadata"]["name"])
def test_each_fixture_node_offers_what_its_kubelet_says_with_the_figures_that_its_labels_say(raw: dict) -> None:
    facts = parse_node(raw)
    assert list(facts.offers) == [GPUOffer(*offer) for offer in OFFERED[facts.name]]
    assert facts.ready is (facts.name not in NOT_READY)
    assert facts.schedulable is (facts.name not in CORDONED | NOT_READY)


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
    assert tuple(nodes_by_type(nodes, "nvidia.com/gpu")) == ("A10", "L4", "T4")
    assert [supply(nodes, gpu, "nvidia.com/gpu").usable for gpu in ("A10", "L4", "T4")] == [0, 0, 0]


@pytest.mark.parametrize(
    ("gpu_type", "memory", "capability"),
    [
        ("T4", 15109, "7.5"),
        ("GeForce-RTX-4090", 24564, "8.9"),
        ("A16-4Q", 4096, "8.6"),
        ("A100-SXM4-40GB-MIG-1g.5gb", 4864, "8.0"),
    ],
)
def test_what_holds_for_a_type_does_not_move_with_the_nodes_that_have_it(
    gpu_type: str, memory: int, capability: str
) -> None:
    having = [facts for facts in NODES if any(offer.gpu_type == gpu_type for offer in facts.offers)]
    found = {type_facts(nodes, gpu_type, GPU) for nodes in (having[:1], having[::-1], NODES)}
    assert {(facts.memory_mib, facts.compute_capability, facts.arch) for facts in found} == {
        (memory, capability, "amd64")
    }


def test_a_card_that_no_table_has_takes_the_least_that_its_nodes_say() -> None:
    raw = [node(name, "NVIDIA-X1", 1) for name in ("a", "b")]
    for made, memory, major in zip(raw, ("40960", "40536"), ("13", "9"), strict=True):
        made["metadata"]["labels"] |= {
            "nvidia.com/gpu.memory": memory,
            "nvidia.com/gpu.compute.major": major,
            "nvidia.com/gpu.compute.minor": "0",
        }
    facts = type_facts([parse_node(made) for made in raw], "X1", GPU)
    assert (facts.memory_mib, facts.compute_capability) == (40536, "9.0")
    assert type_facts([], "X1", GPU).memory_mib is None


def test_a_heartbeat_changes_no_facts() -> None:
    before, after = node("a", "NVIDIA-L4", 2), node("a", "NVIDIA-L4", 2)
    after["metadata"]["resourceVersion"] = "99"
    after["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:00:00Z"
    assert parse_node(before) == parse_node(after)


LABEL_VALUES = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", fullmatch=True)
SPELLINGS = st.sampled_from(("", "NVIDIA-", "Tesla-", "nvidia-tesla-", "GRID-")).flatmap(
    lambda prefix: st.builds(
        lambda card, end: prefix + card + end,
        st.sampled_from((*PRODUCTS, "A16-4Q", "X1", "x1", "L4-arm64", "GB200-arm64")) | LABEL_VALUES,
        st.sampled_from(("", "-SHARED", "-MIG-1g.5gb", "-MIG-1g.5gb-SHARED", "-MIG-1g.10gb+me", "-arm64")),
    )
)


@given(SPELLINGS | st.text())
def test_a_normalised_name_stays_as_it_is(label: str) -> None:
    once = normalise_product(label)
    assert normalise_product(once) == once


@given(LABEL_VALUES)
def test_a_slug_is_a_piece_of_a_dns_label(gpu_type: str) -> None:
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,22}[a-z0-9])?", slug(gpu_type))


@given(SPELLINGS, SPELLINGS)
def test_types_that_differ_have_slugs_that_differ(one: str, other: str) -> None:
    first, second = normalise_product(one), normalise_product(other)
    assert (slug(first) == slug(second)) is (first == second)


@given(st.sampled_from(sorted(PRODUCTS)), st.sampled_from(sorted(PRODUCTS)))
def test_no_card_is_taken_for_another_that_has_its_name_in_its_own(one: str, other: str) -> None:
    nodes = [parse_node(node("a", f"NVIDIA-{one}", 1))]
    assert supply(nodes, other, GPU).nodes == (one == other)
    assert (f"NVIDIA-{one}" in product_labels(other)) is (one == other)


def test_types_that_differ_only_in_what_a_name_can_not_hold_get_different_slugs() -> None:
    similar = ("A100-MIG-1g.5gb", "A100-MIG-1g-5gb", "A100-MIG-1g_5gb", "a100", "A100", "a100-MIG-1g.5gb")
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
