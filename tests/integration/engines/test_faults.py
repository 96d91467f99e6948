"""Builds that fail, and an operator that is killed while one goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from devcluster import Cluster
from tests.cluster import eventually, get, kubectl
from tests.integration.conftest import StartOperator
from tests.integration.engines.jobs import (
    PRODUCTS,
    SIMULATED,
    JobLog,
    build_jobs,
    create_with_cache,
    delete,
    engines,
    events,
    make_cache,
    node,
    owners,
    states,
    wait_built,
    with_engines,
)
from tests.integration.proxy import ApiProxy
from tests.integration.resources import (
    CPU_TIER,
    children,
    condition,
    create,
    desired_part,
    edit,
    is_ready,
    read,
    wait_ready,
)
from tests.operator_process import OperatorProcess

REASONS = (
    "OutOfMemory", "UnsupportedGPU", "VersionMismatch", "ShapeMismatch", "MissingFile", "DiskFull", "Timeout",
    "AccuracyLost", "Internal",
)  # fmt: skip

MOST_WRITES = 30


def builder(what: str) -> dict[str, str]:
    """Engines that are built by an image to which this happens."""
    return {"builderImage": f"{SIMULATED}/{what}"}


def test_a_build_that_fails_tells_why_and_what_to_do_and_is_not_repeated(
    cluster: Cluster, fresh_namespace: Callable[[], str], operator: OperatorProcess, jobs: JobLog
) -> None:
    namespaces = {reason: fresh_namespace() for reason in REASONS}
    for reason, namespace in namespaces.items():
        create_with_cache(cluster, with_engines(namespace, PRODUCTS[0], engines=builder(f"fails:{reason}")))
    for reason, namespace in namespaces.items():
        eventually(lambda namespace=namespace: states(cluster, namespace) == ["Failed"], f"{reason} is told")
        (engine,) = engines(cluster, namespace).values()
        assert engine["reason"] == reason
        resource = read(cluster, namespace)
        for kind, status in (("Stalled", "True"), ("EnginesReady", "False"), ("Reconciling", "False")):
            assert condition(resource, kind)["status"] == status
        assert f"What to do about {reason}." in condition(resource, "Stalled")["message"]
        (told,) = eventually(lambda namespace=namespace: events(cluster, namespace, "Stalled"), "an Event tells it")
        assert f"What to do about {reason}." in told
        (job,) = build_jobs(cluster, namespace).values()
        assert json.loads(job["metadata"]["annotations"]["tts.cosyvoice.io/result"])["reason"] == reason
        assert len(get(cluster, "pods", "-n", namespace)["items"]) == 1, "what the program calls a failure is one"
        assert operator.metric("builds_total", outcome="Failed", reason=reason) == 1
    # A full round of looks at everything later there is still one Job of each, and nothing is written any more.
    writes = operator.writes()
    kubectl(cluster, "label", "node", PRODUCTS[0].lower(), "nvidia.com/gpu.count=7", "--overwrite")
    kubectl(cluster, "annotate", "cvd", "--all", "-A", "tests/look=again", "--overwrite")
    eventually(lambda: operator.metric("queue_depth") == 0, "all are looked at")
    assert [jobs.made(namespace) for namespace in namespaces.values()] == [
        list(build_jobs(cluster, namespace)) for namespace in namespaces.values()
    ]
    assert operator.writes() == writes


def test_a_build_that_is_killed_for_memory_is_tried_a_few_times_and_then_says_what_to_raise(
    cluster: Cluster, namespace: str, operator: OperatorProcess, jobs: JobLog
) -> None:
    create_with_cache(cluster, with_engines(namespace, PRODUCTS[0], engines=builder("killed:OOMKilled")))
    eventually(lambda: states(cluster, namespace) == ["Failed"], "the Job gives up", within=180)
    (engine,) = engines(cluster, namespace).values()
    assert engine["reason"] == "OutOfMemory"
    assert "engines.resources.limits.memory" in engine["message"]
    assert len(get(cluster, "pods", "-n", namespace)["items"]) == 4
    assert len(jobs.made(namespace)) == 1


def test_lower_tiers_serve_while_a_build_hangs_or_has_failed(
    cluster: Cluster, fresh_namespace: Callable[[], str], operator: OperatorProcess
) -> None:
    for what, state in (("hangs:1", "Building"), ("fails:UnsupportedGPU", "Failed")):
        namespace = fresh_namespace()
        make_cache(cluster, namespace)
        gpu, cpu = with_engines(namespace, PRODUCTS[0])["spec"]["tiers"][0], CPU_TIER
        create(cluster, with_engines(namespace, tiers=[cpu]))
        wait_built(cluster, namespace, 1)
        edit(cluster, namespace, {"tiers": [gpu, cpu], "engines": builder(what)})
        eventually(
            lambda namespace=namespace, state=state: engines(cluster, namespace).get("T4", {}).get("state") == state,
            f"the GPU tier's engine is {state}",
        )
        eventually(
            lambda namespace=namespace: read(cluster, namespace)["status"]["serving"].get("tier") == "cpu",
            "the CPU tier serves",
        )
        assert condition(read(cluster, namespace), "Ready")["status"] == "True"


def test_a_failed_build_is_made_anew_when_its_job_is_deleted(
    cluster: Cluster, namespace: str, operator: OperatorProcess, jobs: JobLog
) -> None:
    create_with_cache(cluster, with_engines(namespace, PRODUCTS[0], engines=builder("fails:DiskFull")))
    eventually(lambda: states(cluster, namespace) == ["Failed"], "it failed")
    (name,) = build_jobs(cluster, namespace)
    kubectl(cluster, "delete", "job", name, "-n", namespace)
    eventually(lambda: jobs.made(namespace) == [name, name], "it is made again")
    eventually(lambda: states(cluster, namespace) == ["Failed"], "it failed again")
    assert len(jobs.made(namespace)) == 2


def test_a_build_whose_job_is_deleted_by_hand_is_made_again_and_ends(
    cluster: Cluster, namespace: str, operator: OperatorProcess, jobs: JobLog
) -> None:
    create_with_cache(cluster, with_engines(namespace, PRODUCTS[0], engines=builder("builds:3s")))
    create(cluster, with_engines(namespace, PRODUCTS[0], name="second", engines=builder("builds:3s")))
    eventually(lambda: states(cluster, namespace, "second") == ["Building"], "it is being built")
    (name,) = build_jobs(cluster, namespace)
    kubectl(cluster, "delete", "job", name, "-n", namespace)
    wait_built(cluster, namespace, 1)
    wait_built(cluster, namespace, 1, "second")
    assert jobs.made(namespace) == [name, name]
    assert owners(build_jobs(cluster, namespace)[name]) == {"hello", "second"}


def test_a_build_whose_node_goes_away_goes_on_elsewhere(
    cluster: Cluster, namespace: str, operator: OperatorProcess, jobs: JobLog, tmp_path: Path
) -> None:
    product = "NVIDIA-A30"
    for name in ("hangs-a30", "nvidia-a30"):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(node(product, name)))
    cluster.start_kwok(tmp_path / "hangs-a30.yaml")
    create_with_cache(cluster, with_engines(namespace, product))
    eventually(lambda: states(cluster, namespace) == ["Building"], "it is being built")
    cluster.start_kwok(tmp_path / "nvidia-a30.yaml")
    kubectl(cluster, "delete", "node", "hangs-a30")
    # Kubernetes keeps the pods of a node that isn't there for a minute.
    wait_built(cluster, namespace, 1, within=150)
    assert len(jobs.made(namespace)) == 1
    kubectl(cluster, "delete", "node", "nvidia-a30")


def test_what_somebody_else_gave_the_name_of_a_build_is_left_alone(
    cluster: Cluster, fresh_namespace: Callable[[], str], operator: OperatorProcess
) -> None:
    first, second = fresh_namespace(), fresh_namespace()
    create_with_cache(cluster, with_engines(first, PRODUCTS[0]))
    wait_built(cluster, first, 1)
    (name,) = build_jobs(cluster, first)
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": f"{SIMULATED}/hangs:1"}]}
    foreign = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": second},
        "spec": {"template": {"spec": pod}},
    }
    create(cluster, foreign)
    create_with_cache(cluster, with_engines(second, PRODUCTS[0]))
    eventually(
        lambda: condition(read(cluster, second), "Stalled").get("reason") == "NameConflict", "the conflict is told"
    )
    assert f"Job {name}" in condition(read(cluster, second), "Stalled")["message"]
    assert "ownerReferences" not in get(cluster, "job", name, "-n", second)["metadata"]


def test_killed_after_each_write_of_a_build_it_ends_in_the_same_state_with_one_job(
    cluster: Cluster,
    proxy: ApiProxy,
    start_operator: StartOperator,
    fresh_namespace: Callable[[], str],
    jobs: JobLog,
) -> None:
    untouched = fresh_namespace()
    operator = start_operator(kubeconfig=proxy.kubeconfig, identity="operator")
    eventually(operator.leading, "the operator leads")
    before = len(proxy.writes())
    create_with_cache(cluster, with_engines(untouched, PRODUCTS[0]))
    wait_ready(cluster, untouched)
    writes = len(proxy.writes()) - before
    wanted = outcome(cluster, untouched)
    # ServiceAccount, Service, budget, Job made, started and noted, the Deployment, and a status for most of them.
    assert 8 <= writes <= MOST_WRITES
    delete(cluster, untouched)

    for number in range(1, writes + 1):
        namespace = fresh_namespace()
        proxy.hold_after_write(number)
        create_with_cache(cluster, with_engines(namespace, PRODUCTS[0]))
        # The last ones are answers to pods that start: there are more or fewer of them from one run to the next.
        held = eventually(
            lambda namespace=namespace: proxy.held.is_set() or (is_ready(cluster, namespace) and "not held"),
            f"write {number}, or the end",
        )
        operator.kill()
        proxy.release()
        operator = start_operator(kubeconfig=proxy.kubeconfig, name=f"restarted-{number}", identity="operator")
        wait_ready(cluster, namespace)
        assert outcome(cluster, namespace) == wanted, f"killed after write {number} (held: {held})"
        assert len(jobs.made(namespace)) == 1, f"killed after write {number}"
        eventually(operator.leading, "it leads again")
        delete(cluster, namespace)


def outcome(cluster: Cluster, namespace: str) -> tuple[object, ...]:
    """What must be the same however the operator got there."""
    resource = read(cluster, namespace)
    shape = {key: desired_part(child) for key, child in children(cluster, namespace).items()}
    told = {c["type"]: f"{c['status']} {c['reason']}" for c in resource["status"]["conditions"]}
    built = [(engine["key"], engine["state"]) for engine in resource["status"]["engines"]]
    (job,) = build_jobs(cluster, namespace).values()
    noted = {key: value for key, value in job["metadata"]["annotations"].items() if key.startswith("tts.")}
    return shape, told, built, owners(job), job["spec"]["suspend"], noted


@pytest.mark.parametrize("signal", ["kill", "stop"])
def test_an_operator_that_was_away_while_a_build_ended_notes_its_result(
    cluster: Cluster, namespace: str, start_operator: StartOperator, jobs: JobLog, signal: str
) -> None:
    first = start_operator(name="first", identity="operator")
    create_with_cache(cluster, with_engines(namespace, PRODUCTS[0], engines=builder("builds:4s")))
    eventually(lambda: states(cluster, namespace) == ["Building"], "it is being built")
    getattr(first, signal)()
    (name,) = build_jobs(cluster, namespace)
    kubectl(cluster, "wait", "--for=condition=Complete", f"job/{name}", "-n", namespace, "--timeout=60s")
    start_operator(name="second", identity="operator")
    wait_built(cluster, namespace, 1)
    (engine,) = engines(cluster, namespace).values()
    assert engine["seconds"] == 3.5
    assert jobs.made(namespace) == [name]
