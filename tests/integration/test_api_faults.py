"""The API server says no, says nothing, forgets, or is away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from devcluster import Cluster
from tests.cluster import eventually, kubectl
from tests.components import restart
from tests.integration.conftest import StartOperator
from tests.integration.proxy import ApiProxy, CutError, Refusal, Request
from tests.integration.resources import children, condition, create, edit, read, resource, wait_ready
from tests.operator_process import OperatorProcess


@pytest.fixture
def operator(proxy: ApiProxy, start_operator: StartOperator) -> OperatorProcess:
    """An operator that leads, behind the proxy."""
    operator = start_operator(kubeconfig=proxy.kubeconfig)
    eventually(operator.leading, "the operator leads")
    return operator


class Times:
    """A hook that acts on the first requests that match, and lets the rest pass."""

    def __init__(self, count: int, matches: Callable[[Request], bool], act: Callable[[], Refusal]) -> None:
        self.left = count
        self.at: list[float] = []
        self._matches = matches
        self._act = act

    def __call__(self, request: Request) -> Refusal | None:
        if not self._matches(request):
            return None
        self.at.append(time.monotonic())
        if self.left <= 0:
            return None
        self.left -= 1
        return self._act()


def cut() -> Refusal:
    raise CutError


def on_deployments(request: Request) -> bool:
    return request.verb == "patch" and request.resource == "deployments"


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal(409, "Conflict"),
        Refusal(500, "InternalError"),
        Refusal(503, "ServiceUnavailable"),
        Refusal(504, "Timeout"),
    ],
    ids=lambda refusal: str(refusal.status),
)
def test_a_write_that_fails_is_made_again(
    cluster: Cluster, namespace: str, proxy: ApiProxy, operator: OperatorProcess, refusal: Refusal
) -> None:
    hook = Times(3, on_deployments, lambda: refusal)
    proxy.before(hook)
    create(cluster, resource(namespace))
    wait_ready(cluster, namespace)
    assert hook.left == 0
    assert operator.metric("reconcile_retries_total") >= 1


def test_a_connection_that_breaks_leads_to_another_try(
    cluster: Cluster, namespace: str, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    hook = Times(3, lambda request: request.writes, cut)
    proxy.before(hook)
    create(cluster, resource(namespace))
    wait_ready(cluster, namespace)
    assert hook.left == 0


def test_when_the_server_has_enough_no_write_comes_before_the_time_it_asked_for(
    cluster: Cluster, namespace: str, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    hook = Times(1, lambda request: request.writes, lambda: Refusal(429, "TooManyRequests", {"Retry-After": "2"}))
    proxy.before(hook)
    create(cluster, resource(namespace))
    wait_ready(cluster, namespace)
    assert hook.at[1] - hook.at[0] >= 1.9
    assert operator.metric("reconcile_retries_total", reason="TooManyRequests") >= 1


def test_a_refused_permission_is_told_with_its_verb_and_mended_once_it_is_granted(
    cluster: Cluster, namespace: str, proxy: ApiProxy, start_operator: StartOperator
) -> None:
    operator = start_operator(kubeconfig=proxy.kubeconfig, blocked_retry=1)
    eventually(operator.leading, "the operator leads")
    proxy.before(lambda request: Refusal(403, "Forbidden") if on_deployments(request) else None)
    create(cluster, resource(namespace))
    eventually(lambda: condition(read(cluster, namespace), "Stalled").get("reason") == "Forbidden", "it is told")
    assert "patch deployments.apps" in condition(read(cluster, namespace), "Stalled")["message"]
    proxy.before(None)
    wait_ready(cluster, namespace)


def test_watches_that_are_cut_go_on(
    cluster: Cluster, namespace: str, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    for round_number in range(3):
        proxy.cut_watches()
        create(cluster, resource(namespace, f"round-{round_number}"))
        wait_ready(cluster, namespace, f"round-{round_number}")


def test_after_a_lost_resource_version_nothing_is_missed(
    cluster: Cluster, namespace: str, proxy: ApiProxy, operator: OperatorProcess
) -> None:
    create(cluster, resource(namespace, "stays"))
    create(cluster, resource(namespace, "goes"))
    wait_ready(cluster, namespace, "stays")
    wait_ready(cluster, namespace, "goes")
    # While no watch runs, one resource is edited, one deleted, one made; then the old versions are gone.
    proxy.before(lambda request: Refusal(500) if request.verb in {"watch", "list"} else None)
    proxy.cut_watches()
    edit(cluster, namespace, {"replicas": 2}, "stays")
    kubectl(cluster, "delete", "cvd/goes", "-n", namespace)
    create(cluster, resource(namespace, "comes"))
    gone = Refusal(200, event={"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}})
    proxy.before(Times(7, lambda request: request.verb == "watch", lambda: gone))
    wait_ready(cluster, namespace, "comes")
    eventually(
        lambda: children(cluster, namespace)["Deployment", "stays-cpu"]["spec"]["replicas"] == 2, "the edit is seen"
    )
    eventually(lambda: not [name for _, name in children(cluster, namespace) if name.startswith("goes")], "it is gone")


def test_a_deletion_that_no_watch_told_of_is_noticed_by_a_resync(
    cluster: Cluster, namespace: str, proxy: ApiProxy, start_operator: StartOperator
) -> None:
    operator = start_operator(kubeconfig=proxy.kubeconfig, resync_interval=3)
    eventually(operator.leading, "the operator leads")
    create(cluster, resource(namespace))
    wait_ready(cluster, namespace)
    # From here on the operator's Deployment watch only connects and hears nothing.
    blind = threading.Event()
    proxy.before(
        lambda request: (
            Refusal(500) if blind.is_set() and request.verb == "watch" and request.resource == "deployments" else None
        )
    )
    blind.set()
    proxy.cut_watches()
    time.sleep(0.5)
    kubectl(cluster, "delete", "deployment/hello-cpu", "-n", namespace)
    eventually(lambda: ("Deployment", "hello-cpu") in children(cluster, namespace), "it is made again", within=40)
    assert operator.metric("reconcile_retries_total", reason="Bug") == 0


def test_an_api_server_that_is_restarted_is_found_again(
    cluster: Cluster, namespace: str, start_operator: StartOperator
) -> None:
    operator = start_operator()
    eventually(operator.leading, "the operator leads")
    create(cluster, resource(namespace, "before"))
    wait_ready(cluster, namespace, "before")
    # Away for less than the operator may go without renewing its lease.
    restart(cluster, "apiserver")
    eventually(lambda: "ok" in kubectl(cluster, "get", "--raw=/readyz", check=False), "the API server is back")
    create(cluster, resource(namespace, "after"))
    wait_ready(cluster, namespace, "after")
    # Half a minute of jittered delays is what its watches may need; then it hears of others' changes again.
    kubectl(cluster, "delete", "service/before", "-n", namespace)
    eventually(lambda: ("Service", "before") in children(cluster, namespace), "the drift is seen", within=60)
