"""Restarts components of a test's own cluster, as an upgrade or a crash does."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from devcluster import Cluster
from tests.cluster import eventually

Arguments = Sequence[str]


def restart(cluster: Cluster, component: str, change: Callable[[Arguments], Arguments] = lambda same: same) -> None:
    """Kill a component and start it again.

    Args:
        cluster: A cluster that devcluster made.
        component: Its name there, for example ``apiserver``.
        change: Gives the new command line from the old one.
    """
    pid = _pid(cluster, component)
    folder = Path(f"/proc/{pid}")
    command = folder.joinpath("cmdline").read_bytes().decode().split("\0")[:-1]
    pairs = folder.joinpath("environ").read_bytes().decode().split("\0")
    environment = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not _runs(pid), f"{component} has ended")
    with cluster.paths.log_of(component).open("ab") as log:
        started = subprocess.Popen(
            list(change(command)), env=environment, stdout=log, stderr=log, start_new_session=True
        )
    _started[cluster.paths.folder, component] = started


# What was started here isn't in the cluster's own record; `down` finds it by its environment.
_started: dict[tuple[Path, str], subprocess.Popen[bytes]] = {}


def _pid(cluster: Cluster, component: str) -> int:
    ours = _started.get((cluster.paths.folder, component))
    return ours.pid if ours else cluster.state.processes[component].pid


def _runs(pid: int) -> bool:
    for process in _started.values():
        process.poll()  # collects one that has ended
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
