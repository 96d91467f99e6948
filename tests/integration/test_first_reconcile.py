"""From a new resource to its children, and then nothing more."""

from __future__ import annotations

import json
import time

from devcluster import Cluster
from tests.cluster import eventually, kubectl
from tests.integration.conftest import StartOperator
from tests.integration.proxy import ApiProxy
from tests.integration.resources import children, condition, create, read, resource, two_tiers, wait_ready
from tests.operator_process import OperatorProcess


def test_a_resource_gets_exactly_its_children(cluster: Cluster, namespace: str, operator: OperatorProcess) -> None:
    owner = create(cluster, two_tiers(namespace))
    wait_ready(cluster, namespace)
    found = children(cluster, namespace)
    assert set(found) == {
        ("ServiceAccount", "hello-runtime"),
        ("Service", "hello"),
        ("PodDisruptionBudget", "hello"),
        ("Deployment", "hello-gpu-l4"),
    }
    for child in found.values():
        (reference,) = child["metadata"]["ownerReferences"]
        assert reference["uid"] == owner["metadata"]["uid"]
        assert reference["controller"] is True
        assert child["metadata"]["labels"]["tts.cosyvoice.io/deployment"] == "hello"
        assert "app.kubernetes.io/instance" not in child["metadata"]["labels"]


def test_nothing_of_the_resource_but_its_status_is_written(
    cluster: Cluster, namespace: str, operator: OperatorProcess
) -> None:
    before = create(cluster, resource(namespace))
    after = wait_ready(cluster, namespace)
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == 1
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        assert after["metadata"].get(field) == before["metadata"].get(field)
    shown = json.loads(kubectl(cluster, "get", "cvd", "hello", "-n", namespace, "-o", "json", "--show-managed-fields"))
    ours = [entry for entry in shown["metadata"]["managedFields"] if entry["manager"] == "cosyvoice-operator"]
    assert [entry["subresource"] for entry in ours] == ["status"]
    assert set(ours[0]["fieldsV1"]) == {"f:status"}


def test_a_steady_state_makes_no_write_however_often_everything_is_listed(
    cluster: Cluster, namespace: str, proxy: ApiProxy, start_operator: StartOperator
) -> None:
    operator = start_operator(kubeconfig=proxy.kubeconfig, resync_interval=3)
    eventually(operator.leading, "the operator leads")
    create(cluster, two_tiers(namespace))
    wait_ready(cluster, namespace)
    settle(proxy)
    writes, resyncs = len(proxy.writes()), operator.metric("resyncs_total", result="succeeded")
    versions = {key: child["metadata"]["resourceVersion"] for key, child in children(cluster, namespace).items()}
    eventually(
        lambda: operator.metric("resyncs_total", result="succeeded") >= resyncs + 5, "five more resyncs", within=40
    )
    assert [str(request) for request in proxy.writes()[writes:]] == []
    assert {key: c["metadata"]["resourceVersion"] for key, c in children(cluster, namespace).items()} == versions


def test_a_restart_makes_no_write(
    cluster: Cluster, namespace: str, proxy: ApiProxy, start_operator: StartOperator
) -> None:
    first = start_operator(kubeconfig=proxy.kubeconfig)
    create(cluster, two_tiers(namespace))
    wait_ready(cluster, namespace)
    settle(proxy)
    assert first.stop() == 0
    writes = len(proxy.writes())
    second = start_operator(kubeconfig=proxy.kubeconfig, name="second")
    eventually(second.leading, "the second leads")
    eventually(lambda: second.metric("reconcile_duration_seconds_count") >= 1, "the resource is looked at")
    settle(proxy)
    assert [str(request) for request in proxy.writes()[writes:]] == []


def test_events_tell_what_happened_once(cluster: Cluster, namespace: str, operator: OperatorProcess) -> None:
    create(cluster, resource(namespace))
    wait_ready(cluster, namespace)
    events = json.loads(kubectl(cluster, "get", "events.events.k8s.io", "-n", namespace, "-o", "json"))["items"]
    ours = [event for event in events if event["regarding"]["kind"] == "CosyVoiceDeployment"]
    assert [event["reason"] for event in ours].count("Ready") == 1
    assert all(event["note"] and event["action"] and event["reportingController"] for event in ours)


def test_a_hundred_resources_at_once_are_all_served(
    cluster: Cluster, namespace: str, operator: OperatorProcess
) -> None:
    items = [resource(namespace, f"r{number}") for number in range(100)]
    kubectl(cluster, "create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    eventually(lambda: len(children(cluster, namespace)) == 400, "400 children", within=120)
    assert operator.metric("reconcile_duration_seconds_count", outcome="error") == 0
    assert condition(read(cluster, namespace, "r99"), "Stalled")["status"] == "False"


def settle(proxy: ApiProxy, quiet: float = 3.0) -> None:
    """Wait until nothing has been written for a while: there is no event that says that no more will come."""
    count, since = len(proxy.writes()), time.monotonic()
    while time.monotonic() - since < quiet:
        if len(proxy.writes()) != count:
            count, since = len(proxy.writes()), time.monotonic()
        time.sleep(0.1)
