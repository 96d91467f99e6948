"""The process itself: its answers to the kubelet, its logs, its end."""

from __future__ import annotations

import json
import time

from devcluster import Cluster
from tests.cluster import eventually
from tests.integration.conftest import StartOperator
from tests.integration.proxy import ApiProxy
from tests.integration.resources import create, edit, resource, wait_ready
from tests.operator_process import OperatorProcess


def test_it_ends_within_its_time_and_gives_the_lease_back(
    cluster: Cluster, namespace: str, operator: OperatorProcess
) -> None:
    create(cluster, resource(namespace))
    wait_ready(cluster, namespace)
    started = time.monotonic()
    assert operator.stop() == 0
    assert time.monotonic() - started < 25
    assert next(operator.lines("released the lease"))
    assert [line for line in operator.lines() if line["level"] in {"warning", "error"}] == []


def test_a_reconcile_that_runs_when_it_is_stopped_is_finished(
    cluster: Cluster, namespace: str, proxy: ApiProxy, start_operator: StartOperator
) -> None:
    operator = start_operator(kubeconfig=proxy.kubeconfig)
    eventually(operator.leading, "the operator leads")
    first_write = time.monotonic()

    def slow(request: object) -> None:
        nonlocal first_write
        if getattr(request, "writes", False) and not proxy.writes():
            first_write = time.monotonic()
            operator.process.terminate()

    proxy.before(slow)
    create(cluster, resource(namespace))
    assert operator.process.wait(timeout=25) == 0
    # The whole first reconcile, status included, and not only the write that was under way.
    assert {request.resource for request in proxy.writes()} >= {
        "serviceaccounts",
        "services",
        "poddisruptionbudgets",
        "deployments",
        "cosyvoicedeployments/status",
    }


def test_a_queue_that_is_stuck_is_told_to_the_kubelet(
    cluster: Cluster, namespace: str, proxy: ApiProxy, start_operator: StartOperator
) -> None:
    operator = start_operator(kubeconfig=proxy.kubeconfig, workers=1, stuck_after=2, request_timeout=60)
    eventually(operator.leading, "the operator leads")
    proxy.hold_after_write(1)
    create(cluster, resource(namespace, "first"))
    create(cluster, resource(namespace, "second"))

    def problems() -> dict[str, str]:
        return json.loads(operator.get("/healthz")[1])["problems"]

    eventually(lambda: {"queue", "reconcile"} <= set(problems()), "both are told", within=20)
    assert operator.get("/healthz")[0] == 503
    assert f"the reconcile of {namespace}/" in problems()["reconcile"]


def test_lines_of_a_reconcile_name_the_resource(
    cluster: Cluster, namespace: str, start_operator: StartOperator
) -> None:
    operator = start_operator()
    eventually(operator.leading, "the operator leads")
    create(cluster, resource(namespace, tiers=[{"name": "a", "backend": "ONNXRuntime"}]))
    wait_ready(cluster, namespace)
    edit(cluster, namespace, {"tiers": [{"name": "b", "backend": "ONNXRuntime"}]})
    line = eventually(lambda: next(operator.lines("deleted a child"), None), "a child is deleted", within=60)
    assert line["resource"] == f"{namespace}/hello"
    assert line["child"] == "Deployment/hello-a"


def test_metrics_say_what_is_served(cluster: Cluster, namespace: str, operator: OperatorProcess) -> None:
    create(cluster, resource(namespace, replicas=2))
    wait_ready(cluster, namespace)
    eventually(lambda: operator.metric("units", state="ready") == 2, "two units are ready")
    assert operator.metric("units", state="promised") == 2
    assert operator.metric("tier_pods", tier="cpu", state="ready") == 2
    assert operator.metric("queue_depth") == 0
    assert operator.metric("reconcile_duration_seconds_count", outcome="written") >= 1
