"""Two replicas: one works, the other takes over."""

from __future__ import annotations

import json
import time

from devcluster import Cluster
from tests.cluster import eventually, kubectl
from tests.integration.conftest import StartOperator
from tests.integration.proxy import ApiProxy, CutError, Request
from tests.integration.resources import create, resource, wait_ready
from tests.operator_process import OperatorProcess

TERMS = {"lease_name": "shared", "lease_duration": 4, "renew_deadline": 3, "retry_period": 0.5}


def holder(cluster: Cluster) -> str:
    lease = json.loads(kubectl(cluster, "get", "lease", "shared", "-n", "default", "-o", "json"))
    return str(lease["spec"].get("holderIdentity", ""))


def pair(start_operator: StartOperator, **first: object) -> tuple[OperatorProcess, OperatorProcess]:
    leader = start_operator(name="one", **TERMS, **first)
    eventually(leader.leading, "the first leads")
    standby = start_operator(name="two", **TERMS)
    eventually(standby.ready, "the second stands by")
    return leader, standby


def test_one_works_and_the_other_stands_by_ready_and_idle(
    cluster: Cluster, namespace: str, start_operator: StartOperator
) -> None:
    leader, standby = pair(start_operator)
    create(cluster, resource(namespace))
    wait_ready(cluster, namespace)
    assert holder(cluster) == "one"
    assert leader.writes() > 0
    assert standby.writes() == 0
    assert standby.metric("leading") == 0
    assert standby.get("/healthz")[0] == 200
    leader.stop()
    standby.stop()


def test_a_leader_that_is_stopped_hands_over_at_once(
    cluster: Cluster, namespace: str, start_operator: StartOperator
) -> None:
    leader, standby = pair(start_operator)
    started = time.monotonic()
    assert leader.stop() == 0
    assert time.monotonic() - started < 25
    released = time.monotonic()
    eventually(lambda: holder(cluster) == "two", "the second holds the lease")
    assert time.monotonic() - released < TERMS["lease_duration"]
    create(cluster, resource(namespace))
    wait_ready(cluster, namespace)
    standby.stop()


def test_a_leader_that_dies_is_replaced_when_its_lease_has_expired(
    cluster: Cluster, namespace: str, start_operator: StartOperator
) -> None:
    leader, standby = pair(start_operator)
    leader.kill()
    died = time.monotonic()
    eventually(lambda: holder(cluster) == "two", "the second holds the lease")
    assert time.monotonic() - died >= TERMS["lease_duration"] - 2 * TERMS["retry_period"]
    create(cluster, resource(namespace))
    wait_ready(cluster, namespace)
    standby.stop()


def test_a_leader_that_cannot_reach_the_server_ends_before_another_starts_to_work(
    cluster: Cluster, namespace: str, proxy: ApiProxy, start_operator: StartOperator
) -> None:
    leader, standby = pair(start_operator, kubeconfig=proxy.kubeconfig)

    def unreachable(_: Request) -> None:
        raise CutError

    proxy.before(unreachable)
    proxy.cut_watches()
    assert leader.process.wait(timeout=20) == 1
    ended = time.monotonic()
    eventually(standby.leading, "the second leads")
    assert next(leader.lines("ending: lease"))
    assert time.monotonic() - ended < 15
    assert holder(cluster) == "two"
    standby.stop()
