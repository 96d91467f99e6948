"""The machine's network as far as clusters touch it, and how it is put back."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from devcluster import kwok, processes
from devcluster.errors import DevClusterError
from devcluster.locks import exclusive

BRIDGE = "cvd0"
NODE_IP = "10.244.0.1"  # the pod bridge's own address
POD_CIDR = "10.244.0.0/24"
SERVICE_CIDR = "10.0.0.0/24"
SERVICE_IP = "10.0.0.1"  # of the Service `kubernetes`
# A bridge takes over the lowest address of its ports, and pods would lose their way each time that changes.
BRIDGE_MAC = "02:c0:5f:01:ce:01"
NFT_TABLES = (("ip", "kube-proxy"), ("ip6", "kube-proxy"))
# What kubelet, kube-proxy and the CNI plugins set for the whole machine.
SYSCTLS = (
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
PROC_SYS = Path("/proc/sys")
LOCK = Path("/run/lock/cosyvoice-devcluster.lock")


def machine_lock() -> AbstractContextManager[None]:
    """Hold while routes, the bridge and the processes that need them come or go; they are shared by all clusters."""
    return exclusive(LOCK)


def is_root() -> bool:
    """Whether this process may change the network."""
    return os.geteuid() == 0


def add_blackhole() -> None:
    """Make sure that nothing that is sent to a simulated pod leaves this machine.

    Raises:
        DevClusterError: Another route covers the range already.
    """
    refuse_overlap(kwok.POD_CIDR)
    if not _routes("blackhole", kwok.POD_CIDR):
        ip("route", "add", "blackhole", kwok.POD_CIDR)


def remove_blackhole(mark: str) -> None:
    """Remove the route unless another cluster still simulates nodes."""
    if not processes.clusters_running("kwok") - {mark} and _routes("blackhole", kwok.POD_CIDR):
        ip("route", "del", "blackhole", kwok.POD_CIDR)


def read_sysctls() -> dict[str, str]:
    """The present values of all settings that a real node changes."""
    return {name: (PROC_SYS / name).read_text().strip() for name in SYSCTLS if (PROC_SYS / name).exists()}


def claim_machine(mark: str) -> None:
    """Refuse when this machine already is a node; otherwise remove what a crashed cluster left of its network.

    Call it under the machine lock.

    Raises:
        DevClusterError: Another cluster's node, or a Kubernetes of someone else, runs here.
    """
    if others := node_owners() - {mark}:
        raise DevClusterError(
            f"cluster {Path(others.pop()).name} already has this machine as its real node",
            hint="take it down first, or use --no-node",
        )
    if not _link_exists(BRIDGE) and (tables := _present_tables()):
        raise DevClusterError(
            f"another kube-proxy runs on this machine (nft table {' '.join(tables[0])})",
            hint="use that cluster, or --no-node here",
        )
    _remove_network()
    for cidr in (POD_CIDR, SERVICE_CIDR):
        refuse_overlap(cidr)


def node_owners() -> set[str]:
    """Marks of the clusters that run a real node."""
    return processes.clusters_running("kubelet") | processes.clusters_running("containerd")


def make_bridge() -> None:
    """Make the pod bridge. Its address is also the node's, and the API server's.

    ClusterIPs are routed to it: those that no Service has must not leave the machine.
    """
    ip("link", "add", BRIDGE, "address", BRIDGE_MAC, "type", "bridge")
    ip("address", "add", f"{NODE_IP}/24", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")
    ip("route", "add", SERVICE_CIDR, "dev", BRIDGE, "src", NODE_IP)


def release_machine(mark: str, sysctls: dict[str, str]) -> None:
    """Put the network back as it was, unless another cluster has taken the machine over. Call it under the lock."""
    if node_owners() - {mark}:
        return
    _remove_network()
    for name, value in sysctls.items():
        if (PROC_SYS / name).read_text().strip() != value:
            (PROC_SYS / name).write_text(value)


def _remove_network() -> None:
    if _link_exists(BRIDGE):
        for port in json.loads(ip("-json", "link", "show", "master", BRIDGE) or "[]"):
            # Its other end lies in a pod's namespace, which the kernel may remove first.
            if _link_exists(port["ifname"]):
                _quietly("ip", "link", "delete", port["ifname"])
        ip("link", "delete", BRIDGE)
    for family, table in _present_tables():
        run(["nft", "delete", "table", family, table])


def _link_exists(name: str) -> bool:
    return (Path("/sys/class/net") / name).exists()


def _present_tables() -> list[tuple[str, str]]:
    if shutil.which("nft", path=processes.clean_environment(Path("/"))["PATH"]) is None:
        return []
    present = run(["nft", "list", "tables"]).splitlines()
    return [(family, table) for family, table in NFT_TABLES if f"table {family} {table}" in present]


def _quietly(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=False, env=processes.clean_environment(Path("/")))


def refuse_overlap(cidr: str, *, device: str = "") -> None:
    """Refuse to cover a range that this machine already routes somewhere.

    Args:
        cidr: The range that is about to be used.
        device: An interface whose routes do not count, being the cluster's own.

    Raises:
        DevClusterError: A route overlaps the range.
    """
    wanted = ipaddress.ip_network(cidr)
    for route in _routes():
        ours = route.get("type") == "blackhole" or (device and route.get("dev") == device)
        if ours or route["dst"] == "default":
            continue
        if wanted.overlaps(ipaddress.ip_network(route["dst"], strict=False)):
            raise DevClusterError(
                f"this machine already routes {route['dst']} to {route.get('dev', '?')}, which overlaps {cidr}",
                hint="the cluster's ranges are fixed; use a machine or a network namespace without that route",
            )


def _routes(*selector: str) -> list[dict[str, Any]]:
    kind = ["type", selector[0], "exact", selector[1]] if selector else []
    result: list[dict[str, Any]] = json.loads(ip("-json", "route", "show", *kind) or "[]")
    return result


def ip(*arguments: str) -> str:
    """Run `ip` and return what it prints."""
    return run(["ip", *arguments])


def run(command: Sequence[str]) -> str:
    """Run a command of the system and return what it prints.

    Raises:
        DevClusterError: It failed.
    """
    environment = processes.clean_environment(Path("/"))
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if result.returncode != 0:
        raise DevClusterError(f"{' '.join(command)}: {result.stderr.strip() or result.stdout.strip()}")
    return result.stdout
