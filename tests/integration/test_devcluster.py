"""The cluster tool against the real thing: what it starts works, and what it ends is gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from devcluster import Cluster, DevClusterError, Options
from tests.cluster import GPU_NODES, apply, eventually, get, kubectl


def test_two_control_planes_stand_side_by_side_and_share_nothing(make_cluster, control_plane):
    other = make_cluster()
    kubectl(other, "create", "namespace", "only-here")
    assert "only-here" in kubectl(other, "get", "namespaces")
    assert "only-here" not in kubectl(control_plane, "get", "namespaces")


def test_up_of_a_running_cluster_refuses_what_it_does_not_have(gpu_cluster):
    options = Options(gpu_cluster.name, node=False, home=gpu_cluster.paths.home, kwok_files=(GPU_NODES,))
    assert Cluster.up(options).paths == gpu_cluster.paths
    with pytest.raises(DevClusterError, match=r"without the simulated nodes of other\.yaml"):
        Cluster.up(replace(options, kwok_files=(Path("other.yaml"),)))
    with pytest.raises(DevClusterError, match=r"without the stages of stages\.yaml"):
        Cluster.up(replace(options, kwok_stages=(Path("stages.yaml"),)))
    with pytest.raises(DevClusterError, match="without a real node"):
        Cluster.up(replace(options, node=True))


def test_a_pod_for_a_gpu_runs_on_the_simulated_node_that_has_it(gpu_cluster):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "wants-l40s", "namespace": "default"},
        "spec": {
            "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L40S"},
            "containers": [{"name": "c", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        },
    }
    apply(gpu_cluster, pod)

    def running():
        found = get(gpu_cluster, "pod", "wants-l40s")
        return found if found["status"]["phase"] == "Running" else None

    assert eventually(running, "the pod runs")["spec"]["nodeName"] == "catalyst-l40s"


def test_a_node_that_the_file_calls_not_ready_stays_so(gpu_cluster):
    conditions = get(gpu_cluster, "node", "x-l4-notready")["status"]["conditions"]
    assert {c["status"] for c in conditions if c["type"] == "Ready"} == {"False"}


def test_nodes_keep_the_capacity_of_the_file(gpu_cluster):
    assert get(gpu_cluster, "node", "dgx-a100-80x8")["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert GPU_NODES.read_text().count("kind: Node") == len(get(gpu_cluster, "nodes")["items"])
