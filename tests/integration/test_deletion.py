"""A resource deleted in any state leaves nothing behind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from devcluster import Cluster
from tests.cluster import apply, eventually, kubectl
from tests.integration.conftest import StartOperator
from tests.integration.resources import (
    CHILD_KINDS,
    OURS,
    children,
    condition,
    create,
    read,
    resource,
    two_tiers,
    wait_ready,
)
from tests.operator_process import OperatorProcess


def leftovers(cluster: Cluster, namespace: str) -> list[str]:
    """Everything that was made for resources of a namespace."""
    kinds = ",".join(("cosyvoicedeployments", "pods", "replicasets", *CHILD_KINDS))
    labelled = kubectl(cluster, "get", kinds, "-n", namespace, "-l", OURS, "-o", "name").split()
    return labelled + kubectl(cluster, "get", "cosyvoicedeployments", "-n", namespace, "-o", "name").split()


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_a_resource_that_is_served_leaves_nothing(
    cluster: Cluster, namespace: str, operator: OperatorProcess, cascade: str
) -> None:
    create(cluster, two_tiers(namespace))
    wait_ready(cluster, namespace)
    kubectl(cluster, "delete", "cvd/hello", "-n", namespace, f"--cascade={cascade}")
    eventually(lambda: not leftovers(cluster, namespace), "nothing is left", within=60)
    assert operator.metric("reconcile_duration_seconds_count", outcome="error") == 0
    eventually(lambda: operator.metric("resources") == 0, "it is no longer counted")


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_a_resource_deleted_the_moment_it_was_made_leaves_nothing(
    cluster: Cluster, namespace: str, operator: OperatorProcess, cascade: str
) -> None:
    for number in range(5):
        create(cluster, resource(namespace, f"brief-{number}"))
        kubectl(cluster, "delete", f"cvd/brief-{number}", "-n", namespace, f"--cascade={cascade}", "--wait=false")
    eventually(lambda: not leftovers(cluster, namespace), "nothing is left", within=60)


def test_a_resource_without_room_leaves_nothing(cluster: Cluster, namespace: str, operator: OperatorProcess) -> None:
    create(cluster, two_tiers(namespace, replicas=9))
    eventually(lambda: condition(read(cluster, namespace), "CapacityAvailable").get("status") == "False", "it is short")
    kubectl(cluster, "delete", "cvd/hello", "-n", namespace)
    eventually(lambda: not leftovers(cluster, namespace), "nothing is left", within=60)


def test_a_resource_that_is_stalled_leaves_only_what_is_not_its_own(
    cluster: Cluster, namespace: str, operator: OperatorProcess
) -> None:
    foreign: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "hello", "namespace": namespace},
        "spec": {"ports": [{"port": 1}]},
    }
    apply(cluster, foreign)
    create(cluster, resource(namespace))
    eventually(lambda: condition(read(cluster, namespace), "Stalled").get("status") == "True", "it is stalled")
    kubectl(cluster, "delete", "cvd/hello", "-n", namespace)
    eventually(lambda: not leftovers(cluster, namespace), "nothing is left", within=60)
    assert kubectl(cluster, "get", "service/hello", "-n", namespace, "-o", "name").strip() == "service/hello"


def test_a_resource_deleted_while_the_operator_is_down_leaves_nothing(
    cluster: Cluster, namespace: str, start_operator: StartOperator
) -> None:
    first = start_operator()
    create(cluster, resource(namespace))
    wait_ready(cluster, namespace)
    assert first.stop() == 0
    kubectl(cluster, "delete", "cvd/hello", "-n", namespace)
    second = start_operator(name="second")
    eventually(second.leading, "the second leads")
    eventually(lambda: not leftovers(cluster, namespace), "nothing is left", within=60)


def test_a_resource_made_again_under_the_same_name_gets_children_of_its_own(
    cluster: Cluster, namespace: str, operator: OperatorProcess
) -> None:
    create(cluster, resource(namespace))
    wait_ready(cluster, namespace)
    kubectl(cluster, "delete", "cvd/hello", "-n", namespace)
    second = create(cluster, resource(namespace))
    wait_ready(cluster, namespace)
    owners = {
        ref["uid"] for child in children(cluster, namespace).values() for ref in child["metadata"]["ownerReferences"]
    }
    assert owners == {second["metadata"]["uid"]}
    assert condition(read(cluster, namespace), "Stalled")["status"] == "False"


def test_a_namespace_goes_with_everything_in_it(cluster: Cluster, namespace: str, operator: OperatorProcess) -> None:
    create(cluster, resource(namespace))
    wait_ready(cluster, namespace)
    kubectl(cluster, "delete", "namespace", namespace, "--wait=false")
    eventually(
        lambda: not kubectl(cluster, "get", "namespace", namespace, "--ignore-not-found"), "it is gone", within=90
    )
    told = [line for line in operator.lines() if line["level"] == "error"]
    assert json.dumps(told) == "[]"
    kubectl(cluster, "create", "namespace", namespace)
