"""CLUSTER=current: a cluster that this tool has not made."""

from __future__ import annotations

import pytest

from devcluster import CurrentCluster, DevClusterError, current
from devcluster.build import KUBE


@pytest.fixture
def current_context(make_cluster, monkeypatch, tmp_path):
    """A cluster that the user's kubectl and kubeconfig point at."""
    cluster = make_cluster()
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\nexec {KUBE.folder() / "kube"} kubectl "$@"\n')
    kubectl.chmod(0o755)
    monkeypatch.setenv("CLUSTER", "current")
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return cluster


def test_the_current_context_is_used_and_never_taken_down(current_context):
    assert current.wanted()
    found = CurrentCluster.find()
    found.kubectl("create", "namespace", "mine")
    found.down()
    assert "mine" in current_context.kubectl("get", "namespaces")


def test_a_context_without_a_server_is_an_error_that_says_so(monkeypatch, tmp_path, current_context):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(DevClusterError, match="kubectl get --raw /version"):
        CurrentCluster.find()
