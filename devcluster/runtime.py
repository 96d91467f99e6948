"""Gives images to the real node's containerd."""

from __future__ import annotations

from pathlib import Path

from devcluster import oci, store
from devcluster.paths import ClusterPaths


def load(paths: ClusterPaths, archive: Path) -> str:
    """Import an image archive, unless an image of its name is there: names hold the key of the content.

    Returns:
        The image's reference.

    Raises:
        DevClusterError: The archive has no named image, or the import failed.
    """
    reference = oci.reference(archive)
    if reference not in loaded(paths):
        store.ctr(paths.containerd_socket, "images", "import", str(archive))
    return reference


def loaded(paths: ClusterPaths) -> list[str]:
    """References of the images that the node has."""
    return store.ctr(paths.containerd_socket, "images", "list", "--quiet").split()
