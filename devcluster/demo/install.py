"""Installs the operator into a cluster from the manifests that users apply, with locally built images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from devcluster.cluster import Cluster
from devcluster.paths import PROJECT

IMAGES = ("cosyvoice-operator", "cosyvoice-runtime-cpu", "cosyvoice-runtime-gateway", "cosyvoice-triton-demo")
_SETTINGS = {
    "COSYVOICE_OPERATOR_IMAGE_CPU": "cosyvoice-runtime-cpu",
    "COSYVOICE_OPERATOR_IMAGE_GATEWAY": "cosyvoice-runtime-gateway",
    "COSYVOICE_OPERATOR_IMAGE_TRITON": "cosyvoice-triton-demo",
}


def install(cluster: Cluster, images: Mapping[str, str]) -> None:
    """Apply ``manifests/install`` with ``images`` (name to reference) and wait until the operator is available."""
    built = cluster.kubectl("kustomize", str(PROJECT / "manifests" / "install"))
    objects = [_with_images(document, images) for document in yaml.safe_load_all(built) if document]
    crds = [document for document in objects if document["kind"] == "CustomResourceDefinition"]
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(crds))
    names = [f"crd/{document['metadata']['name']}" for document in crds]
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", *names)
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))
    deployment = next(document for document in objects if document["kind"] == "Deployment")["metadata"]
    cluster.kubectl(
        "rollout", "status", f"deployment/{deployment['name']}", "-n", deployment["namespace"], "--timeout=120s"
    )


def _with_images(document: dict[str, Any], images: Mapping[str, str]) -> dict[str, Any]:
    if document["kind"] != "Deployment":
        return document
    container = document["spec"]["template"]["spec"]["containers"][0]
    container["image"] = images["cosyvoice-operator"]
    # One replica is enough on one machine, and leaves its CPUs to the speech.
    document["spec"]["replicas"] = 1
    for variable in container["env"]:
        if variable["name"] in _SETTINGS:
            variable["value"] = images[_SETTINGS[variable["name"]]]
    return document
