"""Simulated nodes as they are created."""

from __future__ import annotations

import copy

import pytest

from devcluster import DevClusterError, kwok
from tests.cluster import GPU_NODES

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "8", "nvidia.com/gpu": "6"}, "capacity": {"cpu": "8", "nvidia.com/gpu": "8"}},
}


def with_ready(status):
    node = copy.deepcopy(NODE)
    node["status"]["conditions"] = [{"type": "Ready", "status": status}]
    return node


def test_kwok_takes_over_every_node_and_the_given_object_is_left_alone():
    given = copy.deepcopy(NODE)
    made = kwok.prepare_node(given)
    assert made["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake"}
    assert made["metadata"]["labels"] == {"kubernetes.io/hostname": "n"}
    assert given == NODE


def test_capacity_and_allocatable_may_differ():
    status = kwok.prepare_node(NODE)["status"]
    assert (status["capacity"]["nvidia.com/gpu"], status["allocatable"]["nvidia.com/gpu"]) == ("8", "6")


def test_a_node_without_capacity_gets_an_ordinary_one():
    bare = {"kind": "Node", "metadata": {"name": "n"}}
    assert kwok.prepare_node(bare)["status"]["allocatable"] == kwok.DEFAULT_CAPACITY


def test_a_ready_node_has_no_conditions_so_that_kwok_writes_them():
    made = kwok.prepare_node(with_ready("True"))
    assert "conditions" not in made["status"]
    assert kwok.NOT_READY not in made["metadata"]["annotations"]


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_node_that_is_not_ready_is_marked_to_stay_so_with_an_address_in_the_blackhole(status):
    made = kwok.prepare_node(with_ready(status))
    assert made["metadata"]["annotations"][kwok.NOT_READY] == "true"
    assert made["status"]["addresses"][0] == {"type": "InternalIP", "address": "10.250.255.254"}


def test_the_fixtures_hold_every_machine_of_the_table():
    nodes = kwok.read_nodes(GPU_NODES)
    assert len(nodes) == 23
    not_ready = [n["metadata"]["name"] for n in map(kwok.prepare_node, nodes)
                 if kwok.NOT_READY in n["metadata"]["annotations"]]  # fmt: skip
    assert not_ready == ["x-l4-notready"]


def test_a_file_with_something_else_than_nodes_is_refused(tmp_path):
    file = tmp_path / "pods.yaml"
    file.write_text("kind: Node\n---\nkind: Pod\n")
    with pytest.raises(DevClusterError, match="document 2 is not a Node"):
        kwok.read_nodes(file)
    with pytest.raises(DevClusterError, match=r"none\.yaml"):
        kwok.read_nodes(tmp_path / "none.yaml")
