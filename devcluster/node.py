"""The real node: containerd, kubelet and kube-proxy, set up so that they touch nothing of the machine's own.

containerd and kubelet live in a mount namespace of their own. Whatever they mount (root filesystems, volumes, network
namespaces) vanishes with their last process, however that ends, and paths that are fixed in their code lead into the
cluster's folder.
"""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster import network, packages, store
from devcluster.api import JSON_PATCH, MERGE_PATCH, Api, ApiError
from devcluster.build import KUBE
from devcluster.errors import DevClusterError
from devcluster.options import FakeGpus
from devcluster.paths import ClusterPaths, write_private
from devcluster.processes import Command, clean_environment

NAME = "node-real"
PORTS = ("kubelet", "kubelet-health", "proxy-health", "proxy-metrics")
# Where containerd puts the containers of a kubelet without cgroups of its own: the name of its namespace.
CGROUP = store.NAMESPACE
CGROUPS = Path("/sys/fs/cgroup")
GPU = "nvidia.com/gpu"
# Paths that containerd, its shims, the CNI library and kubelet have in their code.
FIXED_PATHS = ("/var/lib/cni", "/var/log/containers", "/run/containerd", "/run/nri")
# What GPU Feature Discovery says of a machine with this card: memory in MiB, compute capability, family.
KNOWN_GPUS = {
    "NVIDIA-L4": (23034, "8", "9", "ada-lovelace"),
    "NVIDIA-L40S": (46068, "8", "9", "ada-lovelace"),
    "NVIDIA-A100-SXM4-80GB": (81920, "8", "0", "ampere"),
    "NVIDIA-H100-80GB-HBM3": (81559, "9", "0", "hopper"),
    "Tesla-T4": (15360, "7", "5", "turing"),
}


@dataclass(frozen=True)
class RealNode:
    """Command lines and configuration files of one cluster's real node.

    Args:
        paths: The cluster's files.
        ports: A port for each name in `PORTS`.
        pause: Reference of the image that holds a pod's namespaces.
    """

    paths: ClusterPaths
    ports: dict[str, int]
    pause: str

    def containerd(self) -> Command:
        """The container runtime; as the first process of the node it also makes the mount namespace."""
        folder = self.paths.node
        write_private(folder / "containerd.toml", self._containerd_config())
        write_private(folder / "cni" / "10-pods.conflist", json.dumps(self._pod_network()))
        script = []
        for path in FIXED_PATHS:
            private = folder / "private" / path.strip("/").replace("/", "-")
            private.mkdir(parents=True, exist_ok=True, mode=0o755)
            script.append(f"mount --bind {shlex.quote(str(private))} {path}")
        script.append(f"exec containerd --config {shlex.quote(str(folder / 'containerd.toml'))}")
        return self._command(
            "containerd", "unshare", "--mount", "--propagation", "private", "sh", "-ec", " && ".join(script)
        )

    def kubelet(self, containerd_pid: int) -> Command:
        """The kubelet, in containerd's mount namespace: it mounts the volumes that containerd hands to containers."""
        config = self.paths.node / "kubelet.yaml"
        write_private(config, json.dumps(self._kubelet_config(), indent=2))
        return self._command(
            "kubelet",
            "nsenter",
            f"--mount=/proc/{containerd_pid}/ns/mnt",
            str(KUBE.folder() / "kube"),
            "kubelet",
            f"--config={config}",
            f"--kubeconfig={self.paths.kubeconfig_of('kubelet')}",
            f"--root-dir={self.paths.node / 'kubelet'}",
            f"--hostname-override={NAME}",
            f"--node-ip={network.NODE_IP}",
        )

    def proxy(self) -> Command:
        """kube-proxy with nftables: Services answer in pods and on this machine."""
        config = self.paths.node / "proxy.yaml"
        write_private(config, json.dumps(self._proxy_config(), indent=2))
        return self._command("proxy", str(KUBE.folder() / "kube"), "proxy", f"--config={config}")

    def _command(self, name: str, *argv: str) -> Command:
        return Command(name, argv, self.paths.log_of(name), clean_environment(self.paths.node))

    def _containerd_config(self) -> str:
        folder = self.paths.node
        plugins = packages.PTP.find()
        if plugins is None:
            raise DevClusterError("the CNI plugin `ptp` is not installed")
        # "native" copies instead of stacking; an overlay cannot lie on another overlay (inside a container).
        snapshotter = "native" if _is_overlay(self.paths.home) else "overlayfs"
        return f"""version = 2
root = {_quoted(store.root(self.paths))}
state = {_quoted(folder / "containerd" / "state")}
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.tracing", "io.containerd.nri.v1.nri",
]
[grpc]
  address = {_quoted(self.paths.containerd_socket)}
[plugins."io.containerd.internal.v1.opt"]
  path = {_quoted(folder / "opt")}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = {_quoted(self.pause)}
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {_quoted(plugins.parent)}
    conf_dir = {_quoted(folder / "cni")}
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
"""

    def _pod_network(self) -> dict[str, Any]:
        # Each pod has a link of its own to the machine, which routes between them. On a shared bridge, answers of a
        # Service's pod would go past the translation of its ClusterIP, or not, as br_netfilter happens to be loaded.
        # Without the portmap plugin: a hostPort would listen on all of this machine's addresses.
        return {
            "cniVersion": "1.0.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "ptp",
                    # Pods have no way out of the machine.
                    "ipMasq": False,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": str(self.paths.node / "ipam"),
                        "ranges": [[{"subnet": network.POD_CIDR, "gateway": network.NODE_IP}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        }

    def _kubelet_config(self) -> dict[str, Any]:
        pki, folder = self.paths.pki, self.paths.node
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(pki / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(pki / "kubelet.crt"),
            "tlsPrivateKeyFile": str(pki / "kubelet.key"),
            "address": network.NODE_IP,
            "port": self.ports["kubelet"],
            "readOnlyPort": 0,
            "healthzBindAddress": "127.0.0.1",
            "healthzPort": self.ports["kubelet-health"],
            "containerRuntimeEndpoint": f"unix://{self.paths.containerd_socket}",
            "podLogsDir": str(folder / "pod-logs"),
            "volumePluginDir": str(folder / "volume-plugins"),
            # Works with both cgroup versions and without systemd; limits of containers hold, those of pods do not.
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "makeIPTablesUtilChains": False,
            # There is no DNS server: pods get the machine's own resolver, and find Services by ClusterIP.
            "clusterDNS": [],
            "resolvConf": "/etc/resolv.conf",
            # Filesystem statistics are not to be had on every VM disk, and images must never be collected.
            "localStorageCapacityIsolation": False,
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "50Mi"},
            "serializeImagePulls": False,
        }

    def _proxy_config(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": str(self.paths.kubeconfig_of("proxy"))},
            "clusterCIDR": network.POD_CIDR,
            "hostnameOverride": NAME,
            "bindAddress": network.NODE_IP,
            "healthzBindAddress": f"127.0.0.1:{self.ports['proxy-health']}",
            "metricsBindAddress": f"127.0.0.1:{self.ports['proxy-metrics']}",
            "nodePortAddresses": [network.POD_CIDR],
            "oomScoreAdj": 0,
            "nftables": {"minSyncPeriod": "100ms"},
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }


def cgroups() -> list[Path]:
    """The folder of all containers in each cgroup hierarchy, as far as it exists.

    Version 2 has one hierarchy, mounted at the top; version 1 has one below for each controller.
    """
    return [path for path in (CGROUPS / CGROUP, *CGROUPS.glob(f"*/{CGROUP}")) if path.is_dir()]


def container_ids(paths: ClusterPaths) -> set[str]:
    """Ids of all containers that containerd has on record, alive or not."""
    folders = [paths.node / "containerd/state/io.containerd.runtime.v2.task" / store.NAMESPACE]
    folders += [store.root(paths) / folder for folder in store.OF_CONTAINERS]
    return {entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir()}


def registered(api: Api) -> bool:
    """Whether the kubelet has registered the node and it is Ready."""
    try:
        node = api.request("GET", f"/api/v1/nodes/{NAME}", timeout=2)
    except ApiError as error:
        if error.code == 404:
            return False
        raise
    conditions = node["status"].get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def set_fake_gpus(api: Api, gpus: FakeGpus) -> None:
    """Make the real node claim GPUs: labels as GPU Feature Discovery would set them, and the extended resource."""
    labels = {"nvidia.com/gpu.product": gpus.product, "nvidia.com/gpu.count": str(gpus.count)}
    labels["nvidia.com/gpu.present"] = "true"
    if known := KNOWN_GPUS.get(gpus.product):
        names = ("memory", "compute.major", "compute.minor", "family")
        labels |= {f"nvidia.com/gpu.{name}": str(value) for name, value in zip(names, known, strict=True)}
    path = f"/api/v1/nodes/{NAME}"
    api.request("PATCH", path, {"metadata": {"labels": labels}}, content_type=MERGE_PATCH)
    escaped = GPU.replace("/", "~1")
    patch = [
        {"op": "add", "path": f"/status/{field}/{escaped}", "value": str(gpus.count)}
        for field in ("capacity", "allocatable")
    ]
    api.request("PATCH", f"{path}/status", patch, content_type=JSON_PATCH)


def _is_overlay(folder: Path) -> bool:
    """Whether a folder lies on an overlay filesystem."""
    while not folder.exists():
        folder = folder.parent
    device = f"{os.major(folder.stat().st_dev)}:{os.minor(folder.stat().st_dev)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[2] == device:
            return fields[fields.index("-") + 1] == "overlay"
    return False


def _quoted(value: object) -> str:
    """A TOML string."""
    return json.dumps(str(value))
