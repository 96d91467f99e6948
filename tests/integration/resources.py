"""CosyVoiceDeployments, and what has become of them."""

from __future__ import annotations

import json
from typing import Any

from devcluster import Cluster
from tests.cluster import eventually, kubectl

Json = dict[str, Any]

CHILD_KINDS = ("deployments", "services", "serviceaccounts", "poddisruptionbudgets")
OURS = "app.kubernetes.io/managed-by=cosyvoice-operator"

GPU_TIER: Json = {"name": "gpu", "backend": "Triton", "gpu": {"products": ["NVIDIA-L4"]}, "executionProvider": "CPU"}
CPU_TIER: Json = {"name": "cpu", "backend": "ONNXRuntime"}


def resource(namespace: str, name: str = "hello", **spec: Any) -> Json:
    """A CosyVoiceDeployment; without more it is the smallest useful one, served on CPU."""
    return {
        "apiVersion": "tts.cosyvoice.io/v1alpha1",
        "kind": "CosyVoiceDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": {"family": "Demo", "source": {"embedded": {"voice": "heart"}}}} | spec,
    }


def two_tiers(namespace: str, name: str = "hello", **spec: Any) -> Json:
    """One that is served on a GPU, or on CPU for lack of it."""
    return resource(namespace, name, tiers=[GPU_TIER, CPU_TIER], **spec)


def create(cluster: Cluster, obj: Json) -> Json:
    """Create an object, and give it as it is stored."""
    return json.loads(kubectl(cluster, "create", "-o", "json", "-f", "-", stdin=json.dumps(obj)))


def read(cluster: Cluster, namespace: str, name: str = "hello") -> Json:
    """The resource as it is now."""
    return json.loads(kubectl(cluster, "get", "cosyvoicedeployment", name, "-n", namespace, "-o", "json"))


def edit(cluster: Cluster, namespace: str, spec: Json, name: str = "hello") -> None:
    """Change the spec as a user does."""
    patch = json.dumps({"spec": spec})
    kubectl(cluster, "patch", "cosyvoicedeployment", name, "-n", namespace, "--type=merge", "-p", patch)


def children(cluster: Cluster, namespace: str, *, selector: str = OURS) -> dict[tuple[str, str], Json]:
    """The operator's children in a namespace, by kind and name."""
    arguments = ("get", ",".join(CHILD_KINDS), "-n", namespace, "-l", selector, "-o", "json")
    items = json.loads(kubectl(cluster, *arguments))["items"]
    return {(item["kind"], item["metadata"]["name"]): item for item in items}


def condition(obj: Json, kind: str) -> Json:
    """One condition; empty before there is any."""
    return next((c for c in obj.get("status", {}).get("conditions", ()) if c["type"] == kind), {})


def is_ready(cluster: Cluster, namespace: str, name: str = "hello") -> bool:
    """Whether all units are ready, for the spec as it is now."""
    obj = read(cluster, namespace, name)
    ready = condition(obj, "Ready")
    return ready.get("status") == "True" and ready["observedGeneration"] == obj["metadata"]["generation"]


def wait_ready(cluster: Cluster, namespace: str, name: str = "hello", within: float = 60) -> Json:
    """Wait until all units are ready and the current spec is rolled out, and give the resource."""

    def settled() -> bool:
        return (
            is_ready(cluster, namespace, name)
            and condition(read(cluster, namespace, name), "Reconciling")["status"] == "False"
        )

    eventually(settled, f"{namespace}/{name} is ready", within=within)
    return read(cluster, namespace, name)


def desired_part(child: Json) -> Json:
    """What of a child must be the same however often the operator was killed while making it."""
    meta = child["metadata"]
    kept = {key: meta.get(key) for key in ("name", "labels")}
    owners = [{key: ref[key] for key in ("kind", "name", "controller")} for ref in meta["ownerReferences"]]
    spec = json.loads(json.dumps(child.get("spec", {})))
    for assigned in ("clusterIP", "clusterIPs"):
        spec.pop(assigned, None)
    return {"metadata": kept | {"ownerReferences": owners}, "spec": spec}
