"""The operator is killed with SIGKILL right after each of its writes, before it learns of the answer, and started again."""

from __future__ import annotations

import json
from collections.abc import Callable

from devcluster import Cluster
from tests.cluster import eventually, kubectl
from tests.integration.conftest import StartOperator
from tests.integration.proxy import ApiProxy
from tests.integration.resources import children, condition, create, desired_part, read, resource, wait_ready

Shape = dict[tuple[str, str], dict[str, object]]

MOST_WRITES = 30


def shape(cluster: Cluster, namespace: str) -> Shape:
    """What must be the same however the operator got there."""
    return {key: desired_part(child) for key, child in children(cluster, namespace).items()}


def conditions(cluster: Cluster, namespace: str) -> dict[str, str]:
    status = read(cluster, namespace)["status"]
    return {c["type"]: f"{c['status']} {c['reason']}" for c in status["conditions"]}


def orphans(cluster: Cluster, namespace: str, uid: str) -> list[str]:
    """Objects of ours that the resource doesn't own."""
    return [
        f"{kind}/{name}"
        for (kind, name), child in children(cluster, namespace).items()
        if [ref["uid"] for ref in child["metadata"].get("ownerReferences", ())] != [uid]
    ]


def test_killed_after_each_write_of_a_first_reconcile_it_ends_in_the_same_state(
    cluster: Cluster, proxy: ApiProxy, start_operator: StartOperator, fresh_namespace: Callable[[], str]
) -> None:
    untouched = fresh_namespace()
    operator = start_operator(kubeconfig=proxy.kubeconfig)
    eventually(operator.leading, "the operator leads")
    before = len(proxy.writes())
    create(cluster, resource(untouched))
    wait_ready(cluster, untouched)
    writes = len(proxy.writes()) - before
    wanted, verdict = shape(cluster, untouched), conditions(cluster, untouched)
    assert 5 <= writes <= MOST_WRITES
    assert operator.stop() == 0
    kubectl(cluster, "delete", "cvd", "--all", "-n", untouched)

    for number in range(1, writes + 1):
        namespace = fresh_namespace()
        owner = create(cluster, resource(namespace))
        proxy.hold_after_write(number)
        killed = start_operator(kubeconfig=proxy.kubeconfig, name=f"killed-{number}", identity="operator")
        # Later writes are answers to pods that start: there are more or fewer of them from one run to the next.
        held = proxy.held.wait(20)
        killed.kill()
        proxy.release()
        with start_operator(kubeconfig=proxy.kubeconfig, name=f"restarted-{number}", identity="operator") as restarted:
            eventually(restarted.leading, "it leads again")
            wait_ready(cluster, namespace)
            assert shape(cluster, namespace) == wanted, f"killed after write {number} (held: {held})"
            assert conditions(cluster, namespace) == verdict
            assert orphans(cluster, namespace, owner["metadata"]["uid"]) == []
            assert restarted.stop() == 0
        ready_events = [
            event
            for event in json.loads(kubectl(cluster, "get", "events.events.k8s.io", "-n", namespace, "-o", "json"))[
                "items"
            ]
            if event["regarding"]["kind"] == "CosyVoiceDeployment" and event["reason"] == "Ready"
        ]
        assert 1 <= len(ready_events) <= 2
        kubectl(cluster, "delete", "cvd", "--all", "-n", namespace)


def test_killed_while_a_pool_is_being_removed_it_removes_it_after_the_restart(
    cluster: Cluster, namespace: str, proxy: ApiProxy, start_operator: StartOperator
) -> None:
    cpu, other = {"name": "cpu", "backend": "ONNXRuntime"}, {"name": "other", "backend": "ONNXRuntime"}
    first = start_operator(kubeconfig=proxy.kubeconfig, identity="operator")
    create(cluster, resource(namespace, tiers=[cpu]))
    wait_ready(cluster, namespace)
    proxy.hold_after_write(1)
    kubectl(
        cluster, "patch", "cvd/hello", "-n", namespace, "--type=merge", "-p", json.dumps({"spec": {"tiers": [other]}})
    )
    assert proxy.held.wait(20)
    first.kill()
    proxy.release()
    start_operator(kubeconfig=proxy.kubeconfig, name="restarted", identity="operator")
    eventually(
        lambda: {name for kind, name in children(cluster, namespace) if kind == "Deployment"} == {"hello-other"},
        "only the new pool is left",
        within=60,
    )
    wait_ready(cluster, namespace)
    assert condition(read(cluster, namespace), "Stalled")["status"] == "False"
