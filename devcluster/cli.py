"""The command line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from devcluster import controlplane
from devcluster.cluster import Cluster, clusters, down
from devcluster.errors import DevClusterError
from devcluster.images import load_source
from devcluster.imagespec import find_specs
from devcluster.options import FakeGpus, Options
from devcluster.paths import state_home
from devcluster.progress import ConsoleProgress
from devcluster.watch import watch

DEFAULT_NAME = "default"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # argparse would take kubectl's own options for this program's.
    passed_on = given[1:] if given[:1] == ["kubectl"] else []
    parsed = _parser().parse_args(given[:1] if passed_on else given)
    try:
        if passed_on:
            _kubectl(passed_on)
        return int(parsed.run(parsed) or 0)
    except DevClusterError as error:
        console = Console(stderr=True, highlight=False)
        console.print(f"[red]error:[/] {escape(error.message)}", soft_wrap=True)
        if error.hint:
            console.print(f"[bold]next:[/] {escape(error.hint)}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="devcluster", description="A real Kubernetes on this machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: object, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.add_argument("--name", default=DEFAULT_NAME, help="name of the cluster (default: %(default)s)")
        made.set_defaults(run=run)
        return made

    up = command("up", _up, "Start a cluster; builds what is missing first.")
    up.add_argument("--fake-gpus", metavar="N=PRODUCT", help="GPUs that the real node claims, for example 2=NVIDIA-L4")
    up.add_argument("--kwok", metavar="FILE", type=Path, action="append", default=[], help="file with simulated Nodes")
    up.add_argument("--no-node", action="store_true", help="control plane only: several can run side by side")
    command("down", _down, "Stop a cluster and remove all it made.")
    status = commands.add_parser("status", help="Say what runs.", description="Say what runs.")
    status.add_argument("--name", help="name of the cluster (default: all)")
    status.set_defaults(run=_status)
    command("kubeconfig", _kubeconfig, "Print the path of the administrator's kubeconfig.")
    images = commands.add_parser("build-image", help="Build an image, or take it from the cache; print its reference.")
    images.add_argument("image", metavar="NAME|all", help="name in an image.toml, or the path of one")
    images.set_defaults(run=_build_image)
    load = command("load-image", _load_image, "Give images to the real node, building those that are named.")
    load.add_argument("images", nargs="+", metavar="NAME|FILE", help="name in an image.toml, or an OCI archive")
    kubectl = commands.add_parser("kubectl", help="Run the cluster's own kubectl: devcluster kubectl [--name NAME] ...")
    kubectl.set_defaults(run=lambda _parsed: _kubectl([]))
    watcher = commands.add_parser("watch")
    watcher.add_argument("--name", required=True)
    watcher.add_argument("--home", type=Path, required=True)
    watcher.add_argument("--owner", required=True)
    watcher.set_defaults(run=lambda parsed: watch(parsed.name, parsed.home, parsed.owner))
    return parser


def _up(parsed: argparse.Namespace) -> None:
    node = not parsed.no_node
    progress = ConsoleProgress()
    if node and os.geteuid() != 0:
        progress.note("not root: control plane and simulated nodes only, no real node")
        node = False
    gpus = FakeGpus.parse(parsed.fake_gpus) if parsed.fake_gpus else None
    options = Options(name=parsed.name, node=node, fake_gpus=gpus, kwok_files=tuple(parsed.kwok))
    cluster = Cluster.up(options, progress)
    progress.note(f"export KUBECONFIG={cluster.kubeconfig}")


def _down(parsed: argparse.Namespace) -> None:
    progress = ConsoleProgress()
    with progress.step(f"Taking down {parsed.name}"):
        existed = down(parsed.name)
    if not existed:
        progress.note(f"cluster {parsed.name} was not up")


def _status(parsed: argparse.Namespace) -> int:
    names = [parsed.name] if parsed.name else clusters()
    if not names:
        sys.stdout.write("no cluster runs\n")
    return max((_show(Cluster.find(name)) for name in names), default=0)


def _show(cluster: Cluster) -> int:
    state = cluster.state
    table = Table("process", "pid", "state", title=f"cluster {cluster.name} at {state.server}")
    for name, process in state.processes.items():
        table.add_row(name, str(process.pid), "[green]runs[/]" if process.alive() else "[red]ended[/]")
    console = Console()
    console.print(table)
    console.print(f"API server: {_readiness(cluster)}")
    if state.real_node:
        console.print(f"real node with {state.fake_gpus or 'no'} GPUs, simulated")
    console.print(f"kubeconfig: {cluster.kubeconfig}", soft_wrap=True)
    return 1 if state.dead else 0


def _readiness(cluster: Cluster) -> str:
    try:
        return "ready" if controlplane.api_ready(cluster.api) else "not ready"
    except (OSError, DevClusterError) as error:
        return f"no answer ({error})"


def _kubeconfig(parsed: argparse.Namespace) -> None:
    sys.stdout.write(f"{Cluster.find(parsed.name, state_home()).kubeconfig}\n")


def _build_image(parsed: argparse.Namespace) -> None:
    wanted = sorted(find_specs()) if parsed.image == "all" else [parsed.image]
    for name in wanted:
        sys.stdout.write(f"{load_source(name, ConsoleProgress()).reference}\n")


def _load_image(parsed: argparse.Namespace) -> None:
    progress = ConsoleProgress()
    cluster = Cluster.find(parsed.name)
    for source in parsed.images:
        image = load_source(source, progress)
        with progress.step(f"Loading {image.reference}"):
            cluster.load_image(image.archive)
        sys.stdout.write(f"{image.reference}\n")


def _kubectl(arguments: Sequence[str]) -> None:
    name, rest = split_name(arguments)
    command = Cluster.find(name).kubectl_command(*rest)
    os.execv(command[0], command)  # noqa: S606  # replaces this process, so that signals and terminals just work


def split_name(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The cluster's name, if these arguments begin with it, and the rest, which is kubectl's.

    A `--` between the two ends our own options, as people are used to; a later one (of `kubectl exec`) is kubectl's.
    """
    name, rest = DEFAULT_NAME, list(arguments)
    if rest[:1] == ["--name"] and len(rest) > 1:
        name, rest = rest[1], rest[2:]
    elif rest and rest[0].startswith("--name="):
        name, rest = rest[0].removeprefix("--name="), rest[1:]
    return name, rest[1:] if rest[:1] == ["--"] else rest
