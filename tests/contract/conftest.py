"""A control plane that knows the custom resource."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosyvoice_operator.crdgen.files import CRD_FILE
from devcluster import Cluster
from devcluster.crds import wait_until_established
from tests.cluster import kubectl

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def project() -> Path:
    """Root of the project."""
    return PROJECT


@pytest.fixture(scope="session")
def cluster(control_plane: Cluster) -> Cluster:
    """The session's control plane, with the committed CRD established."""
    kubectl(control_plane, "apply", "--server-side", "-f", str(PROJECT / CRD_FILE))
    wait_until_established(control_plane.kubectl, "cosyvoicedeployments.tts.cosyvoice.io")
    return control_plane
