"""A real Kubernetes on one machine, for the demo and the tests."""

from devcluster.cluster import Cluster, down
from devcluster.current import CurrentCluster
from devcluster.errors import DevClusterError, NotRunningError
from devcluster.options import FakeGpus, Options, Owner

__all__ = ["Cluster", "CurrentCluster", "DevClusterError", "FakeGpus", "NotRunningError", "Options", "Owner", "down"]
