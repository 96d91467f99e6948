"""Objects as the API server would give them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]


def owner(name: str = "x", *, version: int = 1, uid: str = "owner-uid", **more: Any) -> Json:
    """A CosyVoiceDeployment."""
    return {
        "apiVersion": "tts.cosyvoice.io/v1alpha1",
        "kind": "CosyVoiceDeployment",
        "metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(version), "generation": 1},
        "spec": {},
    } | more


def child(
    name: str = "x-cpu",
    *,
    version: int = 1,
    uid: str = "child-uid",
    kind: str = "Deployment",
    deployment: str = "x",
    **more: Any,
) -> Json:
    """A child that ``deployment`` owns."""
    return {
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid,
            "resourceVersion": str(version),
            "labels": {"tts.cosyvoice.io/deployment": deployment, "app.kubernetes.io/managed-by": "cosyvoice-operator"},
            "ownerReferences": [
                {"kind": "CosyVoiceDeployment", "name": deployment, "uid": "owner-uid", "controller": True}
            ],
        },
        "spec": {"replicas": 1},
    } | more


def pod(name: str = "x-cpu-1", *, version: int = 1, uid: str = "pod-uid", **status: Any) -> Json:
    """A runtime pod of ``x``."""
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid,
            "resourceVersion": str(version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"tts.cosyvoice.io/deployment": "x", "tts.cosyvoice.io/pool": "x-cpu"},
            "managedFields": [{"manager": "kubelet"}],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "gateway", "image": "i"}]},
        "status": {"phase": "Running"} | status,
    }


def node(name: str = "n1", *, version: int = 1, gpus: int = 2, ready: bool = True, **more: Any) -> Json:
    """A node with GPUs."""
    return {
        "metadata": {
            "name": name,
            "uid": f"{name}-uid",
            "resourceVersion": str(version),
            "labels": {"nvidia.com/gpu.product": "NVIDIA-L4"},
        },
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    } | more


def job(
    name: str = "engine-1",
    *,
    version: int = 1,
    uid: str = "job-uid",
    namespace: str = "ns",
    owners: Sequence[str] = ("x",),
    suspend: bool = True,
    ended: str = "",
    created: datetime = datetime(2026, 1, 1, tzinfo=UTC),
) -> Json:
    """A Job that builds an engine for several resources."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": str(version),
            "creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "labels": {
                "app.kubernetes.io/managed-by": "cosyvoice-operator",
                "app.kubernetes.io/component": "engine",
                "tts.cosyvoice.io/engine": name.removeprefix("engine-"),
            },
            "ownerReferences": [
                {"kind": "CosyVoiceDeployment", "name": owner, "uid": f"{owner}-uid", "controller": False}
                for owner in owners
            ],
        },
        "spec": {"suspend": suspend, "template": {}},
        "status": {"conditions": [{"type": ended, "status": "True"}]} if ended else {},
    }


def job_pod(
    name: str = "engine-1-abcde", *, of: str = "engine-1", version: int = 1, job_uid: str = "job-uid", **status: Any
) -> Json:
    """A pod of a Job."""
    made = pod(name, version=version, uid=f"{name}-uid", **status)
    made["metadata"]["labels"] = {
        "batch.kubernetes.io/job-name": of,
        "app.kubernetes.io/managed-by": "cosyvoice-operator",
    }
    made["metadata"]["ownerReferences"] = [{"kind": "Job", "name": of, "uid": job_uid, "controller": True}]
    return made
