"""Takes a cluster down when the process that wanted it is gone, so that a killed test run leaves nothing."""

from __future__ import annotations

import os
import select
from pathlib import Path

from devcluster.cluster import down
from devcluster.processes import start_time


def watch(name: str, home: Path, owner: str) -> None:
    """Wait for the end of a process, then take the cluster down.

    Args:
        name: Name of the cluster.
        home: Folder of its state.
        owner: `<pid>:<start time>` of the process.
    """
    pid, started = (int(part) for part in owner.split(":"))
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        handle = -1
    if handle >= 0 and start_time(pid) == started:
        select.select([handle], [], [])
    down(name, home)
