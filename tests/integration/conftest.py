"""A real control plane with simulated nodes, and the operator as a process beside it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cosyvoice_operator.crdgen.files import CRD_FILE
from devcluster import Cluster
from devcluster.crds import wait_until_established
from tests.cluster import eventually, kubectl
from tests.integration.proxy import ApiProxy
from tests.operator_process import OperatorProcess

PROJECT = Path(__file__).parents[2]
CRD = "cosyvoicedeployments.tts.cosyvoice.io"

StartOperator = Callable[..., OperatorProcess]


def gpu_node(name: str, gpus: int) -> dict[str, Any]:
    """A simulated machine with room for many pods and a few GPUs."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "NVIDIA-L4"}},
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}},
    }


@pytest.fixture(scope="session")
def cluster(make_cluster: Callable[..., Cluster], tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """A control plane with two GPU nodes and the CRD."""
    nodes = tmp_path_factory.mktemp("nodes") / "nodes.yaml"
    nodes.write_text(yaml.safe_dump_all([gpu_node("gpu-1", 2), gpu_node("gpu-2", 2)]))
    cluster = make_cluster(name="operator", kwok_files=(nodes,))
    kubectl(cluster, "apply", "--server-side", "-f", str(PROJECT / CRD_FILE))
    wait_until_established(cluster.kubectl, CRD)
    return cluster


_numbers = itertools.count(1)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own; what is in it ends with the test."""
    name = f"test-{next(_numbers)}"
    kubectl(cluster, "create", "namespace", name)
    yield name
    kubectl(cluster, "delete", "cosyvoicedeployments", "--all", "-n", name, "--wait=false")
    kubectl(cluster, "delete", "namespace", name, "--wait=false")


@pytest.fixture
def fresh_namespace(cluster: Cluster) -> Iterator[Callable[[], str]]:
    """Makes one namespace after the other; all end with the test."""
    made: list[str] = []

    def make() -> str:
        made.append(f"test-{next(_numbers)}")
        kubectl(cluster, "create", "namespace", made[-1])
        return made[-1]

    yield make
    kubectl(cluster, "delete", "namespace", *made, "--wait=false")


@pytest.fixture
def start_operator(cluster: Cluster, tmp_path: Path) -> Iterator[StartOperator]:
    """Starts operators that end with the test: ``start_operator(kubeconfig=..., name=..., **settings)``.

    Each test has a Lease of its own, so that none waits for that of an operator which another test killed.
    """
    started: list[OperatorProcess] = []

    def start(*, kubeconfig: Path | None = None, **settings: Any) -> OperatorProcess:
        settings = {"lease_name": tmp_path.name.replace("_", "-")} | settings
        operator = OperatorProcess(kubeconfig or cluster.kubeconfig, tmp_path, **settings)
        started.append(operator)
        return operator

    yield start
    for operator in started:
        operator.kill()


@pytest.fixture
def operator(start_operator: StartOperator) -> OperatorProcess:
    """An operator that leads."""
    operator = start_operator()
    eventually(operator.leading, "the operator leads")
    return operator


@pytest.fixture
def proxy(cluster: Cluster, tmp_path: Path) -> Iterator[ApiProxy]:
    """A proxy in front of the API server."""
    proxy = ApiProxy(cluster, tmp_path)
    yield proxy
    proxy.close()
