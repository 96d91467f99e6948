"""A control plane with ten GPU types, on which the images of Jobs say what becomes of their pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from cosyvoice_operator.crdgen.files import CRD_FILE
from devcluster import Cluster
from devcluster.crds import wait_until_established
from tests.cluster import FIXTURES, eventually, kubectl
from tests.integration.conftest import CRD, PROJECT, StartOperator
from tests.integration.engines.jobs import BUILDS, PRODUCTS, JobLog, node
from tests.operator_process import OperatorProcess


@pytest.fixture(scope="session")
def cluster(make_cluster: Callable[..., Cluster], tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """A control plane with a simulated node for each of ten GPU types, and the CRD."""
    nodes = tmp_path_factory.mktemp("nodes") / "nodes.yaml"
    nodes.write_text(yaml.safe_dump_all([node(product) for product in PRODUCTS]))
    stages = (FIXTURES / "kwok-jobs.yaml",)
    cluster = make_cluster(name="engines", kwok_files=(nodes,), kwok_stages=stages)
    kubectl(cluster, "apply", "--server-side", "-f", str(PROJECT / CRD_FILE))
    wait_until_established(cluster.kubectl, CRD)
    return cluster


@pytest.fixture
def start_operator(start_operator: StartOperator) -> StartOperator:
    """Starts operators whose builds end well, and of which as many as a test needs may run at once, unless it says otherwise."""

    def start(*, kubeconfig: Path | None = None, **settings: object) -> OperatorProcess:
        chosen = {"image_fetch": BUILDS, "builds": 100, "builds_per_namespace": 100} | settings
        return start_operator(kubeconfig=kubeconfig, **chosen)

    return start


@pytest.fixture
def operator(start_operator: StartOperator) -> OperatorProcess:
    """An operator that leads."""
    operator = start_operator()
    eventually(operator.leading, "the operator leads")
    return operator


@pytest.fixture
def jobs(cluster: Cluster) -> Iterator[JobLog]:
    """All that happens to Jobs during the test."""
    with JobLog(cluster) as log:
        yield log
