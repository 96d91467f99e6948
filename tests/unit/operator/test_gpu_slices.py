"""ResourceSlices of dynamic resource allocation, laid over what nodes tell of themselves."""

from __future__ import annotations

from typing import Any

import pytest

from cosyvoice_operator.core.gpu import (
    GPUOffer,
    NodeFacts,
    merge_slices,
    nodes_by_type,
    parse_node,
    parse_slice,
    supply,
)
from cosyvoice_operator.core.model import Json
from cosyvoice_operator.engine.store import NODE, SLICE, Store
from tests.unit.operator.builders import node, resource

GPU = "nvidia.com/gpu"


def device(product: str = "NVIDIA L4", *, kind: str = "gpu", **changes: Any) -> Json:
    """One device as NVIDIA's driver publishes it."""
    return {
        "name": "gpu-0",
        "attributes": {
            "type": {"string": kind},
            "productName": {"string": product},
            "cudaComputeCapability": {"version": "8.9.0"},
            "driverVersion": {"version": "580.95.5"},
            **changes.pop("attributes", {}),
        },
        "capacity": {"memory": {"value": "23034Mi"}},
        **changes,
    }


def resource_slice(
    *devices: Json, node_name: str = "node-1", generation: int = 1, driver: str = "gpu.nvidia.com"
) -> Json:
    """One ResourceSlice of a node."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node_name}-{driver}-{generation}", "uid": f"uid-{generation}", "resourceVersion": "1"},
        "spec": {
            "driver": driver,
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": generation, "resourceSliceCount": 1},
            "devices": list(devices),
        },
    }


def merged(raw: Json, *slices: Json) -> NodeFacts:
    [facts] = merge_slices([parse_node(raw)], [parse_slice(one) for one in slices])
    return facts


def labelled_without_plugin(product: str = "NVIDIA-L4") -> Json:
    """A node whose GPUs only dynamic resource allocation hands out: its kubelet counts none."""
    raw = node("node-1", product, 0)
    raw["metadata"]["labels"]["nvidia.com/gpu.product"] = product
    return raw


def test_gpus_that_only_slices_count_are_offered_with_their_figures() -> None:
    facts = merged(labelled_without_plugin(), resource_slice(device(), device()))
    assert facts.offers == (GPUOffer("L4", GPU, 2, "ResourceSlice", 23034, "8.9"),)
    assert supply([facts], "L4", GPU).usable == 1


def test_a_node_without_a_label_has_a_known_type_that_no_pod_can_choose() -> None:
    facts = merged(node("node-1"), resource_slice(device()))
    assert [(offer.gpu_type, offer.placeable) for offer in facts.offers] == [("L4", False)]
    assert nodes_by_type([facts], GPU) == {}


def test_several_models_in_one_node_are_told_apart_and_none_of_them_can_be_chosen() -> None:
    facts = merged(node("node-1", "NVIDIA-A10", 2), resource_slice(device("NVIDIA A10"), device("NVIDIA L40S")))
    assert [(offer.gpu_type, offer.allocatable, offer.placeable) for offer in facts.offers] == [
        ("A10", 1, False),
        ("L40S", 1, False),
    ]


def test_the_device_plugin_counts_where_there_is_one_and_slices_add_the_figures() -> None:
    facts = merged(node("node-1", "NVIDIA-L4-SHARED", 4), resource_slice(device()))
    assert [(offer.gpu_type, offer.allocatable, offer.memory_mib) for offer in facts.offers] == [("L4", 4, 23034)]


def test_a_label_that_says_something_else_than_the_devices_gets_no_pods() -> None:
    facts = merged(node("node-1", "NVIDIA-L4", 1), resource_slice(device("NVIDIA L40S")))
    assert [(offer.gpu_type, offer.placeable) for offer in facts.offers] == [("L40S", False)]


def test_devices_that_are_tainted_or_not_cut_yet_or_of_an_old_generation_are_not_counted() -> None:
    lost = device(taints=[{"key": "gpu.nvidia.com/xid", "effect": "NoSchedule"}])
    watched = device(taints=[{"key": "gpu.nvidia.com/unmonitored", "effect": "None"}])
    possible = device(kind="mig", attributes={"profile": {"string": "1g.5gb"}}, consumesCounters=[{}])
    slices = (resource_slice(device(), device(), device()), resource_slice(lost, watched, possible, generation=2))
    assert [offer.allocatable for offer in merged(labelled_without_plugin(), *slices).offers] == [1]


def test_a_mig_slice_is_told_under_the_class_that_a_claim_would_name() -> None:
    part = device("NVIDIA A100-SXM4-40GB", kind="mig", attributes={"profile": {"string": "1g.5gb"}})
    [offer] = merged(node("node-1"), resource_slice(part)).offers
    assert (offer.gpu_type, offer.resource, offer.placeable) == ("A100-SXM4-40GB-MIG-1g.5gb", "mig.nvidia.com", False)


@pytest.mark.parametrize("raw", [resource_slice(device(), driver="dra.example.com"), {"spec": {}}, {}])
def test_what_other_drivers_publish_is_nobodys_gpu(raw: Json) -> None:
    assert parse_slice(raw).devices == ()
    assert parse_slice(raw).node == ""


def test_the_store_plans_anew_when_devices_change_and_forgets_them_with_their_slice() -> None:
    store = Store()
    owner = resource()
    owner["metadata"]["resourceVersion"] = "1"
    store.update("CosyVoiceDeployment", owner)
    raw = labelled_without_plugin()
    raw["metadata"] |= {"uid": "uid-node", "resourceVersion": "1"}
    store.update(NODE, raw)
    listed = resource_slice(device())

    assert store.update(SLICE, listed) is None
    assert store.update(SLICE, resource_slice(device(), driver="dra.example.com")) == frozenset()
    heartbeat = resource_slice(device())
    heartbeat["metadata"]["resourceVersion"] = "2"
    assert store.update(SLICE, heartbeat) == frozenset()
    assert _types(store) == ["L4"]

    heartbeat["metadata"]["resourceVersion"] = "3"
    assert store.remove(SLICE, heartbeat) is None
    assert _types(store) == []


def _types(store: Store) -> list[str]:
    snapshot = store.snapshot(("tts", "hello"))
    assert snapshot is not None
    return [offer.gpu_type for facts in snapshot.nodes for offer in facts.offers]
