"""GPU types on a real control plane: the command that shows them, and a real scheduler that follows the terms."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from cosyvoice_operator.__main__ import main
from cosyvoice_operator.core.gpu import parse_node, placement
from devcluster import Cluster
from tests.cluster import GPU_NODES, apply, eventually, get, kubectl
from tests.integration.conftest import StartOperator
from tests.integration.proxy import ApiProxy, Refusal, Request
from tests.integration.resources import CPU_TIER, create, read, resource, two_tiers, wait_ready
from tests.operator_process import OperatorProcess

NODES = [parse_node(raw) for raw in yaml.safe_load_all(GPU_NODES.read_text()) if raw]
OFFERS = sorted({(offer.gpu_type, offer.resource) for node in NODES for offer in node.offers})

Output = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def machines(make_cluster: Callable[..., Cluster]) -> Cluster:
    """A cluster with a simulated node for each machine of the fixtures, all of whose GPUs are free."""
    return make_cluster(name="gpus", kwok_files=(GPU_NODES,))


@pytest.fixture
def shown(machines: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> Callable[..., list[dict[str, Any]]]:
    """Runs the command, against the cluster or with a file, and gives what it prints as JSON."""
    monkeypatch.setenv("COSYVOICE_OPERATOR_KUBECONFIG", str(machines.kubeconfig))

    def show(*arguments: str) -> list[dict[str, Any]]:
        assert main(["gpus", "-o", "json", *arguments]) == 0
        return json.loads(capsys.readouterr().out)["gpus"]

    return show


def test_a_cluster_shows_the_same_types_as_the_file_that_its_nodes_are_from(
    shown: Callable[..., list[dict[str, Any]]],
) -> None:
    live, file = (
        {(gpu["node"], gpu["gpuType"], gpu["resource"], gpu["count"], *gpu["backends"]) for gpu in gpus}
        for gpus in (shown(), shown("-f", str(GPU_NODES)))
    )
    assert live == file
    assert len(live) == 24


def test_the_table_of_a_cluster_names_each_machine(
    machines: Cluster, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSYVOICE_OPERATOR_KUBECONFIG", str(machines.kubeconfig))
    assert main(["gpus"]) == 0
    lines = capsys.readouterr().out.partition("\n\n")[0].splitlines()[1:]
    assert {line.split()[0] for line in lines} == {node.name for node in NODES}


def test_the_scheduler_puts_a_pod_of_each_type_on_a_node_of_that_type(machines: Cluster) -> None:
    pods = {f"wants-{number}": offer for number, offer in enumerate(OFFERS)}
    apply(machines, *(pod(name, *offer) for name, offer in pods.items()))

    def bound() -> dict[str, str] | None:
        found = {p["metadata"]["name"]: p["spec"].get("nodeName") for p in get(machines, "pods")["items"]}
        return found if set(found) >= set(pods) and all(found[name] for name in pods) else None

    placed = eventually(bound, "every pod has a node", within=60)
    for name, offer in pods.items():
        having = {n.name for n in NODES for o in n.offers if (o.gpu_type, o.resource) == offer}
        assert placed[name] in having, offer


def pod(name: str, gpu_type: str, wanted: str) -> dict[str, Any]:
    """A pod for one GPU of a type."""
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(placement(gpu_type, wanted))}
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "affinity": {"nodeAffinity": required},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "containers": [{"name": "c", "image": "127.0.0.1:9/none/none:1", "resources": {"limits": {wanted: "1"}}}],
        },
    }


def test_slices_that_a_driver_publishes_are_seen(machines: Cluster, shown: Callable[..., list[dict[str, Any]]]) -> None:
    # A node whose labels tell the type and whose kubelet counts no GPU: the driver hands them out.
    apply(machines, resource_slice("x-aks-a10-noplugin", "NVIDIA A10-8Q"))
    [found] = [gpu for gpu in shown() if gpu["node"] == "x-aks-a10-noplugin"]
    assert (found["gpuType"], found["count"], found["source"]) == ("A10-8Q", 1, "ResourceSlice")
    assert found["backends"] == ["ONNXRuntime"]


def resource_slice(node: str, product: str) -> dict[str, Any]:
    """What NVIDIA's driver for dynamic resource allocation publishes of a node with one GPU."""
    attributes = {
        "type": {"string": "gpu"},
        "productName": {"string": product},
        "cudaComputeCapability": {"version": "8.6.0"},
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpu"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "attributes": attributes, "capacity": {"memory": {"value": "8Gi"}}}],
        },
    }


def test_the_operator_hears_of_a_gpu_that_only_a_slice_tells(
    cluster: Cluster, namespace: str, operator: OperatorProcess
) -> None:
    tier = {"name": "gpu", "backend": "Triton", "gpu": {"products": ["NVIDIA-A10"]}, "executionProvider": "CPU"}
    create(cluster, resource(namespace, tiers=[tier, CPU_TIER]))
    eventually(lambda: "No node has GPU type A10" in message(cluster, namespace), "there is no such GPU")
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "dra", "labels": {"nvidia.com/gpu.product": "NVIDIA-A10"}},
    }
    try:
        apply(cluster, node, resource_slice("dra", "NVIDIA A10"))
        eventually(lambda: "1 node(s) have GPU type A10" in message(cluster, namespace), "the GPU of the slice counts")
    finally:
        kubectl(cluster, "delete", "resourceslice/dra-gpu", "node/dra", "--ignore-not-found")


def message(cluster: Cluster, namespace: str) -> str:
    """What the pool of the A10 says of itself."""
    pools = read(cluster, namespace).get("status", {}).get("pools", ())
    return next((found["message"] for found in pools if found.get("gpuType") == "A10"), "")


OLD_CLUSTER, OLD_RULES = Refusal(404, "NotFound"), Refusal(403, "Forbidden")


@pytest.mark.parametrize(
    "refusal", [OLD_CLUSTER, OLD_RULES], ids=["an older cluster", "access rules of an older release"]
)
def test_without_slices_the_operator_works_on(
    refusal: Refusal, cluster: Cluster, namespace: str, proxy: ApiProxy, start_operator: StartOperator
) -> None:
    def before(request: Request) -> Refusal | None:
        asked = request.group == "resource.k8s.io"
        # An older cluster has the group or not, and none with this version.
        discovered = refusal is OLD_CLUSTER and request.resource.startswith("/apis/resource.k8s.io")
        return refusal if asked or discovered else None

    proxy.before(before)
    operator = start_operator(kubeconfig=proxy.kubeconfig, resync_interval=2)
    eventually(operator.leading, "the operator leads")
    create(cluster, two_tiers(namespace))
    wait_ready(cluster, namespace)
    resyncs = operator.metric("resyncs_total", result="succeeded")
    eventually(lambda: operator.metric("resyncs_total", result="succeeded") > resyncs, "another resync")
