"""A real Kubernetes on one machine, for the demo and the tests."""

from devcluster.cluster import Cluster, down
from devcluster.errors import DevClusterError
from devcluster.options import FakeGpus, Options, Owner

__all__ = ["Cluster", "DevClusterError", "FakeGpus", "Options", "Owner", "down"]
