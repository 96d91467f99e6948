"""Resources that need engines, their cache, and a record of every Job that was ever there."""

from __future__ import annotations

import json
import subprocess
import threading
from typing import Any, Self
from urllib.parse import quote

from devcluster import Cluster
from tests.cluster import apply, eventually, get, kubectl
from tests.integration.resources import OURS, create, read, resource

Json = dict[str, Any]

PRODUCTS = (
    "Tesla-T4", "Tesla-V100-SXM2-16GB", "NVIDIA-A10", "NVIDIA-A10G", "NVIDIA-A100-SXM4-80GB",
    "NVIDIA-L4", "NVIDIA-L40S", "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200", "NVIDIA-B200",
)  # fmt: skip

SIMULATED = "127.0.0.1:9/simulated"
BUILDS = f"{SIMULATED}/builds:300ms"
ENGINES = {"cache": {"claimName": "cache"}, "builderImage": BUILDS}


def node(product: str, name: str = "") -> Json:
    """A simulated machine with GPUs of one type."""
    labels = {"nvidia.com/gpu.product": product, "kubernetes.io/arch": "amd64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name or product.lower(), "labels": labels},
        "status": {"allocatable": {"cpu": "256", "memory": "1Ti", "pods": "250", "nvidia.com/gpu": "8"}},
    }


def on_gpus(*products: str) -> Json:
    """A tier of ONNX Runtime on these GPU types, or on all that there are."""
    return {"name": "gpu", "backend": "ONNXRuntime", "gpu": {"products": list(products)} if products else {}}


def with_engines(namespace: str, *products: str, name: str = "hello", engines: Json | None = None, **spec: Any) -> Json:
    """A resource that is served from engines on these GPU types, or on all that there are."""
    tiers = spec.pop("tiers", None) or [on_gpus(*products)]
    return resource(namespace, name, tiers=tiers, engines=ENGINES | (engines or {}), **spec)


def make_cache(cluster: Cluster, namespace: str, name: str = "cache") -> None:
    """A claim with a volume of its own."""
    modes, size = ["ReadWriteMany"], {"storage": "1Gi"}
    volume = f"{namespace}-{name}"
    apply(
        cluster,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                "capacity": size,
                "accessModes": modes,
                "hostPath": {"path": "/nowhere"},
                "claimRef": {"namespace": namespace, "name": name},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "accessModes": modes,
                "resources": {"requests": size},
                "volumeName": volume,
                "storageClassName": "",
            },
        },
    )


def build_jobs(cluster: Cluster, namespace: str) -> dict[str, Json]:
    """The builds of a namespace, by name."""
    items = get(cluster, "jobs", "-n", namespace, "-l", f"{OURS},app.kubernetes.io/component=engine")["items"]
    return {item["metadata"]["name"]: item for item in items}


def owners(job: Json) -> set[str]:
    """Names of the resources that need a Job."""
    return {reference["name"] for reference in job["metadata"].get("ownerReferences", ())}


def engines(cluster: Cluster, namespace: str, name: str = "hello") -> dict[str, Json]:
    """The engines of a resource as its status tells them, by GPU type."""
    status = read(cluster, namespace, name).get("status", {})
    return {engine.get("gpuType", "CPU"): engine for engine in status.get("engines", ())}


def states(cluster: Cluster, namespace: str, name: str = "hello") -> list[str]:
    """Where the engines of a resource stand."""
    return [engine["state"] for engine in engines(cluster, namespace, name).values()]


def wait_built(cluster: Cluster, namespace: str, count: int, name: str = "hello", within: float = 60) -> None:
    """Wait until a resource has all its engines."""
    eventually(
        lambda: states(cluster, namespace, name) == ["Ready"] * count, f"{count} engines are built", within=within
    )


def events(cluster: Cluster, namespace: str, reason: str) -> list[str]:
    """What was told about resources of a namespace with this reason."""
    items = get(cluster, "events.events.k8s.io", "-n", namespace)["items"]
    return [item["note"] for item in items if item["reason"] == reason]


def create_with_cache(cluster: Cluster, obj: Json) -> Json:
    """Create a resource, and its cache before it."""
    make_cache(cluster, obj["metadata"]["namespace"])
    return create(cluster, obj)


class JobLog:
    """Watches all Jobs of the cluster, so that one that was there for a moment is known too."""

    def __init__(self, cluster: Cluster) -> None:
        command = cluster.kubectl_command("get", "--raw", f"/apis/batch/v1/jobs?watch=true&labelSelector={quote(OURS)}")
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._events: list[Json] = []
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join(10)

    def made(self, namespace: str) -> list[str]:
        """Names of the Jobs that were made in a namespace, in order; one that was made twice stands there twice."""
        return [job["metadata"]["name"] for job in self._by_uid(namespace).values()]

    def started(self, *namespaces: str) -> list[str]:
        """Names of the Jobs that were started, in order."""
        names: dict[str, None] = {}
        for event in list(self._events):
            job = event["object"]
            if job["metadata"]["namespace"] in namespaces and not job["spec"].get("suspend"):
                names[job["metadata"]["name"]] = None
        return list(names)

    def most_running(self, *namespaces: str) -> int:
        """The most Jobs that ran at one moment, in these namespaces together."""
        running: set[str] = set()
        most = 0
        for event in list(self._events):
            job = event["object"]
            if job["metadata"]["namespace"] not in namespaces:
                continue
            ended = any(c["type"] in {"Complete", "Failed"} for c in job.get("status", {}).get("conditions", ()))
            if event["type"] == "DELETED" or ended or job["spec"].get("suspend"):
                running.discard(job["metadata"]["uid"])
            else:
                running.add(job["metadata"]["uid"])
            most = max(most, len(running))
        return most

    def _by_uid(self, namespace: str) -> dict[str, Json]:
        objects = (event["object"] for event in list(self._events))
        return {job["metadata"]["uid"]: job for job in objects if job["metadata"]["namespace"] == namespace}

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._events.append(json.loads(line))


def delete(cluster: Cluster, namespace: str, name: str = "hello") -> None:
    """Delete a resource as a user does."""
    kubectl(cluster, "delete", "cosyvoicedeployment", name, "-n", namespace, "--wait=false")
