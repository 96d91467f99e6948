"""Fixtures that give tests a real Kubernetes: started once per session, and gone with it, however it ends."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from devcluster import Cluster, CurrentCluster, DevClusterError, FakeGpus, Options, Owner, current
from devcluster.network import is_root
from devcluster.progress import ConsoleProgress
from tests.cluster import GPU_NODES

ClusterFactory = Callable[..., Cluster]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "exclusive_node: brings up a real node itself; runs before all other tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests that need the machine's only real node for themselves before `real_cluster` takes it for the session."""
    items.sort(key=lambda item: item.get_closest_marker("exclusive_node") is None)


@pytest.fixture(scope="session")
def cluster_home() -> Iterator[Path]:
    """State folder of this session's clusters; short, because Unix sockets lie below it."""
    home = Path(tempfile.mkdtemp(prefix="dc-"))
    yield home
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def make_cluster(cluster_home: Path) -> Iterator[ClusterFactory]:
    """Makes clusters of one's own: `make_cluster(kwok=True, kwok_files=(GPU_NODES,))`.

    All end with the session; call `.down()` to end one earlier. Without `node=True` it is a control plane only, and
    any number of them, also of other sessions, run side by side.
    """
    numbers = count(1)
    with ExitStack() as stack:

        def make(**options: Any) -> Cluster:
            options = {"name": f"c{next(numbers)}", "node": False, "home": cluster_home} | options
            cluster = Cluster.up(Options(owner=Owner.this_process(), **options), ConsoleProgress())
            stack.callback(cluster.down)
            return cluster

        yield make


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Cluster | CurrentCluster:
    """A control plane without nodes; `control_plane.start_kwok(file, ...)` adds simulated ones on demand.

    With CLUSTER=current it is the user's own cluster.
    """
    if current.wanted():
        return CurrentCluster.find()
    return request.getfixturevalue("make_cluster")()


@pytest.fixture(scope="session")
def gpu_cluster(make_cluster: ClusterFactory) -> Cluster:
    """A control plane of its own with a simulated node for each GPU machine of the fixtures."""
    return make_cluster(kwok_files=(GPU_NODES,))


@pytest.fixture(scope="session")
def real_cluster(request: pytest.FixtureRequest) -> Cluster | CurrentCluster:
    """A cluster with a real node that claims two NVIDIA L4; one per machine, and only as root.

    With CLUSTER=current it is the user's own cluster.
    """
    if current.wanted():
        return CurrentCluster.find()
    if not is_root():
        pytest.skip("a real node needs root")
    try:
        return request.getfixturevalue("make_cluster")(name="real", node=True, fake_gpus=FakeGpus(2, "NVIDIA-L4"))
    except DevClusterError as error:
        pytest.fail(str(error))
