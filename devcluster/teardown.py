"""Takes a cluster down: one path for a healthy cluster, a crashed one and one that never came up."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from devcluster import network, node, processes, store
from devcluster.errors import DevClusterError
from devcluster.paths import ClusterPaths
from devcluster.state import ClusterState, load

KILL_WITHIN_SECONDS = 20.0


def tear_down(paths: ClusterPaths) -> None:
    """End all processes of a cluster and remove all it made.

    Everything is killed outright: the data is thrown away anyhow, and so the way that is taken after a crash is the
    way that is taken, and tested, each time.

    Raises:
        DevClusterError: Something could not be ended or removed; the record stays, so that `down` can be repeated.
    """
    state = load(paths.state) or ClusterState(name=paths.name)
    if network.is_root():
        with network.machine_lock():
            _kill(paths, state)
            if state.kwok:
                network.remove_blackhole(str(paths.folder))
            if state.real_node:
                _release_node(paths, state)
    else:
        _kill(paths, state)
    for process in state.processes.values():
        processes.reap(process.pid)
    shutil.rmtree(paths.folder, ignore_errors=True)


def _kill(paths: ClusterPaths, state: ClusterState) -> None:
    mark = str(paths.folder)
    recorded = [process for process in state.processes.values() if process.pid != os.getpid()]

    def living() -> set[int]:
        pids = {process.pid for process in recorded if process.alive()} | set(processes.marked(mark))
        return pids | set(processes.inside_root_below(paths.node)) if state.real_node else pids

    processes.kill_all(living, within=KILL_WITHIN_SECONDS)


def _release_node(paths: ClusterPaths, state: ClusterState) -> None:
    mark = str(paths.folder)
    network.release_machine(mark, state.sysctls)
    alone = not network.node_owners(here=False) - {mark}
    _remove_cgroups(None if state.cgroups_ours and alone else node.container_ids(paths))
    # A folder that another node has mounted something on would take that mount with it.
    for folder in state.folders if alone else ():
        if Path(folder).is_dir():
            Path(folder).rmdir()
    store.give_back(paths)


def _remove_cgroups(containers: set[str] | None) -> None:
    """Remove the cgroups of some containers (None: of all) in every hierarchy."""
    for root in node.cgroups():
        chosen = [path for path in root.iterdir() if path.is_dir() and (containers is None or path.name in containers)]
        for top in chosen:
            for folder, _, _ in os.walk(top, topdown=False):
                _remove_cgroup(Path(folder))
        if containers is None or not any(path.is_dir() for path in root.iterdir()):
            _remove_cgroup(root)


def _remove_cgroup(folder: Path) -> None:
    """Remove one cgroup; the kernel lets go of it a moment after its last process has ended."""
    deadline = time.monotonic() + KILL_WITHIN_SECONDS
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise DevClusterError(f"cgroup {folder} cannot be removed: {error}") from error
            time.sleep(0.02)
        else:
            return
