"""Keeps the node's unpacked images from one cluster to the next: importing them anew takes longer than all the rest.

A node takes the store from the cache when it starts, and `down` gives it back without its containers. A cluster that
never goes down well costs the next one an import, no more.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from devcluster import packages
from devcluster.errors import DevClusterError
from devcluster.images import archive_of
from devcluster.paths import ClusterPaths, cache_home, write_private
from devcluster.processes import MARK, clean_environment
from devcluster.waiting import wait_until

NAMESPACE = "k8s.io"  # the one that kubelet's containers live in
BOOT = Path("/proc/sys/kernel/random/boot_id")
START_WITHIN_SECONDS = 10.0
# Work folders of containers, below the store.
OF_CONTAINERS = (
    "io.containerd.grpc.v1.cri/containers",
    "io.containerd.grpc.v1.cri/sandboxes",
    f"io.containerd.runtime.v2.task/{NAMESPACE}",
)


def root(paths: ClusterPaths) -> Path:
    """Folder of the node's containerd that holds images and snapshots."""
    return paths.node / "containerd" / "root"


def take(paths: ClusterPaths) -> None:
    """Take the store from the cache, if there is one that was written since the machine started.

    Files of a snapshot are not synced to disk, so that one from before a power cut may hold empty files.
    """
    cached = _cached()
    mark = cached.with_suffix(".boot")
    root(paths).parent.mkdir(parents=True, exist_ok=True)
    if cached.is_dir() and mark.exists() and mark.read_text() == BOOT.read_text():
        try:
            cached.rename(root(paths))
        except OSError:  # on another filesystem
            return


def give_back(paths: ClusterPaths) -> None:
    """Put the store of a node that is down into the cache, without containers and images that are out of date.

    What goes wrong here costs time later, and is no reason not to go down: the store is dropped then.
    """
    if not root(paths).is_dir():
        return
    try:
        _purge(paths)
        cached = _cached()
        shutil.rmtree(cached, ignore_errors=True)
        cached.parent.mkdir(parents=True, exist_ok=True)
        root(paths).rename(cached)
        cached.with_suffix(".boot").write_text(BOOT.read_text())
    except (OSError, DevClusterError, subprocess.SubprocessError):
        shutil.rmtree(root(paths), ignore_errors=True)


def ctr(socket: Path, *arguments: str) -> str:
    """Run containerd's own client in the namespace of kubelet's containers, and return what it prints.

    Raises:
        DevClusterError: It failed.
    """
    command = ["ctr", "--address", str(socket), "--namespace", NAMESPACE, *arguments]
    environment = clean_environment(Path("/"))
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if result.returncode != 0:
        raise DevClusterError(f"ctr {' '.join(arguments)}: {result.stderr.strip()}")
    return result.stdout


def outdated(references: Sequence[str]) -> list[str]:
    """The images whose archives are gone and that a newer one has replaced.

    Until then an old image is worth keeping: most of its layers are those of the newer one to come.
    """
    present = {reference.rpartition(":")[0] for reference in references if archive_of(reference).exists()}
    return [
        reference
        for reference in references
        if not archive_of(reference).exists() and reference.rpartition(":")[0] in present
    ]


def _purge(paths: ClusterPaths) -> None:
    """Remove containers with a containerd that knows nothing of Kubernetes, and so does not start or recover them."""
    for work in OF_CONTAINERS:
        shutil.rmtree(root(paths) / work, ignore_errors=True)
    folder = paths.node / "purge"
    socket = folder / "c.sock"
    config = folder / "containerd.toml"
    write_private(config, _config(root(paths), folder, socket))
    environment = {**clean_environment(folder), MARK: str(paths.folder)}
    log = (folder / "log").open("w")
    with (
        log,
        subprocess.Popen(["containerd", "--config", str(config)], env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            wait_until(socket.exists, "containerd", check=lambda: None, within=START_WITHIN_SECONDS)
            if containers := ctr(socket, "containers", "list", "--quiet").split():
                ctr(socket, "containers", "remove", *containers)
            if old := outdated(ctr(socket, "images", "list", "--quiet").split()):
                # In sync: also the layers that no image needs any more.
                ctr(socket, "images", "remove", "--sync", *old)
        finally:
            process.terminate()
            process.wait(START_WITHIN_SECONDS)


def _config(store: Path, folder: Path, socket: Path) -> str:
    return f"""version = 2
root = "{store}"
state = "{folder / "state"}"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder / "opt"}"
"""


def _cached() -> Path:
    """Place in the cache for a store of this containerd; another version might not read it."""
    containerd = packages.CONTAINERD.find()
    built = containerd.stat().st_mtime_ns if containerd else 0
    return cache_home() / "containerd" / f"store-{built:x}"
