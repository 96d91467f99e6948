"""Volumes of the real node: folders of the cluster's own, so that claims bind at once, and pods of the node may share them."""

from __future__ import annotations

from devcluster.api import Api
from devcluster.node import NAME
from devcluster.paths import ClusterPaths

STORAGE_CLASS = "node-folders"
COUNT = 32
"""Claims that a cluster can bind in its life: a folder is not given out again."""
SIZE = "100Gi"
_ACCESS_MODES = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"]


def create(api: Api, paths: ClusterPaths) -> None:
    """Create the default StorageClass and its volumes. Nothing holds a claim to its size: it is disk space of this machine."""
    api.request(
        "POST",
        "/apis/storage.k8s.io/v1/storageclasses",
        {
            "metadata": {
                "name": STORAGE_CLASS,
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "kubernetes.io/no-provisioner",
            "reclaimPolicy": "Retain",
            "volumeBindingMode": "Immediate",
        },
    )
    for number in range(1, COUNT + 1):
        name = f"{STORAGE_CLASS}-{number:02}"
        folder = paths.node / "volumes" / name
        folder.mkdir(parents=True)
        # The kubelet leaves the owner of a hostPath as it is, and pods have users of their own. Nobody else gets past the cluster's folder.
        folder.chmod(0o777)
        api.request("POST", "/api/v1/persistentvolumes", _volume(name, str(folder)))


def _volume(name: str, folder: str) -> dict[str, object]:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NAME]}
    return {
        "metadata": {"name": name},
        "spec": {
            "storageClassName": STORAGE_CLASS,
            "capacity": {"storage": SIZE},
            "accessModes": _ACCESS_MODES,
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": folder, "type": "Directory"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
