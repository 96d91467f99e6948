"""What a cluster is asked to be."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from devcluster.errors import DevClusterError
from devcluster.paths import ClusterPaths, state_home
from devcluster.processes import start_time


@dataclass(frozen=True)
class FakeGpus:
    """GPUs that the real node claims to have."""

    count: int
    product: str

    @classmethod
    def parse(cls, text: str) -> FakeGpus:
        """Read `N=PRODUCT`, for example `2=NVIDIA-L4`.

        Raises:
            DevClusterError: It reads otherwise.
        """
        match = re.fullmatch(r"(\d{1,2})=([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)", text)
        if match is None:
            raise DevClusterError(f"--fake-gpus {text!r} is not N=PRODUCT", hint="for example --fake-gpus 2=NVIDIA-L4")
        return cls(int(match[1]), match[2])

    def __str__(self) -> str:
        return f"{self.count}={self.product}"


@dataclass(frozen=True)
class Owner:
    """The process whose end also ends the cluster; test fixtures use it."""

    pid: int
    started: int

    @classmethod
    def this_process(cls) -> Owner:
        """The calling process."""
        return cls(os.getpid(), start_time(os.getpid()) or 0)


@dataclass(frozen=True)
class Options:
    """One cluster's options.

    Args:
        name: Name of the cluster, a DNS label.
        node: Whether a real node (kubelet and containerd) is wanted; needs root.
        fake_gpus: GPUs that the real node claims.
        kwok: Whether KWOK runs; also when there are files for it.
        kwok_files: Files with Nodes for KWOK.
        kwok_stages: Files with Stages for KWOK; one that has the name of a Stage of its own takes its place.
        home: Folder that holds the cluster's state folder.
        owner: Process whose end also ends the cluster.
    """

    name: str = "default"
    node: bool = True
    fake_gpus: FakeGpus | None = None
    kwok: bool = False
    kwok_files: tuple[Path, ...] = ()
    kwok_stages: tuple[Path, ...] = ()
    home: Path = field(default_factory=state_home)
    owner: Owner | None = None

    def __post_init__(self) -> None:
        if self.fake_gpus and not self.node:
            raise DevClusterError(
                f"fake GPUs ({self.fake_gpus}) are claimed by the real node, and there is to be none",
                hint="run as root and without --no-node, or describe a Node with GPUs in a file for --kwok",
            )

    @property
    def paths(self) -> ClusterPaths:
        """The cluster's files."""
        return ClusterPaths(self.home, self.name)

    @property
    def wants_kwok(self) -> bool:
        """Whether KWOK is to run."""
        return self.kwok or bool(self.kwok_files or self.kwok_stages)
