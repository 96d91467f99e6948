"""Simulated nodes: KWOK plays their kubelets, and the real scheduler and controllers see a large, varied cluster."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from devcluster.api import Api
from devcluster.build import KWOK
from devcluster.errors import DevClusterError
from devcluster.paths import ClusterPaths, write_private
from devcluster.processes import Command, clean_environment

ANNOTATION = "kwok.x-k8s.io/node"
NOT_READY = "devcluster/not-ready"
POD_CIDR = "10.250.0.0/16"
# Inside the pod range, so that it ends in the same blackhole: KWOK's default is an address of a real network.
NODE_IP = "10.250.255.254"
# Keeps a node at Ready=False: the controller manager calls one Unknown that it has not seen a heartbeat of.
STAY_NOT_READY: dict[str, Any] = {
    "apiVersion": "kwok.x-k8s.io/v1alpha1",
    "kind": "Stage",
    "metadata": {"name": "node-stay-not-ready"},
    "spec": {
        "resourceRef": {"apiGroup": "v1", "kind": "Node"},
        "selector": {
            "matchExpressions": [
                {"key": f'.metadata.annotations["{NOT_READY}"]', "operator": "Exists"},
                {
                    "key": '.status.conditions.[] | select( .type == "Ready" ) | .status',
                    "operator": "NotIn",
                    "values": ["False"],
                },
            ]
        },
        "next": {
            "statusTemplate": """
conditions:
- type: Ready
  status: "False"
  reason: KubeletNotReady
  message: "simulated: not ready"
  lastHeartbeatTime: {{ Now | Quote }}
  lastTransitionTime: {{ Now | Quote }}
"""
        },
    },
}
DEFAULT_CAPACITY = {"cpu": "8", "memory": "32Gi", "pods": "110"}


def read_nodes(path: Path) -> list[dict[str, Any]]:
    """Read Node objects from a YAML file.

    Raises:
        DevClusterError: The file cannot be read, or holds something else than Nodes.
    """
    try:
        documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
    except (OSError, yaml.YAMLError) as error:
        raise DevClusterError(f"{path}: {error}") from error
    for number, document in enumerate(documents, 1):
        if not isinstance(document, dict) or document.get("kind") != "Node":
            raise DevClusterError(f"{path}: document {number} is not a Node", hint="give Node objects only")
    return documents


def prepare_node(node: dict[str, Any]) -> dict[str, Any]:
    """The object to create for a Node as a user wrote it.

    KWOK takes a node over by its annotation and would make any node Ready within a second. One that the file calls
    not ready gets a second annotation: KWOK's own stages leave it alone, and one of ours keeps it as it is.
    """
    made = copy.deepcopy(node)
    metadata = made.setdefault("metadata", {})
    metadata.setdefault("labels", {}).setdefault("kubernetes.io/hostname", metadata["name"])
    annotations = metadata.setdefault("annotations", {})
    annotations[ANNOTATION] = "fake"
    status = made.setdefault("status", {})
    capacity = status.get("capacity") or status.get("allocatable") or DEFAULT_CAPACITY
    status["capacity"] = capacity
    status.setdefault("allocatable", capacity)
    # KWOK writes the conditions, and only those of nodes that are not Ready yet.
    given = {condition["type"]: condition["status"] for condition in status.pop("conditions", [])}
    if given.get("Ready", "True") != "True":
        annotations[NOT_READY] = "true"
        status["addresses"] = [
            {"type": "InternalIP", "address": NODE_IP},
            {"type": "Hostname", "address": metadata["name"]},
        ]
    return made


def create_nodes(api: Api, nodes: Sequence[dict[str, Any]]) -> None:
    """Create prepared nodes, with their status: the API server takes it on creation, as from a kubelet."""
    for node in nodes:
        api.request("POST", "/api/v1/nodes", node)


def as_given(api: Api, nodes: Sequence[dict[str, Any]]) -> bool:
    """Whether each prepared node is Ready, or not, as it is to be."""
    listed = api.request("GET", "/api/v1/nodes?resourceVersion=0")["items"]
    found = {
        (node["metadata"]["name"], condition["status"])
        for node in listed
        for condition in node.get("status", {}).get("conditions", [])
        if condition["type"] == "Ready"
    }
    wanted = {
        (node["metadata"]["name"], "False" if NOT_READY in node["metadata"]["annotations"] else "True")
        for node in nodes
    }
    return wanted <= found


def write_stages(paths: ClusterPaths, files: Sequence[Path] = ()) -> Path:
    """Write KWOK's own stages, kept away from nodes that are to stay not ready, the one for those, and those of the files.

    A stage of a file that has the name of one of KWOK's own takes its place.
    """
    documents = [STAY_NOT_READY]
    for stage in _stages(sorted((KWOK.folder() / "files").glob("*.yaml"))):
        if stage["spec"]["resourceRef"]["kind"] == "Node":
            stage["spec"]["selector"].setdefault("matchExpressions", []).append(
                {"key": f'.metadata.annotations["{NOT_READY}"]', "operator": "DoesNotExist"}
            )
        documents.append(stage)
    chosen = {stage["metadata"]["name"]: stage for stage in (*documents, *_stages(files))}
    target = paths.kwok / "stages.yaml"
    write_private(target, yaml.safe_dump_all(chosen.values(), sort_keys=False))
    return target


def _stages(files: Sequence[Path]) -> list[dict[str, Any]]:
    return [stage for file in files for stage in yaml.safe_load_all(file.read_text()) if stage]


def command(paths: ClusterPaths, port: int, stages: Sequence[Path] = ()) -> Command:
    """How to start KWOK; ``stages`` are files with more Stages."""
    return Command(
        name="kwok",
        argv=[
            str(KWOK.folder() / "kwok"),
            f"--config={write_stages(paths, stages)}",
            f"--kubeconfig={paths.kubeconfig_of('kwok')}",
            f"--manage-nodes-with-annotation-selector={ANNOTATION}=fake",
            # Without leases every node is lost after the controller manager's grace period of 50 seconds.
            "--node-lease-duration-seconds=40",
            f"--cidr={POD_CIDR}",
            f"--node-ip={NODE_IP}",
            f"--node-port={port}",
            f"--server-address=127.0.0.1:{port}",
        ],
        log=paths.log_of("kwok"),
        environment=clean_environment(paths.kwok),
    )
