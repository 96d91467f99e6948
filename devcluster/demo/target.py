"""Where the demo plays: on a cluster made for it, or on the user's own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from devcluster.cluster import Cluster
from devcluster.current import CurrentCluster
from devcluster.errors import DevClusterError
from devcluster.images import load_source, pause_image
from devcluster.options import FakeGpus, Options
from devcluster.progress import Progress

IMAGES = ("cosyvoice-operator", "cosyvoice-runtime-cpu", "cosyvoice-runtime-gateway", "cosyvoice-triton-demo")
PAUSE = "pause"
GPU_PRODUCT = "NVIDIA-L4"


class Target(Protocol):
    """A cluster that has the images."""

    @property
    def images(self) -> Mapping[str, str]:
        """Reference of each of :data:`IMAGES`, and of a container that does nothing, as :data:`PAUSE`."""
        ...

    @property
    def product(self) -> str:
        """GPU product of the nodes, as their label has it."""
        ...

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl and give what it prints."""
        ...

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Read one object of the API."""
        ...

    def service_url(self, namespace: str, name: str) -> str:
        """Give an address of a Service that can be reached from here."""
        ...


@dataclass(frozen=True)
class OwnMachine:
    """A cluster on this machine, with images built from this checkout."""

    cluster: Cluster
    images: Mapping[str, str]
    product: str = GPU_PRODUCT

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run the cluster's own kubectl."""
        return self.cluster.kubectl(*arguments, stdin=stdin, check=check)

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Read one object with the administrator's token."""
        return self.cluster.api.request("GET", path)

    def service_url(self, namespace: str, name: str) -> str:
        """Give the cluster address: kube-proxy answers on this machine too."""
        return f"http://{self.kubectl('get', 'service', '-n', namespace, name, '-o', 'jsonpath={.spec.clusterIP}')}"


def give_images(cluster: Cluster, progress: Progress) -> OwnMachine:
    """Build the images of this checkout, or take them from the cache, and load them into the cluster's node."""
    built = {name: load_source(name, progress) for name in IMAGES} | {PAUSE: pause_image(progress)}
    with progress.step("Loading images into the node"):
        for image in built.values():
            cluster.load_image(image.archive)
    return OwnMachine(cluster, {name: image.reference for name, image in built.items()})


@contextlib.contextmanager
def own_machine(name: str, progress: Progress, *, keep: bool) -> Iterator[OwnMachine]:
    """Bring up a cluster with two simulated GPUs for as long as the context lasts, or longer with ``keep``."""
    cluster = Cluster.up(Options(name=name, fake_gpus=FakeGpus(2, GPU_PRODUCT)), progress)
    try:
        yield give_images(cluster, progress)
    finally:
        if keep:
            progress.note(f"The cluster runs on: export KUBECONFIG={cluster.kubeconfig}; devcluster down --name {name}")
        else:
            with progress.step("Taking the cluster down"):
                cluster.down()


@dataclass(frozen=True)
class UsersCluster:
    """The cluster of the current kubeconfig context, through `kubectl proxy`; its images are in a registry."""

    cluster: CurrentCluster
    images: Mapping[str, str]
    product: str
    port: int

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run the user's kubectl."""
        return self.cluster.kubectl(*arguments, stdin=stdin, check=check)

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Read one object through the proxy."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return json.load(answer)

    def service_url(self, namespace: str, name: str) -> str:
        """Give an address through the API server, which chooses a ready pod for each request."""
        return f"http://127.0.0.1:{self.port}/api/v1/namespaces/{namespace}/services/{name}:http/proxy"


@contextlib.contextmanager
def users_cluster(environment: Mapping[str, str] = os.environ) -> Iterator[UsersCluster]:
    """Use the current kubeconfig context.

    Raises:
        DevClusterError: kubectl, the cluster or the names of the images are missing.
    """
    images, cluster = _references(environment), CurrentCluster.find()
    proxy = subprocess.Popen(cluster.kubectl_command("proxy", "--port=0"), stdout=subprocess.PIPE, text=True)
    try:
        line = proxy.stdout.readline() if proxy.stdout else ""
        found = re.search(r":(\d+)$", line.strip())
        if not found:
            raise DevClusterError("kubectl proxy did not start", hint="does `kubectl get nodes` work?")
        yield UsersCluster(cluster, images, environment.get("GPU_PRODUCT", GPU_PRODUCT), int(found[1]))
    finally:
        proxy.terminate()
        proxy.wait(10)


def _references(environment: Mapping[str, str]) -> dict[str, str]:
    if "REGISTRY" not in environment:
        raise DevClusterError(
            "CLUSTER=current needs images that the cluster can pull",
            hint="build them with the Containerfiles, push them, and name them: make demo CLUSTER=current REGISTRY=registry/prefix TAG=tag",
        )
    prefix, tag = environment["REGISTRY"], environment.get("TAG", "latest")
    return {name: f"{prefix}/{name}:{tag}" for name in (*IMAGES, PAUSE)}
