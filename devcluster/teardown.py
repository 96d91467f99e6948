"""Takes a cluster down: one path for a healthy cluster, a crashed one and one that never came up."""

from __future__ import annotations

import os
import shutil

from devcluster import network, processes
from devcluster.paths import ClusterPaths
from devcluster.state import ClusterState, load

KILL_WITHIN_SECONDS = 20.0


def tear_down(paths: ClusterPaths) -> None:
    """End all processes of a cluster and remove all it made.

    Everything is killed outright: the data is thrown away anyhow, and so the way that is taken after a crash is the
    way that is taken, and tested, each time.
    """
    mark = str(paths.folder)
    state = load(paths.state) or ClusterState(name=paths.name)
    recorded = [process for process in state.processes.values() if process.pid != os.getpid()]

    def living() -> set[int]:
        return {process.pid for process in recorded if process.alive()} | set(processes.marked(mark))

    if network.is_root():
        with network.machine_lock():
            processes.kill_all(living, within=KILL_WITHIN_SECONDS)
            network.remove_blackhole(mark)
    else:
        processes.kill_all(living, within=KILL_WITHIN_SECONDS)
    for process in recorded:
        processes.reap(process.pid)
    shutil.rmtree(paths.folder, ignore_errors=True)
