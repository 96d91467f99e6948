"""One build for each engine, whoever needs it, in the order of age and within the limits."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cosyvoice_operator.core.gpu import normalise_product
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
    make_cache,
    node,
    owners,
    states,
    wait_built,
    with_engines,
)
from tests.integration.resources import condition, create, edit, read, wait_ready
from tests.operator_process import OperatorProcess

SLOW = {"builderImage": f"{SIMULATED}/builds:1500ms"}
HANGS = {"builderImage": f"{SIMULATED}/hangs:1"}


def test_every_gpu_type_gets_one_build_and_a_second_deployment_none(
    cluster: Cluster, namespace: str, operator: OperatorProcess, jobs: JobLog
) -> None:
    create_with_cache(cluster, with_engines(namespace))
    wait_built(cluster, namespace, len(PRODUCTS))
    resource = wait_ready(cluster, namespace)
    made = jobs.made(namespace)
    assert len(made) == len(set(made)) == len(PRODUCTS)
    assert condition(resource, "EnginesReady")["status"] == "True"
    pools = [pool for pool in resource["status"]["pools"] if pool["ready"]]
    keys = {engine["key"] for engine in resource["status"]["engines"]}
    assert pools
    assert {pool["engineKey"] for pool in pools} <= keys
    (engine, *_) = engines(cluster, namespace).values()
    assert (engine["seconds"], engine["bytes"]) == (3.5, 1048576)
    # L4 and L40S, A10 and A10G: one is part of the other's name, and each is built on a node of its own.
    assert built_on(cluster, namespace) == {engine["key"]: kind for kind, engine in engines(cluster, namespace).items()}

    create(cluster, with_engines(namespace, name="second"))
    wait_built(cluster, namespace, len(PRODUCTS), "second")
    wait_ready(cluster, namespace, "second")
    assert jobs.made(namespace) == made
    assert all(owners(job) == {"hello", "second"} for job in build_jobs(cluster, namespace).values())
    # Each result is counted once, however many resources looked at it.
    assert operator.metric("builds_total", outcome="Succeeded") == len(PRODUCTS)
    assert operator.metric("engine_build_seconds_sum", backend="ONNXRuntime", gpu_type="L4") == 3.5
    assert (operator.metric("builds_queued"), operator.metric("builds_running")) == (0, 0)


def test_fifty_deployments_on_five_types_applied_at_once_make_five_builds(
    cluster: Cluster, namespace: str, operator: OperatorProcess, jobs: JobLog
) -> None:
    make_cache(cluster, namespace)
    types = PRODUCTS[:5]
    resources = [with_engines(namespace, types[n % 5], name=f"r{n}", replicas=0) for n in range(50)]
    kubectl(cluster, "apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(resources))

    def all_built() -> bool:
        items = get(cluster, "cosyvoicedeployments", "-n", namespace)["items"]
        return [condition(item, "EnginesReady").get("status") for item in items] == ["True"] * 50

    eventually(all_built, "all have their engines", within=90)
    made = jobs.made(namespace)
    assert len(made) == len(set(made)) == 5
    assert Counter(len(owners(job)) for job in build_jobs(cluster, namespace).values()) == {10: 5}
    assert operator.requests(writes=True).get(("create", "Job", "201")) == 5


def test_no_more_builds_run_than_the_limits_allow_and_all_get_their_turn(
    cluster: Cluster, fresh_namespace: Callable[[], str], start_operator: StartOperator, jobs: JobLog
) -> None:
    operator = start_operator(builds=3, builds_per_namespace=2)
    eventually(operator.leading, "the operator leads")
    namespaces = [fresh_namespace() for _ in range(3)]
    for namespace in namespaces:
        create_with_cache(cluster, with_engines(namespace, *PRODUCTS[:4], engines=SLOW))
    for namespace in namespaces:
        wait_built(cluster, namespace, 4)
    assert jobs.most_running(*namespaces) == 3
    assert [jobs.most_running(namespace) for namespace in namespaces] == [2, 2, 2]
    assert [len(jobs.made(namespace)) for namespace in namespaces] == [4, 4, 4]


def test_builds_start_in_the_order_of_their_age(
    cluster: Cluster, fresh_namespace: Callable[[], str], start_operator: StartOperator, jobs: JobLog
) -> None:
    operator = start_operator(builds=1)
    eventually(operator.leading, "the operator leads")
    # The oldest is in the namespace that the alphabet puts last.
    namespaces = sorted((fresh_namespace() for _ in range(4)), reverse=True)
    for number, namespace in enumerate(namespaces):
        create_with_cache(cluster, with_engines(namespace, PRODUCTS[number], engines=SLOW))
        eventually(lambda namespace=namespace: jobs.made(namespace), "its build is queued")
        time.sleep(1.1)  # the age of a Job is told in whole seconds
    for namespace in namespaces:
        wait_built(cluster, namespace, 1)
    assert jobs.started(*namespaces) == [jobs.made(namespace)[0] for namespace in namespaces]
    assert jobs.most_running(*namespaces) == 1


def test_nobody_waits_behind_the_builds_of_a_paused_deployment(
    cluster: Cluster, fresh_namespace: Callable[[], str], start_operator: StartOperator, jobs: JobLog
) -> None:
    operator = start_operator(builds=1)
    eventually(operator.leading, "the operator leads")
    first, paused, last = (fresh_namespace() for _ in range(3))
    create_with_cache(cluster, with_engines(first, PRODUCTS[0], engines=SLOW))
    eventually(lambda: jobs.started(first), "the first build runs")
    create_with_cache(cluster, with_engines(paused, PRODUCTS[1], engines=SLOW))
    eventually(lambda: jobs.made(paused), "the second waits")
    edit(cluster, paused, {"paused": True})
    eventually(
        lambda: condition(read(cluster, paused), "Reconciling").get("reason") == "Paused", "the second is paused"
    )
    create_with_cache(cluster, with_engines(last, PRODUCTS[2]))
    wait_built(cluster, last, 1)
    assert jobs.started(paused) == []
    edit(cluster, paused, {"paused": False})
    wait_built(cluster, paused, 1)


def test_a_gpu_type_that_appears_later_gets_its_engine_without_an_edit(
    cluster: Cluster, namespace: str, operator: OperatorProcess, jobs: JobLog, tmp_path: Path
) -> None:
    create_with_cache(cluster, with_engines(namespace))
    wait_built(cluster, namespace, len(PRODUCTS))
    before = jobs.made(namespace)
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(yaml.safe_dump(node("NVIDIA-A30")))
    cluster.start_kwok(nodes)
    try:
        wait_built(cluster, namespace, len(PRODUCTS) + 1)
        assert len(jobs.made(namespace)) == len(before) + 1
        assert engines(cluster, namespace)["A30"]["state"] == "Ready"
    finally:
        kubectl(cluster, "delete", "node", "nvidia-a30")
    # Its last node left: it is kept for a while, in case that it comes back.
    eventually(lambda: engines(cluster, namespace)["A30"]["state"] == "Unused", "it is no longer needed")
    assert len(build_jobs(cluster, namespace)) == len(PRODUCTS) + 1


def test_a_build_goes_with_the_last_that_needs_it(
    cluster: Cluster, namespace: str, operator: OperatorProcess, jobs: JobLog
) -> None:
    create_with_cache(cluster, with_engines(namespace, PRODUCTS[0], engines=HANGS))
    eventually(lambda: states(cluster, namespace) == ["Building"], "it is being built")
    create(cluster, with_engines(namespace, PRODUCTS[0], name="second", engines=HANGS))
    eventually(
        lambda: [owners(job) for job in build_jobs(cluster, namespace).values()] == [{"hello", "second"}],
        "both need it",
    )
    delete(cluster, namespace)
    eventually(lambda: [owners(job) for job in build_jobs(cluster, namespace).values()] == [{"second"}], "one needs it")
    delete(cluster, namespace, "second")
    eventually(lambda: not build_jobs(cluster, namespace), "the build is gone")
    assert len(jobs.made(namespace)) == 1


def test_a_build_that_a_changed_spec_no_longer_needs_is_given_up(
    cluster: Cluster, namespace: str, operator: OperatorProcess, jobs: JobLog
) -> None:
    create_with_cache(cluster, with_engines(namespace, PRODUCTS[0], engines=HANGS))
    eventually(lambda: states(cluster, namespace) == ["Building"], "it is being built")
    create(cluster, with_engines(namespace, PRODUCTS[0], name="second", engines=HANGS))
    eventually(lambda: states(cluster, namespace, "second") == ["Building"], "another needs it too")
    builder = {"engines": {"builderImage": f"{SIMULATED}/builds:100ms"}}
    edit(cluster, namespace, builder)
    wait_built(cluster, namespace, 1)
    (old, _) = jobs.made(namespace)
    assert owners(build_jobs(cluster, namespace)[old]) == {"second"}
    edit(cluster, namespace, builder, "second")
    wait_built(cluster, namespace, 1, "second")
    eventually(lambda: old not in build_jobs(cluster, namespace), "nobody needs the old one")
    assert len(jobs.made(namespace)) == 2


@pytest.mark.parametrize("cache", [{"claimName": "cache"}, {"size": "1Gi"}], ids=["named", "made"])
def test_a_build_waits_for_its_cache_and_goes_on_when_it_is_there(
    cluster: Cluster, namespace: str, operator: OperatorProcess, jobs: JobLog, cache: dict[str, str]
) -> None:
    create(cluster, with_engines(namespace, PRODUCTS[0], engines={"cache": cache}))
    eventually(lambda: states(cluster, namespace) == ["WaitingForCache"], "it waits for the cache")
    (engine,) = engines(cluster, namespace).values()
    assert "persistentvolumeclaim" in engine["message"].lower()
    assert "Create or bind the claim" in engine["message"]
    if "claimName" in cache:
        make_cache(cluster, namespace)
    else:
        bind(cluster, namespace, "hello-engines")
    wait_built(cluster, namespace, 1)
    wait_ready(cluster, namespace)
    assert len(jobs.made(namespace)) == 1


def test_a_model_is_fetched_once_and_its_engines_are_built_from_what_was_fetched(
    cluster: Cluster, namespace: str, operator: OperatorProcess, jobs: JobLog
) -> None:
    make_cache(cluster, namespace)
    source = {"huggingFace": {"repo": "FunAudioLLM/Fun-CosyVoice3-0.5B-2512", "revision": "1b1f8ac"}}
    model = {"family": "CosyVoice3", "source": source}
    tiers = [{"name": "gpu", "backend": "Triton", "gpu": {"products": ["NVIDIA-L4", "NVIDIA-L40S"]}}]
    for name in ("hello", "second"):
        create(cluster, with_engines(namespace, name=name, model=model, tiers=tiers))
    for name in ("hello", "second"):
        wait_built(cluster, namespace, 2, name)
    fetches = [name for name in jobs.made(namespace) if name.startswith("model-")]
    assert len(fetches) == 1
    assert len(jobs.made(namespace)) == 3
    status = read(cluster, namespace)["status"]["model"]
    assert status["digest"].startswith("sha256:")
    for job in build_jobs(cluster, namespace).values():
        request = build_request(job["spec"]["template"])
        assert request["model"] == {"digest": status["digest"], "path": status["path"], "voice": None}
    assert operator.metric("builds_total", component="model", outcome="Succeeded") == 1


def build_request(pod: dict[str, Any]) -> dict[str, Any]:
    """What a pod was asked to build."""
    env = {variable["name"]: variable.get("value", "") for variable in pod["spec"]["containers"][0]["env"]}
    return dict(json.loads(env["COSYVOICE_BUILD_REQUEST"]))


def built_on(cluster: Cluster, namespace: str) -> dict[str, str]:
    """The GPU type of the node on which each engine was built, by the engine's key."""
    kinds = {
        n["metadata"]["name"]: n["metadata"]["labels"]["nvidia.com/gpu.product"] for n in get(cluster, "nodes")["items"]
    }
    pods = get(cluster, "pods", "-n", namespace, "-l", "app.kubernetes.io/component=engine")["items"]
    return {build_request(pod)["key"]: normalise_product(kinds[pod["spec"]["nodeName"]]) for pod in pods}


def bind(cluster: Cluster, namespace: str, claim: str) -> None:
    """Give a claim that was made without a storage class a volume."""
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany"],
        "hostPath": {"path": "/nowhere"},
        "claimRef": {"namespace": namespace, "name": claim},
    }
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-{claim}"},
        "spec": spec,
    }
    kubectl(cluster, "apply", "-f", "-", stdin=yaml.safe_dump(volume))
