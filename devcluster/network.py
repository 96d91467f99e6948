"""The machine's network as far as clusters touch it, and how it is put back."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from devcluster import kwok, processes
from devcluster.errors import DevClusterError
from devcluster.locks import exclusive

# Holds the node's address. It is a bridge without ports, since every kernel has that type and not all have dummies.
INTERFACE = "cvd0"
NODE_IP = "10.244.0.1"  # of the real node, and of its API server; pods have it as their gateway
POD_CIDR = "10.244.0.0/24"
SERVICE_CIDR = "10.0.0.0/24"
SERVICE_IP = "10.0.0.1"  # of the Service `kubernetes`
# The rule that lets pods reach each other through a firewall that forwards nothing by default.
FORWARD_PODS = ("FORWARD", "-s", POD_CIDR, "-d", POD_CIDR, "-j", "ACCEPT")
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
    """Hold while routes, interfaces and the processes that need them come or go; they are shared by all clusters."""
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
    if not _link_exists(INTERFACE) and (tables := _present_tables()):
        raise DevClusterError(
            f"another kube-proxy runs on this machine (nft table {' '.join(tables[0])})",
            hint="use that cluster, or --no-node here",
        )
    _remove_network()
    for cidr in (POD_CIDR, SERVICE_CIDR):
        refuse_overlap(cidr)


def node_owners(*, here: bool = True) -> set[str]:
    """Marks of the clusters that run a real node, in this network namespace or on the whole machine."""
    return processes.clusters_running("kubelet", here=here) | processes.clusters_running("containerd", here=here)


def make_interface() -> None:
    """Make the interface with the node's address, and routes for all addresses of pods and Services.

    Each pod has a route of its own; what is sent to any other address of the ranges must not leave the machine.
    """
    ip("link", "add", INTERFACE, "type", "bridge")
    ip("address", "add", f"{NODE_IP}/32", "dev", INTERFACE)
    ip("link", "set", INTERFACE, "up")
    ip("route", "add", "unreachable", POD_CIDR)
    # Not "unreachable": a program on this machine is refused that before kube-proxy translates the ClusterIP.
    ip("route", "add", SERVICE_CIDR, "dev", INTERFACE, "src", NODE_IP)
    if _forwards_nothing():
        run(["iptables", "-I", *FORWARD_PODS])


def release_machine(mark: str, sysctls: dict[str, str]) -> None:
    """Put the network and the settings back as they were, unless others need them. Call it under the lock."""
    if node_owners() - {mark}:
        return
    _remove_network()
    if node_owners(here=False) - {mark}:
        return
    for name, value in sysctls.items():
        if (PROC_SYS / name).read_text().strip() != value:
            (PROC_SYS / name).write_text(value)


def _remove_network() -> None:
    for route in _routes():
        # The links of pods: their other ends lie in namespaces that the kernel may remove first.
        if route.get("dev", "").startswith("veth") and _within(route["dst"], POD_CIDR):
            _quietly("ip", "link", "delete", route["dev"])
    if _link_exists(INTERFACE):
        ip("link", "delete", INTERFACE)
    _quietly("ip", "route", "delete", "unreachable", POD_CIDR)
    for family, table in _present_tables():
        run(["nft", "delete", "table", family, table])
    if _forwards_nothing():
        _quietly("iptables", "-D", *FORWARD_PODS)


def _forwards_nothing() -> bool:
    """Whether a firewall, such as docker's, drops what is not expressly let through."""
    if not _installed("iptables"):
        return False
    found = subprocess.run(
        ["iptables", "-S", "FORWARD"], capture_output=True, text=True, check=False, env=_environment()
    )
    return "-P FORWARD DROP" in found.stdout


def _within(address: str, cidr: str) -> bool:
    return address != "default" and ipaddress.IPv4Network(address).subnet_of(ipaddress.IPv4Network(cidr))


def _link_exists(name: str) -> bool:
    # Not from /sys/class/net: that shows the network namespace in which it was mounted.
    return any(link["ifname"] == name for link in json.loads(ip("-json", "link", "show") or "[]"))


def _present_tables() -> list[tuple[str, str]]:
    if not _installed("nft"):
        return []
    present = run(["nft", "list", "tables"]).splitlines()
    return [(family, table) for family, table in NFT_TABLES if f"table {family} {table}" in present]


def _installed(program: str) -> bool:
    return shutil.which(program, path=_environment()["PATH"]) is not None


def _environment() -> dict[str, str]:
    return processes.clean_environment(Path("/"))


def _quietly(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=False, env=_environment())


def refuse_overlap(cidr: str) -> None:
    """Refuse to cover a range that this machine already routes somewhere.

    Raises:
        DevClusterError: A route overlaps the range.
    """
    if route := find_overlap(_routes(), cidr):
        raise DevClusterError(
            f"this machine already routes {route['dst']} to {route.get('dev', '?')}, which overlaps {cidr}",
            hint="the cluster's ranges are fixed; use a machine or a network namespace without that route",
        )


def find_overlap(routes: Sequence[Mapping[str, Any]], cidr: str) -> Mapping[str, Any] | None:
    """The first route, as `ip -json route` tells it, that overlaps a range; routes to nowhere and to all do not count."""
    wanted = ipaddress.IPv4Network(cidr)
    for route in routes:
        if route["dst"] == "default" or route.get("type") in {"blackhole", "unreachable"}:
            continue
        if wanted.overlaps(ipaddress.IPv4Network(route["dst"], strict=False)):
            return route
    return None


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
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    if result.returncode != 0:
        raise DevClusterError(f"{' '.join(command)}: {result.stderr.strip() or result.stdout.strip()}")
    return result.stdout
