"""A cluster as its users see it: bring it up, use it, take it down."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from devcluster import build, packages, runtime
from devcluster.api import Api, read_kubeconfig
from devcluster.errors import DevClusterError, NotRunningError
from devcluster.launch import add_kwok, launch
from devcluster.locks import exclusive
from devcluster.network import is_root
from devcluster.options import Options
from devcluster.paths import ClusterPaths, state_home
from devcluster.progress import Progress, SilentProgress
from devcluster.state import ClusterState, load
from devcluster.teardown import tear_down


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Args:
        paths: Its files.
        progress: Where its steps report to.
    """

    paths: ClusterPaths
    progress: Progress

    @classmethod
    def up(cls, options: Options, progress: Progress | None = None) -> Cluster:
        """Bring a cluster up, or find that it is up already.

        Raises:
            DevClusterError: It cannot be brought up, or runs with other options.
        """
        report = progress or SilentProgress()
        paths = options.paths
        with exclusive(paths.lock):
            state = load(paths.state)
            if state and state.complete and not state.dead:
                cls._refuse_difference(state, options)
                report.note(f"cluster {options.name} runs already")
                return cls(paths, report)
            if paths.folder.exists():
                dead = ", ".join(state.dead) if state else ""
                report.note(f"cluster {options.name} did not end well{f' ({dead} died)' if dead else ''}: cleaning up")
                tear_down(paths)
            packages.ensure(packages.FOR_CONTROL_PLANE + (packages.FOR_ROUTES if is_root() else ()), report)
            build.ensure([build.KUBE, *([build.KWOK] if options.wants_kwok else [])], report)
            launch(options, report)
        return cls(paths, report)

    @classmethod
    def find(cls, name: str = "default", home: Path | None = None, progress: Progress | None = None) -> Cluster:
        """A cluster that was brought up before.

        Raises:
            NotRunningError: There is none of that name.
        """
        paths = ClusterPaths(home or state_home(), name)
        state = load(paths.state)
        if state is None or not state.complete:
            raise NotRunningError(f"cluster {name} does not run", hint="start it with: devcluster up")
        return cls(paths, progress or SilentProgress())

    @staticmethod
    def _refuse_difference(state: ClusterState, options: Options) -> None:
        wanted_gpus = str(options.fake_gpus or "")
        if options.node and not state.real_node:
            asked = "a real node"
        elif wanted_gpus and wanted_gpus != state.fake_gpus:
            asked = f"fake GPUs {wanted_gpus}"
        elif options.wants_kwok and not state.kwok:
            asked = "simulated nodes"
        elif missing := [str(file) for file in options.kwok_files if str(file.resolve()) not in state.node_files]:
            asked = f"the simulated nodes of {', '.join(missing)}"
        elif missing := [str(file) for file in options.kwok_stages if str(file.resolve()) not in state.stage_files]:
            asked = f"the stages of {', '.join(missing)}"
        else:
            return
        raise DevClusterError(
            f"cluster {options.name} runs already, without {asked}",
            hint=f"take it down first (devcluster down --name {options.name}), or choose another --name",
        )

    @property
    def name(self) -> str:
        """Name of the cluster."""
        return self.paths.name

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.paths.kubeconfig

    @property
    def state(self) -> ClusterState:
        """The record of what runs."""
        state = load(self.paths.state)
        if state is None:
            raise NotRunningError(f"cluster {self.name} does not run")
        return state

    @property
    def api(self) -> Api:
        """The administrator's access, for a few plain requests."""
        return read_kubeconfig(self.kubeconfig, self.paths.pki / "ca.crt")

    def kubectl_command(self, *arguments: str) -> list[str]:
        """The command line of the cluster's own kubectl."""
        return [str(build.KUBE.folder() / "kube"), "kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl and return what it prints.

        Raises:
            DevClusterError: It failed, unless `check` is False.
        """
        command = self.kubectl_command(*arguments)
        result = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if check and result.returncode != 0:
            raise DevClusterError(f"kubectl {' '.join(arguments)}: {result.stderr.strip() or result.stdout.strip()}")
        return result.stdout

    def load_image(self, archive: Path) -> str:
        """Give an image to the real node, unless it has it already; returns the image's reference.

        Raises:
            DevClusterError: There is no real node, or the archive cannot be imported.
        """
        if not self.state.real_node:
            raise DevClusterError(f"cluster {self.name} has no real node that could take an image")
        return runtime.load(self.paths, archive)

    def start_kwok(self, *node_files: Path) -> None:
        """Start KWOK, if it does not run yet, and add the nodes of the files."""
        options = Options(name=self.name, home=self.paths.home, node=False, kwok=True, kwok_files=node_files)
        with exclusive(self.paths.lock):
            add_kwok(self.paths, self.state, options, self.progress)

    def down(self) -> None:
        """Take the cluster down; does nothing when it is down."""
        down(self.name, self.paths.home)


def down(name: str, home: Path | None = None) -> bool:
    """Take a cluster down, in whatever state it is.

    Returns:
        Whether there was anything to take down.
    """
    paths = ClusterPaths(home or state_home(), name)
    if not paths.home.is_dir():
        return False
    with exclusive(paths.lock):
        existed = paths.folder.exists()
        tear_down(paths)
    return existed


def clusters(home: Path | None = None) -> list[str]:
    """Names of the clusters that are up."""
    found = (home or state_home()).glob("*/state.json")
    return sorted(path.parent.name for path in found if (state := load(path)) and state.complete)
