"""Where everything lies, so that no other module builds a path by hand."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import DevClusterError

APPLICATION = "cosyvoice-devcluster"
SOURCE = Path(__file__).resolve().parent
PROJECT = SOURCE.parent
# A Unix socket's address holds 108 bytes with its closing zero; the longest one below a cluster folder is the
# kubelet's `/node/kubelet/pod-resources/kubelet.sock`.
SOCKET_PATH_LIMIT = 107
LONGEST_SOCKET_SUFFIX = 44


def state_home() -> Path:
    """The folder that holds the state of all clusters of this user."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / APPLICATION


def cache_home() -> Path:
    """The folder that holds what takes long to make and can be made again: programs, packages, images."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / APPLICATION


@dataclass(frozen=True)
class ClusterPaths:
    """The files of one cluster, all below one folder that only its owner can read."""

    home: Path
    name: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?", self.name):
            raise DevClusterError(
                f"cluster name {self.name!r} is not a DNS label of at most 32 characters",
                hint="use lower-case letters, digits and '-', for example --name demo",
            )

    @property
    def folder(self) -> Path:
        """All that this cluster keeps on disk."""
        return self.home / self.name

    @property
    def lock(self) -> Path:
        """Held while the cluster goes up or down; outside the folder, since `down` removes that."""
        return self.home / f".{self.name}.lock"

    @property
    def state(self) -> Path:
        """The record of what was made."""
        return self.folder / "state.json"

    @property
    def pki(self) -> Path:
        """Keys, certificates and tokens."""
        return self.folder / "pki"

    @property
    def logs(self) -> Path:
        """One log for each process."""
        return self.folder / "logs"

    @property
    def etcd(self) -> Path:
        """The data of etcd."""
        return self.folder / "etcd"

    @property
    def kwok(self) -> Path:
        """KWOK's stages."""
        return self.folder / "kwok"

    @property
    def node(self) -> Path:
        """The real node: containerd, kubelet, pod network."""
        return self.folder / "node"

    @property
    def containerd_socket(self) -> Path:
        """Where the real node's containerd listens."""
        return self.node / "containerd.sock"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    def kubeconfig_of(self, user: str) -> Path:
        """The kubeconfig of one component."""
        return self.folder / "kubeconfigs" / user

    def log_of(self, process: str) -> Path:
        """The file that takes both output streams of a process."""
        return self.logs / f"{process}.log"

    def refuse_long_sockets(self) -> None:
        """Refuse a folder in which the real node's Unix sockets would have names that are too long.

        Raises:
            DevClusterError: It is too long.
        """
        allowed = SOCKET_PATH_LIMIT - LONGEST_SOCKET_SUFFIX
        if len(str(self.folder)) > allowed:
            raise DevClusterError(
                f"the state folder {self.folder} is too long for the Unix sockets inside it",
                hint=f"give it at most {allowed} characters, with a shorter --name or XDG_STATE_HOME",
            )


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file that only its owner can read; the old content stays until the new one is complete."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    data = content.encode() if isinstance(content, str) else content
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    temporary.replace(path)
