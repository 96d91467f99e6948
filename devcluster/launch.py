"""Brings a cluster up: every step is on record before it is taken, so that `down` can undo it after a crash."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from devcluster import build, controlplane, kwok, network, ports
from devcluster.api import Api, read_kubeconfig
from devcluster.controlplane import LOOPBACK, NODE_IP, ControlPlane, wait_until
from devcluster.errors import ComponentFailedError
from devcluster.options import Options, Owner
from devcluster.paths import PROJECT, ClusterPaths
from devcluster.processes import Command, clean_environment, reap, start
from devcluster.progress import Progress
from devcluster.state import ClusterState
from devcluster.teardown import tear_down

ATTEMPTS = 3
LOG_LINES = 15


@dataclass
class Launcher:
    """One cluster on its way up."""

    paths: ClusterPaths
    state: ClusterState
    progress: Progress

    def run(self, command: Command) -> None:
        """Start a process and put it on record."""
        self.state.processes[command.name] = start(command, str(self.paths.folder))
        self.state.save(self.paths)

    def check(self) -> None:
        """Raise when a process of this cluster has ended."""
        for name in self.state.dead:
            reap(self.state.processes[name].pid)
            lines = self.paths.log_of(name).read_text(errors="replace").splitlines()[-LOG_LINES:]
            raise ComponentFailedError(f"{name} ended:\n" + "\n".join(lines))

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something is true while all processes live."""
        wait_until(condition, what, check=self.check)


def launch(options: Options, progress: Progress) -> ClusterState:
    """Start a cluster from nothing.

    Raises:
        DevClusterError: It cannot; nothing is left behind but the logs.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _launch_once(options, progress)
        except ComponentFailedError as error:
            if "address already in use" not in str(error) or attempt == ATTEMPTS:
                raise
            progress.note("a port was taken meanwhile; starting again with others")
    raise AssertionError("the loop returns or raises")


def _launch_once(options: Options, progress: Progress) -> ClusterState:
    paths = options.paths
    paths.folder.mkdir(parents=True, mode=0o700)
    launcher = Launcher(paths, ClusterState(name=options.name), progress)
    try:
        launcher.state.save(paths)
        if options.owner:
            launcher.run(_watcher(paths, options.owner))
        api = _start_control_plane(launcher, NODE_IP if options.node else LOOPBACK)
        if options.wants_kwok:
            start_kwok(launcher, api, options)
        launcher.state.complete = True
        launcher.state.save(paths)
    except BaseException:
        kept = paths.home / f"{options.name}.failed-logs"
        shutil.rmtree(kept, ignore_errors=True)
        if paths.logs.is_dir():
            shutil.copytree(paths.logs, kept)
        tear_down(paths)
        raise
    return launcher.state


def _start_control_plane(launcher: Launcher, address: str) -> Api:
    state = launcher.state
    state.ports = ports.choose(controlplane.PORTS, (LOOPBACK,))
    plane = ControlPlane(launcher.paths, state.ports, address)
    state.server = plane.server
    with launcher.progress.step("Control plane"):
        api = plane.prepare()
        launcher.run(plane.etcd())
        launcher.run(plane.apiserver())
        launcher.wait(lambda: controlplane.api_ready(api), "API server")
        launcher.run(plane.controller_manager())
        launcher.run(plane.scheduler())
        launcher.wait(lambda: controlplane.controllers_ready(api), "controller manager")
    return api


def start_kwok(launcher: Launcher, api: Api, options: Options) -> None:
    """Create the simulated nodes and start KWOK, unless it runs already; returns when all nodes are as given."""
    nodes = [node for file in options.kwok_files for node in kwok.read_nodes(file)]
    build.ensure([build.KWOK], launcher.progress)
    with launcher.progress.step(f"KWOK with {len(nodes)} simulated nodes"):
        # KWOK initialises a node when it first sees it, so nodes come first where there is a choice.
        kwok.create_nodes(api, nodes)
        if "kwok" not in launcher.state.processes:
            _start_kwok_process(launcher)
        names = {
            node["metadata"]["name"]
            for node in nodes
            if kwok.NOT_READY not in kwok.prepare_node(node)["metadata"]["annotations"]
        }
        launcher.wait(lambda: names <= _ready_nodes(api), f"{len(names)} simulated nodes")


def _start_kwok_process(launcher: Launcher) -> None:
    chosen = ports.choose(["kwok"])
    launcher.state.ports.update(chosen)
    launcher.state.kwok = True
    launcher.state.save(launcher.paths)
    command = kwok.command(launcher.paths, chosen["kwok"])
    if not network.is_root():
        launcher.progress.note(
            f"without root there is no blackhole route for {kwok.POD_CIDR}: do not send anything to simulated pods"
        )
        launcher.run(command)
        return
    # Under one lock with the process, so that another cluster's `down` sees either both or neither.
    with network.machine_lock():
        network.add_blackhole()
        launcher.run(command)


def _ready_nodes(api: Api) -> set[str]:
    nodes = api.request("GET", "/api/v1/nodes?resourceVersion=0")["items"]
    return {node["metadata"]["name"] for node in nodes if _is_ready(node.get("status", {}).get("conditions", []))}


def _is_ready(conditions: Sequence[dict[str, str]]) -> bool:
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _watcher(paths: ClusterPaths, owner: Owner) -> Command:
    return Command(
        name="watcher",
        argv=[sys.executable, "-m", "devcluster", "watch", "--home", str(paths.home), "--name", paths.name,
              "--owner", f"{owner.pid}:{owner.started}"],
        log=paths.log_of("watcher"),
        environment={**clean_environment(paths.folder), "PYTHONPATH": str(PROJECT)},
    )  # fmt: skip


def add_kwok(paths: ClusterPaths, state: ClusterState, options: Options, progress: Progress) -> None:
    """Add simulated nodes to a running cluster.

    Raises:
        DevClusterError: A node of that name exists, or KWOK does not start.
    """
    api = read_kubeconfig(paths.kubeconfig, paths.pki / "ca.crt")
    start_kwok(Launcher(paths, state, progress), api, options)
