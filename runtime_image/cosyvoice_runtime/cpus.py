"""How many CPUs this container may use, so that workers and threads follow the limit and not the node's size."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP_ROOT = Path("/sys/fs/cgroup")


def cgroup_quota(root: Path = _CGROUP_ROOT) -> float | None:
    """CPU quota of the container in CPUs, from cgroup v2 or v1; None where there is none."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return _cgroup_v1_quota(root)
    return None if quota == "max" else int(quota) / int(period)


def _cgroup_v1_quota(root: Path) -> float | None:
    try:
        quota = int((root / "cpu/cpu.cfs_quota_us").read_text())
        period = int((root / "cpu/cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return quota / period if quota > 0 and period > 0 else None


def available_cpus(limit: float | None = None, root: Path = _CGROUP_ROOT) -> float:
    """CPUs this process may use: the given limit, else the cgroup's quota, else the affinity mask; never more than the mask."""
    allowed = float(len(os.sched_getaffinity(0)))
    wanted = limit if limit is not None else cgroup_quota(root)
    return min(wanted, allowed) if wanted else allowed


def worker_count(cpus: float) -> int:
    """Worker processes for so many CPUs: one for each whole CPU and at least one.

    One thread each beats fewer workers with more threads: the graph is small, so that a second thread adds little to one
    sentence, while two sentences at once use two CPUs fully.
    """
    return max(1, int(cpus))
