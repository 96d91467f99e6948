"""What others change in the children is put right; what isn't ours is left alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from devcluster import Cluster
from tests.cluster import apply, eventually, kubectl
from tests.integration.conftest import StartOperator
from tests.integration.resources import (
    CPU_TIER,
    children,
    condition,
    create,
    desired_part,
    edit,
    read,
    resource,
    two_tiers,
    wait_ready,
)
from tests.operator_process import OperatorProcess

CHILDREN = ("deployment/hello-cpu", "service/hello", "serviceaccount/hello-runtime", "poddisruptionbudget/hello")

EDITS: dict[str, dict[str, Any]] = {
    "deployment/hello-cpu": {"spec": {"replicas": 7}},
    "service/hello": {"spec": {"selector": {"app": "another"}}},
    "serviceaccount/hello-runtime": {"automountServiceAccountToken": True},
    "poddisruptionbudget/hello": {"spec": {"maxUnavailable": 5}},
}


@pytest.fixture
def served(cluster: Cluster, namespace: str, operator: OperatorProcess) -> dict[tuple[str, str], dict[str, Any]]:
    """The children of a resource that is served, as they are wanted."""
    create(cluster, resource(namespace))
    wait_ready(cluster, namespace)
    return {key: desired_part(child) for key, child in children(cluster, namespace).items()}


def are_as(cluster: Cluster, namespace: str, wanted: dict[tuple[str, str], dict[str, Any]]) -> bool:
    return {key: desired_part(child) for key, child in children(cluster, namespace).items()} == wanted


def test_an_edit_of_any_child_is_undone(
    cluster: Cluster, namespace: str, served: dict[tuple[str, str], dict[str, Any]]
) -> None:
    for child, patch in EDITS.items():
        kubectl(cluster, "patch", child, "-n", namespace, "--type=merge", "-p", json.dumps(patch))
    eventually(lambda: are_as(cluster, namespace, served), "all children are as wanted")


def test_a_scaled_deployment_is_scaled_back(
    cluster: Cluster, namespace: str, served: dict[tuple[str, str], dict[str, Any]]
) -> None:
    kubectl(cluster, "scale", "deployment/hello-cpu", "-n", namespace, "--replicas=0")
    eventually(lambda: are_as(cluster, namespace, served), "the replicas are as wanted")
    wait_ready(cluster, namespace)


def test_a_label_taken_from_a_child_is_put_back(
    cluster: Cluster, namespace: str, served: dict[tuple[str, str], dict[str, Any]]
) -> None:
    kubectl(cluster, "label", "service/hello", "-n", namespace, "app.kubernetes.io/component-")
    eventually(lambda: are_as(cluster, namespace, served), "the label is back")


def test_a_child_that_lost_the_label_by_which_it_is_found_gets_it_back(
    cluster: Cluster, namespace: str, served: dict[tuple[str, str], dict[str, Any]]
) -> None:
    # The watch tells of this as of a deletion, and the object is still there when it is to be made again.
    kubectl(cluster, "label", "service/hello", "-n", namespace, "app.kubernetes.io/managed-by-")
    eventually(lambda: are_as(cluster, namespace, served), "the label is back")


@pytest.mark.parametrize("child", CHILDREN)
def test_a_deleted_child_is_made_again(
    cluster: Cluster, namespace: str, served: dict[tuple[str, str], dict[str, Any]], child: str
) -> None:
    kind, _, name = child.partition("/")
    before = kubectl(cluster, "get", kind, name, "-n", namespace, "-o", "jsonpath={.metadata.uid}")
    kubectl(cluster, "delete", kind, name, "-n", namespace)
    eventually(lambda: are_as(cluster, namespace, served), f"{child} is back")
    assert kubectl(cluster, "get", kind, name, "-n", namespace, "-o", "jsonpath={.metadata.uid}") != before


def test_what_others_add_to_a_child_stays(
    cluster: Cluster, namespace: str, served: dict[tuple[str, str], dict[str, Any]]
) -> None:
    kubectl(cluster, "annotate", "service/hello", "-n", namespace, "example.org/note=ours")
    kubectl(
        cluster, "patch", "service/hello", "-n", namespace, "--type=merge", "-p", json.dumps(EDITS["service/hello"])
    )
    eventually(lambda: are_as(cluster, namespace, served), "the selector is as wanted")
    service = children(cluster, namespace)["Service", "hello"]
    assert service["metadata"]["annotations"]["example.org/note"] == "ours"


def test_a_status_that_someone_overwrote_is_written_again(
    cluster: Cluster, namespace: str, served: dict[tuple[str, str], dict[str, Any]]
) -> None:
    before = read(cluster, namespace)["status"]
    patch = json.dumps({"status": {"replicas": 99, "url": "http://elsewhere"}})
    kubectl(cluster, "patch", "cvd/hello", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)
    eventually(lambda: read(cluster, namespace)["status"] == before, "the status is as it was")


def test_a_pool_that_the_spec_no_longer_has_is_removed(
    cluster: Cluster, namespace: str, operator: OperatorProcess
) -> None:
    create(cluster, two_tiers(namespace))
    wait_ready(cluster, namespace)
    edit(cluster, namespace, {"tiers": [CPU_TIER]})
    eventually(lambda: ("Deployment", "hello-gpu-l4") not in children(cluster, namespace), "the GPU pool is gone")
    wait_ready(cluster, namespace)
    assert ("Deployment", "hello-cpu") in children(cluster, namespace)


FOREIGN: dict[str, dict[str, Any]] = {
    "Deployment/hello-cpu": {
        "apiVersion": "apps/v1",
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    },
    "Service/hello": {"apiVersion": "v1", "spec": {"ports": [{"port": 9999}], "selector": {"app": "a"}}},
    "ServiceAccount/hello-runtime": {"apiVersion": "v1"},
    "PodDisruptionBudget/hello": {
        "apiVersion": "policy/v1",
        "spec": {"maxUnavailable": 3, "selector": {"matchLabels": {"app": "a"}}},
    },
}


@pytest.mark.parametrize("which", FOREIGN)
def test_an_object_of_someone_else_is_left_alone_and_told_of_until_it_is_gone(
    cluster: Cluster, namespace: str, start_operator: StartOperator, which: str
) -> None:
    kind, _, name = which.partition("/")
    foreign = FOREIGN[which] | {"kind": kind, "metadata": {"name": name, "namespace": namespace}}
    apply(cluster, foreign)
    before = json.loads(kubectl(cluster, "get", kind, name, "-n", namespace, "-o", "json"))
    operator = start_operator(blocked_retry=1)
    eventually(operator.leading, "the operator leads")
    create(cluster, resource(namespace))

    def stalled() -> dict[str, Any]:
        return condition(read(cluster, namespace), "Stalled")

    eventually(lambda: stalled().get("reason") == "NameConflict", "the conflict is told")
    assert f"{kind} {name}" in stalled()["message"]
    after = json.loads(kubectl(cluster, "get", kind, name, "-n", namespace, "-o", "json"))
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"] or kind in {
        "Deployment",
        "PodDisruptionBudget",
    }
    assert after["spec" if "spec" in after else "metadata"] == before["spec" if "spec" in before else "metadata"]
    assert "ownerReferences" not in after["metadata"]
    kubectl(cluster, "delete", kind, name, "-n", namespace)
    eventually(lambda: (kind, name) in children(cluster, namespace), "the child is made once the name is free")
    eventually(lambda: stalled()["status"] == "False", "nothing is stalled any more")


def test_a_child_of_another_resource_is_never_taken_over(
    cluster: Cluster, namespace: str, start_operator: StartOperator
) -> None:
    # "a" with tier "b-cpu" and "a-b" with tier "cpu" both want the Deployment "a-b-cpu".
    operator = start_operator(blocked_retry=1)
    eventually(operator.leading, "the operator leads")
    first = create(cluster, resource(namespace, "a", tiers=[CPU_TIER | {"name": "b-cpu"}]))
    wait_ready(cluster, namespace, "a")
    create(cluster, resource(namespace, "a-b", tiers=[CPU_TIER]))
    eventually(
        lambda: condition(read(cluster, namespace, "a-b"), "Stalled").get("reason") == "NameConflict", "it is told"
    )
    assert "CosyVoiceDeployment a" in condition(read(cluster, namespace, "a-b"), "Stalled")["message"]
    owner = children(cluster, namespace)["Deployment", "a-b-cpu"]["metadata"]["ownerReferences"][0]
    assert owner["uid"] == first["metadata"]["uid"]
    wait_ready(cluster, namespace, "a")
