"""Starts and ends the cluster's processes, and never ends one that is not its own.

A process is known by its pid together with its start time, since the kernel gives a pid away again. Processes that
were started but not yet recorded when this tool was killed are found by a mark in their environment, which children
such as containerd's shims inherit.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import DevClusterError

MARK = "COSYVOICE_DEVCLUSTER"  # the folder of the cluster that a process belongs to
NAME = "COSYVOICE_DEVCLUSTER_PROCESS"
PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """One process that this tool started."""

    name: str
    pid: int
    started: int  # clock ticks since boot: field 22 of /proc/<pid>/stat

    def alive(self) -> bool:
        """Whether exactly this process still runs; one that ended and waits for its parent does not."""
        return start_time(self.pid) == self.started


@dataclass(frozen=True)
class Command:
    """What to start."""

    name: str
    argv: Sequence[str]
    log: Path
    environment: Mapping[str, str]


def start_time(pid: int) -> int | None:
    """Start time of a live process in clock ticks since boot, None when there is none (or only its zombie)."""
    try:
        # The second field is the program's name in brackets and may hold blanks and brackets itself.
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def start(command: Command, mark: str) -> Process:
    """Start a process in a session of its own, so that it outlives this tool, with its output in its log."""
    command.log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawnp(
        command.argv[0],
        list(command.argv),
        {**command.environment, MARK: mark, NAME: command.name},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(command.log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGPIPE),
    )
    return Process(command.name, pid, start_time(pid) or 0)


def marked(mark: str) -> list[int]:
    """Pids of the live processes whose environment carries the mark, without this one."""
    return [pid for pid in _matching(lambda pid: _environment(pid).get(MARK) == mark) if pid != os.getpid()]


def clusters_running(name: str, *, here: bool = True) -> set[str]:
    """Marks (cluster folders) of all live processes with a name, of whichever state folder.

    The process table is the only register of what shares this machine's network: it survives no crash wrongly.

    Args:
        name: Name of the process, for example `kubelet`.
        here: Whether only those count that share this process's network namespace.
    """
    found = set()
    network = _network_namespace(os.getpid())

    def look(pid: int) -> bool:
        environment = _environment(pid)
        if environment.get(NAME) != name or start_time(pid) is None:
            return False
        if not here or _network_namespace(pid) == network:
            found.add(environment.get(MARK, ""))
        return False

    _matching(look)
    return found


def _network_namespace(pid: int) -> int:
    return (PROC / str(pid) / "ns" / "net").stat().st_ino


def _environment(pid: int) -> dict[str, str]:
    content = (PROC / str(pid) / "environ").read_bytes().decode(errors="replace")
    return dict(entry.split("=", 1) for entry in content.split("\0") if "=" in entry)


def inside_root_below(folder: Path) -> list[int]:
    """Pids of the live processes whose root is an overlay kept below a folder: a cluster's containers.

    This finds a container whatever has become of its shim, its state folder and its cgroup.
    """
    needle = f"{folder}/"

    def rooted(pid: int) -> bool:
        lines = (PROC / str(pid) / "mountinfo").read_text(errors="replace").splitlines()
        return any(needle in line for line in lines if line.split()[4] == "/")

    return _matching(rooted)


def _matching(predicate: Callable[[int], bool]) -> list[int]:
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if predicate(int(entry.name)) and start_time(int(entry.name)) is not None:
                found.append(int(entry.name))
        except OSError:  # ended meanwhile, or another user's
            continue
    return found


def kill_all(find: Callable[[], Iterable[int]], *, within: float) -> None:
    """Kill what `find` names, again and again until it names nothing.

    Args:
        find: Gives the pids that are to be gone; called anew each round, since a parent may have forked meanwhile.
        within: Seconds after which to give up.

    Raises:
        DevClusterError: Something does not die, for example because it waits for a disk.
    """
    deadline = time.monotonic() + within
    while pids := list(find()):
        for pid in pids:
            _kill(pid)
        if time.monotonic() > deadline:
            raise DevClusterError(f"processes {pids} did not end within {within:.0f} s of SIGKILL")
        time.sleep(0.02)


def _kill(pid: int) -> None:
    try:
        # A handle keeps the pid from being reused between the look at it and the signal.
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)
    reap(pid)


def reap(pid: int) -> None:
    """Collect a child that has ended, if it is one of ours."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def clean_environment(home: Path) -> dict[str, str]:
    """An environment for components: no proxy settings and no user configuration that would change what they do."""
    path = os.environ.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    # An ordinary user's PATH lacks the folders of ip, nft and conntrack on Debian.
    return {"PATH": f"{path}:/usr/sbin:/sbin", "HOME": str(home), "LANG": "C.UTF-8"}
