"""Brings a cluster up: every step is on record before it is taken, so that `down` can undo it after a crash."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from devcluster import build, controlplane, images, kwok, network, packages, ports, runtime, store, volumes
from devcluster import node as realnode
from devcluster.api import Api, read_kubeconfig
from devcluster.controlplane import LOOPBACK, ControlPlane
from devcluster.errors import ComponentFailedError
from devcluster.network import NODE_IP
from devcluster.node import RealNode
from devcluster.options import FakeGpus, Options, Owner
from devcluster.paths import PROJECT, ClusterPaths
from devcluster.processes import Command, clean_environment, reap, start
from devcluster.progress import Progress
from devcluster.state import ClusterState
from devcluster.teardown import tear_down
from devcluster.waiting import wait_until

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
        node = _claim_node(launcher) if options.node else None
        api = _start_control_plane(launcher, NODE_IP if options.node else LOOPBACK)
        if node:
            _start_node(launcher, api, node, options.fake_gpus)
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
    state.ports = ports.choose(controlplane.PORTS, sorted({LOOPBACK, address}))
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


def _claim_node(launcher: Launcher) -> RealNode:
    """Take the machine's network for this cluster, and start the container runtime on it."""
    paths, state = launcher.paths, launcher.state
    paths.refuse_long_sockets()
    packages.ensure(packages.FOR_NODE, launcher.progress)
    pause = images.pause_image(launcher.progress)
    with network.machine_lock():
        network.claim_machine(str(paths.folder))
        state.real_node = True
        state.sysctls = network.read_sysctls()
        state.cgroups_ours = not realnode.cgroups()
        state.folders = [path for path in realnode.FIXED_PATHS if not Path(path).exists()]
        state.save(paths)
        network.make_interface()
        for path in realnode.FIXED_PATHS:
            Path(path).mkdir(parents=True, exist_ok=True)
        store.take(paths)
        node = RealNode(paths, ports.choose(realnode.PORTS, (LOOPBACK, NODE_IP)), pause.reference)
        # Still under the lock: from here on, the running process says whose the machine is.
        launcher.run(node.containerd())
    return node


def _start_node(launcher: Launcher, api: Api, node: RealNode, gpus: FakeGpus | None) -> None:
    state = launcher.state
    state.ports.update(node.ports)
    with launcher.progress.step("Real node") as report:
        report("container runtime")
        launcher.wait(launcher.paths.containerd_socket.exists, "containerd")
        runtime.load(launcher.paths, images.pause_image(launcher.progress).archive)
        report("kubelet")
        launcher.run(node.kubelet(state.processes["containerd"].pid))
        launcher.run(node.proxy())
        launcher.wait(lambda: realnode.registered(api), "kubelet")
        volumes.create(api, launcher.paths)
        if gpus:
            realnode.set_fake_gpus(api, gpus)
            state.fake_gpus = str(gpus)


def start_kwok(launcher: Launcher, api: Api, options: Options) -> None:
    """Create the simulated nodes and start KWOK, unless it runs already; returns when all nodes are as given."""
    nodes = [kwok.prepare_node(node) for file in options.kwok_files for node in kwok.read_nodes(file)]
    build.ensure([build.KWOK], launcher.progress)
    with launcher.progress.step(f"KWOK with {len(nodes)} simulated nodes"):
        # KWOK initialises a node when it first sees it, so nodes come first where there is a choice.
        kwok.create_nodes(api, nodes)
        if "kwok" not in launcher.state.processes:
            _start_kwok_process(launcher, options.kwok_stages)
        launcher.wait(lambda: kwok.as_given(api, nodes), f"{len(nodes)} simulated nodes")
        launcher.state.node_files += [str(file.resolve()) for file in options.kwok_files]
        launcher.state.save(launcher.paths)


def _start_kwok_process(launcher: Launcher, stages: Sequence[Path]) -> None:
    chosen = ports.choose(["kwok"])
    launcher.state.ports.update(chosen)
    launcher.state.kwok = True
    launcher.state.stage_files = [str(file.resolve()) for file in stages]
    launcher.state.save(launcher.paths)
    command = kwok.command(launcher.paths, chosen["kwok"], stages)
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
