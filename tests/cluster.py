"""Helpers for tests that use a real cluster, so that no test writes its own waiting loop or kubectl call."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from devcluster import Cluster

FIXTURES = Path(__file__).parent / "fixtures"
GPU_NODES = FIXTURES / "gpu-nodes.yaml"
T = TypeVar("T")


def kubectl(cluster: Cluster, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
    """Run the cluster's own kubectl and return what it prints; raises DevClusterError when it fails."""
    return cluster.kubectl(*arguments, stdin=stdin, check=check)


def get(cluster: Cluster, *arguments: str) -> Any:
    """What `kubectl get ... -o json` gives, decoded."""
    return json.loads(cluster.kubectl("get", *arguments, "-o", "json"))


def apply(cluster: Cluster, *objects: dict[str, Any]) -> None:
    """Apply objects on the server's side, as the user would with kubectl."""
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)


def eventually(probe: Callable[[], T], what: str, *, within: float = 30.0) -> T:
    """Ask until the answer is truthy and return it.

    Raises:
        AssertionError: It was not within the time; names what was waited for and the last answer.
    """
    deadline = time.monotonic() + within
    while not (answer := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:.0f} s: {what}; last answer: {answer!r}")
        time.sleep(0.1)
    return answer
