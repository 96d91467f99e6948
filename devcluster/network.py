"""The machine's network as far as clusters touch it, and how it is put back."""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from devcluster import kwok, processes
from devcluster.errors import DevClusterError
from devcluster.locks import exclusive

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
