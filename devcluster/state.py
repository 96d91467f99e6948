"""What a cluster consists of, on disk before it exists in the kernel, so that `down` knows it after any crash."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from devcluster.paths import ClusterPaths, write_private
from devcluster.processes import Process

FORMAT = 1


@dataclass
class ClusterState:
    """The record of one cluster; saved after every change, and before anything is made outside a process."""

    name: str
    ports: dict[str, int] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    complete: bool = False
    real_node: bool = False
    fake_gpus: str = ""
    kwok: bool = False
    node_files: list[str] = field(default_factory=list)
    stage_files: list[str] = field(default_factory=list)
    server: str = ""
    sysctls: dict[str, str] = field(default_factory=dict)  # the values from before the cluster
    cgroups_ours: bool = False  # whether no other containerd had cgroups when the cluster came up
    folders: list[str] = field(default_factory=list)  # made outside the cluster's own folder, empty when it is down

    def save(self, paths: ClusterPaths) -> None:
        """Write the record; a reader sees the old one or the new one, never half."""
        write_private(paths.state, json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n")

    @property
    def dead(self) -> list[str]:
        """Names of recorded processes that no longer run."""
        return [name for name, process in self.processes.items() if not process.alive()]


def load(path: Path) -> ClusterState | None:
    """Read a record; None when there is none or it is not one of this format."""
    try:
        document: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    if document.pop("format", None) != FORMAT:
        return None
    processes = {name: Process(**process) for name, process in document.pop("processes").items()}
    return ClusterState(processes=processes, **document)
