"""A real node with the operator running in a pod, installed as users install it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from devcluster import Cluster
from devcluster.demo.install import install
from devcluster.demo.target import OwnMachine, give_images
from devcluster.progress import ConsoleProgress

Json = dict[str, Any]


@pytest.fixture(scope="session")
def target(real_cluster: Cluster) -> OwnMachine:
    """The cluster, with the images of this checkout loaded and the operator installed."""
    made = give_images(real_cluster, ConsoleProgress())
    install(made)
    return made


@pytest.fixture
def namespace(target: OwnMachine) -> Iterator[str]:
    """A namespace of the test's own, under the restricted profile; its resources are gone afterwards."""
    name = f"e2e-{next(_numbers)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    target.kubectl("apply", "-f", "-", stdin=json.dumps(space))
    yield name
    target.kubectl("delete", "cvd", "--all", "-n", name, "--cascade=foreground", "--timeout=120s")
    # The namespace controller waits for half of the longest grace period of the pods it saw; no test waits with it.
    target.kubectl("delete", "namespace", name, "--wait=false")


_numbers = count(1)


@pytest.fixture
def speech(target: OwnMachine, namespace: str) -> Callable[..., None]:
    """Applies a CosyVoiceDeployment `hello` of family Demo; keyword arguments go into its spec."""

    def apply(**spec: Any) -> None:
        small = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "1"}}
        base = {
            "model": {"family": "Demo", "source": {"embedded": {"voice": "heart"}}},
            "tiers": [{"name": "cpu", "backend": "ONNXRuntime", "resources": small}],
        }
        resource = {
            "apiVersion": "tts.cosyvoice.io/v1alpha1",
            "kind": "CosyVoiceDeployment",
            "metadata": {"name": "hello", "namespace": namespace},
            "spec": base | spec,
        }
        target.kubectl("apply", "-f", "-", stdin=json.dumps(resource))

    return apply
