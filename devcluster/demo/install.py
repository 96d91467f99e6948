"""Installs the operator from the manifests that users apply, with the images of the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from devcluster.crds import wait_until_established
from devcluster.demo.target import Target
from devcluster.paths import PROJECT

_SETTINGS = {
    "COSYVOICE_OPERATOR_IMAGE_CPU": "cosyvoice-runtime-cpu",
    "COSYVOICE_OPERATOR_IMAGE_GATEWAY": "cosyvoice-runtime-gateway",
    "COSYVOICE_OPERATOR_IMAGE_TRITON": "cosyvoice-triton-demo",
}


def install(target: Target) -> None:
    """Apply ``manifests/install`` and wait until the operator is available."""
    built = target.kubectl("kustomize", str(PROJECT / "manifests" / "install"))
    objects = [_with_images(document, target.images) for document in yaml.safe_load_all(built) if document]
    definitions = [document for document in objects if document["kind"] == "CustomResourceDefinition"]
    target.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(definitions))
    for document in definitions:
        wait_until_established(target.kubectl, document["metadata"]["name"])
    target.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))
    deployment = next(document for document in objects if document["kind"] == "Deployment")["metadata"]
    where = ("-n", deployment["namespace"])
    target.kubectl("rollout", "status", f"deployment/{deployment['name']}", *where, "--timeout=120s")


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
