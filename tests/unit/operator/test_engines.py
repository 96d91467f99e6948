"""Engines: one build for each key, pools that wait for theirs while lower tiers serve, and what is told about it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cosyvoice_operator.core.model import Plan, ProgressReport
from cosyvoice_operator.core.naming import ATTEMPT_ANNOTATION, ENGINE_LABEL, KUEUE_LABEL, cleanup_job_name
from tests.unit.operator.builders import (
    GPU_THEN_CPU,
    L4,
    NOW,
    QUICK,
    SECOND,
    World,
    job_pod,
    node,
    resource,
    running,
    stuck,
)

ENGINES = {"cache": {"claimName": "cache"}}
ON_L4 = {"name": "gpu", "backend": "ONNXRuntime", "gpu": {"products": ["NVIDIA-L4"]}, "executionProvider": "CPU"}
CPU = {"name": "cpu", "backend": "ONNXRuntime"}


def world(*tiers: dict[str, Any], **engines: Any) -> World:
    spec = resource(replicas=2, tiers=list(tiers), failover=QUICK)
    spec["spec"]["engines"] = {**ENGINES, **engines}
    return World(spec, nodes=[L4])


def engine(made: World, gpu_type: str | None = None) -> dict[str, Any]:
    """Give the engine of a GPU type as the status tells it."""
    return next(e for e in made.owner["status"]["engines"] if e.get("gpuType") == gpu_type)


def build(made: World, gpu_type: str | None = None, **result: Any) -> Plan:
    """Let the engine of a GPU type be built."""
    made.plan(SECOND)
    made.finish(engine(made, gpu_type)["job"], seconds=3.5, bytes=1024, **result)
    made.plan(SECOND)
    return made.plan(SECOND)


def template(made: World, pool: str) -> dict[str, Any]:
    return made.children["Deployment", pool]["spec"]["template"]


def test_without_engines_the_voice_runs_as_it_is_in_the_image() -> None:
    made = World(resource(tiers=[CPU]))
    plan = made.plan()
    assert plan.jobs == ()
    assert "engines" not in made.owner["status"]
    assert all(c["type"] != "EnginesReady" for c in made.owner["status"]["conditions"])
    assert "initContainers" not in template(made, "hello-cpu")["spec"]


def test_a_pool_gets_pods_once_its_engine_is_built_and_runs_it_read_only() -> None:
    made = world(CPU)
    plan = made.plan()
    assert [(action.name, action.start) for action in plan.jobs] == [(engine(made)["job"], False)]
    assert ("Deployment", "hello-cpu") not in made.children
    assert made.condition("EnginesReady")["status"] == "False"
    assert made.condition("Reconciling")["reason"] == "BuildingEngines"
    plan = build(made)
    key = engine(made)["key"]
    assert made.condition("EnginesReady")["status"] == "True"
    assert (engine(made)["seconds"], engine(made)["bytes"]) == (3.5, 1024)
    pod = template(made, "hello-cpu")
    assert pod["metadata"]["labels"][ENGINE_LABEL] == key
    mounts = [m for c in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]) for m in c["volumeMounts"]]
    engines = [mount for mount in mounts if mount["name"] == "engine"]
    assert len(engines) == 2
    assert all(m["readOnly"] and m["subPath"] == f"engines/{key}" for m in engines)
    assert pod["spec"]["initContainers"][0]["args"] == ["verify", "/engine"]
    assert made.pool("hello-cpu")["engineKey"] == key
    assert (
        "EnginesReady" in [event.reason for event in plan.events] or made.condition("EnginesReady")["status"] == "True"
    )


def test_lower_tiers_serve_while_an_engine_is_built() -> None:
    made = world(ON_L4, CPU)
    made.plan()
    build(made, None)
    assert made.replicas() == {"hello-cpu": 2}
    assert made.pool("hello-gpu-l4")["state"] == "WaitingForEngine"
    made.pods = [running("hello-cpu", f"c{n}", ready=made.now) for n in range(2)]
    made.plan(SECOND)
    assert made.condition("Ready")["status"] == "True"
    assert made.condition("Reconciling")["status"] == "True", "kstatus tools wait for the engine"
    made.finish(engine(made, "L4")["job"])
    made.plan(SECOND)
    made.plan(SECOND)
    assert made.replicas() == {"hello-gpu-l4": 2, "hello-cpu": 2}, (
        "CPU shrinks once the GPU pods have proved themselves"
    )


def test_a_changed_builder_gives_a_new_key_and_pods_keep_the_old_engine_until_it_is_built() -> None:
    made = world(CPU)
    made.plan()
    build(made)
    old = engine(made)["key"]
    made.owner["spec"]["engines"]["builderImage"] = "builder:2"
    made.plan(SECOND)
    new = next(e for e in made.owner["status"]["engines"] if e["state"] != "Ready")
    assert new["key"] != old
    assert template(made, "hello-cpu")["metadata"]["labels"][ENGINE_LABEL] == old
    made.plan(SECOND)
    made.finish(new["job"])
    made.plan(SECOND)
    assert template(made, "hello-cpu")["metadata"]["labels"][ENGINE_LABEL] == new["key"]


def test_two_pools_with_one_key_share_one_build() -> None:
    twin = {**ON_L4, "name": "other"}
    made = world(ON_L4, twin)
    plan = made.plan()
    assert len(plan.jobs) == 1
    assert len(made.owner["status"]["engines"]) == 1


def test_a_new_gpu_type_gets_its_engine_without_an_edit() -> None:
    made = world({**ON_L4, "gpu": {}}, CPU)
    made.plan()
    before = set(made.jobs)
    made.nodes.append(node("node-2", "NVIDIA-A10", 1))
    made.plan(SECOND)
    assert len(set(made.jobs) - before) == 1
    assert engine(made, "A10")["state"] == "Queued"


def test_nothing_is_built_for_a_type_that_no_node_has() -> None:
    made = world({**ON_L4, "gpu": {"products": ["NVIDIA-H100-80GB-HBM3"]}}, CPU)
    plan = made.plan()
    assert len(plan.jobs) == 1, "the CPU tier's"
    assert made.pool("hello-gpu-h100-80gb-hbm3")["state"] == "NoSuchGPU"
    assert engine(made, "H100-80GB-HBM3")["state"] == "NoNode"
    build(made, None)
    assert made.condition("EnginesReady")["status"] == "True", "what can't be built is no build that is missing"


def test_builds_start_by_age_within_the_limits() -> None:
    types = ["NVIDIA-L4", "NVIDIA-A10", "NVIDIA-L40S"]
    made = world({**ON_L4, "gpu": {}})
    made.nodes = [node(f"n{number}", product, 1) for number, product in enumerate(types)]
    made.plan()
    made.plan(SECOND)
    held = [name for name, job in made.jobs.items() if job["spec"]["suspend"]]
    assert len(held) == 1, "two run in a namespace"
    running_now = next(name for name in made.jobs if name not in held)
    made.finish(running_now)
    made.plan(SECOND)
    assert not any(job["spec"]["suspend"] for job in made.jobs.values())


@pytest.mark.parametrize("reason", ["OutOfMemory", "UnsupportedGPU", "VersionMismatch", "DiskFull", "AccuracyLost"])
def test_a_failed_build_is_told_and_not_repeated(reason: str) -> None:
    made = world(CPU)
    made.plan()
    made.plan(SECOND)
    made.finish(engine(made)["job"], outcome="Failed", reason=reason, message="Do this.")
    plan = made.plan(SECOND)
    assert engine(made)["state"] == "Failed"
    assert engine(made)["reason"] == reason
    assert made.condition("Stalled")["status"] == "True"
    assert "Do this." in made.condition("Stalled")["message"]
    assert "Stalled" in [event.reason for event in plan.events]
    assert made.plan(timedelta(hours=5)).requeue_after is None
    assert not any(action.delete for action in made.plan(SECOND).jobs)


def test_a_build_that_was_killed_for_memory_says_which_field_to_raise() -> None:
    made = world(CPU)
    made.plan()
    made.plan(SECOND)
    name = engine(made)["job"]
    made.finish(name, outcome="Failed")
    made.job_pods = [job_pod(name, {"terminated": {"exitCode": 137, "reason": "OOMKilled"}})]
    made.plan(SECOND)
    assert engine(made)["reason"] == "OutOfMemory"
    assert "engines.resources.limits.memory" in engine(made)["message"]


def test_a_build_that_waits_for_its_cache_says_so() -> None:
    made = world(CPU)
    made.plan()
    made.plan(SECOND)
    waiting = job_pod(engine(made)["job"], {})
    waiting["spec"] = {}
    waiting["status"] = {
        "phase": "Pending",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": '0/1 nodes are available: persistentvolumeclaim "cache" not found.',
            }
        ],
    }
    made.job_pods = [waiting]
    made.plan(SECOND)
    assert engine(made)["state"] == "WaitingForCache"
    assert '"cache" not found' in made.condition("EnginesReady")["message"]


def test_a_running_build_is_asked_how_far_it_is() -> None:
    made = world(CPU)
    made.plan()
    made.plan(SECOND)
    pod = job_pod(engine(made)["job"], {"running": {"startedAt": "2026-01-01T12:00:00Z"}})
    pod["status"]["podIP"] = "10.244.0.7"
    made.job_pods = [pod]
    plan = made.plan(SECOND)
    uid = pod["metadata"]["uid"]
    assert [(probe.key, probe.url) for probe in plan.probes] == [(uid, "http://10.244.0.7:8080/progress")]
    made.progress = {uid: ProgressReport("optimising, 25 %")}
    made.plan(SECOND)
    assert "optimising, 25 %" in engine(made)["message"]
    made.jobs[engine(made)["job"]]["metadata"]["ownerReferences"].insert(0, {"uid": "another"})
    assert made.plan(SECOND).probes == (), "another resource asks, and the pod is asked once"


def test_a_damaged_engine_is_built_once_more_and_then_told() -> None:
    made = world(CPU)
    made.plan()
    build(made)
    name = engine(made)["job"]

    def damaged() -> dict[str, Any]:
        pod = stuck("hello-cpu", "c0", "CrashLoopBackOff")
        pod["metadata"]["labels"][ENGINE_LABEL] = engine(made)["key"]
        last = {"message": '{"outcome":"Failed","reason":"CorruptEngine"}', "finishedAt": "2026-01-01T13:00:00Z"}
        state = {"waiting": {"reason": "CrashLoopBackOff"}}
        pod["status"]["initContainerStatuses"] = [
            {"name": "verify", "image": "cpu:1", "restartCount": 2, "state": state, "lastState": {"terminated": last}}
        ]
        pod["status"]["containerStatuses"] = []
        return pod

    made.pods = [damaged()]
    plan = made.plan(SECOND)
    assert [action.delete for action in plan.jobs] == [True]
    assert engine(made)["reason"] == "CorruptEngine"
    assert made.replicas() == {"hello-cpu": 2}, "what serves is not taken away"
    made.job_pods = []
    made.plan(SECOND)
    made.plan(SECOND)
    made.finish(name)
    made.plan(SECOND)
    assert engine(made)["state"] == "Failed"
    assert "once already" in made.condition("Stalled")["message"]
    made.now = NOW + timedelta(hours=2)
    made.finish(name)
    made.plan(SECOND)
    assert engine(made)["state"] == "Ready", "what the pod found was before this build"
    assert engine(made)["rebuilds"] == 1
    sound = running("hello-cpu", "c1", ready=made.now + SECOND)
    sound["metadata"]["labels"][ENGINE_LABEL] = engine(made)["key"]
    made.pods = [sound]
    made.plan(SECOND)
    assert "rebuilds" not in engine(made), "what was built anew and serves is as good as any other"


def test_an_engine_that_nobody_needs_is_kept_for_a_while_and_then_removed() -> None:
    made = world({**ON_L4, "gpu": {}}, CPU, keepUnused="1h")
    made.plan()
    build(made, "L4")
    build(made, None)
    name = engine(made, "L4")["job"]
    made.owner["spec"]["tiers"] = [CPU]
    made.children.pop(("Deployment", "hello-gpu-l4"), None)
    plan = made.plan(SECOND)
    assert engine(made, "L4")["state"] == "Unused"
    assert plan.requeue_after == pytest.approx(3600)
    assert name in made.jobs
    plan = made.plan(timedelta(hours=1))
    cleanup = next(child for child in plan.children if child.kind == "Job")
    assert cleanup.args == ("remove", name.split("-")[1])  # type: ignore[attr-defined]
    made.children["Job", cleanup.name]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    made.plan(SECOND)
    assert name not in made.jobs
    made.plan(SECOND)
    assert [e["key"] for e in made.owner["status"]["engines"]] == [engine(made, None)["key"]]


def test_models_are_fetched_before_engines_are_built_and_secrets_are_only_named() -> None:
    hub = {"repo": "FunAudioLLM/Fun-CosyVoice3-0.5B-2512", "revision": "29e01c4"}
    spec = resource(tiers=[{"name": "gpu", "backend": "Triton", "gpu": {}}])
    token = {"name": "hub", "key": "token"}
    spec["spec"]["model"] = {"family": "CosyVoice3", "source": {"huggingFace": {**hub, "tokenSecretRef": token}}}
    made = World(spec, nodes=[L4])
    plan = made.plan()
    assert next(child.kind for child in plan.children) == "PersistentVolumeClaim"
    fetch = plan.jobs[0].wanted
    assert fetch is not None
    assert fetch.env[-1] == {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": token}}
    assert "hub" not in str(fetch.env[-2])
    assert made.condition("EnginesReady")["reason"] == "FetchingModel"
    made.plan(SECOND)
    made.finish(plan.jobs[0].name, digest="sha256:" + "ab" * 32, path="models/abababababababab", bytes=7)
    made.plan(SECOND)
    assert made.owner["status"]["model"]["digest"] == "sha256:" + "ab" * 32
    assert engine(made, "L4")["state"] == "Queued"
    made.plan(SECOND)
    made.finish(engine(made, "L4")["job"])
    made.plan(SECOND)
    assert made.condition("EnginesReady")["status"] == "True"
    assert made.condition("Stalled")["reason"] == "UnsupportedSource"
    assert made.replicas() == {}


def test_the_same_spec_without_engines_gives_its_jobs_up() -> None:
    made = world(CPU)
    made.plan()
    build(made)
    del made.owner["spec"]["engines"]
    made.plan(SECOND)
    assert made.jobs == {}
    assert ENGINE_LABEL not in template(made, "hello-cpu")["metadata"]["labels"]


def test_another_cache_gets_its_own_build_and_pods_keep_the_old_one_until_then() -> None:
    made = world(CPU, cache={"size": "1Gi"})
    made.plan()
    build(made)
    first = engine(made)
    made.owner["spec"]["engines"]["cache"] = {"claimName": "shared"}
    plan = made.plan(SECOND)
    volume = next(v for v in template(made, "hello-cpu")["spec"]["volumes"] if v["name"] == "engine")
    assert volume["persistentVolumeClaim"]["claimName"] == "hello-engines"
    assert "hello-engines" in {ref.name for ref in plan.keep}, "pods still read from it"
    assert first["job"] not in made.jobs
    made.plan(SECOND)
    assert engine(made)["key"] == first["key"]
    assert engine(made)["job"] != first["job"]
    made.finish(engine(made)["job"])
    made.plan(SECOND)
    volume = next(v for v in template(made, "hello-cpu")["spec"]["volumes"] if v["name"] == "engine")
    assert volume["persistentVolumeClaim"]["claimName"] == "shared"
    assert "hello-engines" not in {ref.name for ref in made.plan(SECOND).keep}


def test_triton_gets_its_engine_too() -> None:
    made = world(GPU_THEN_CPU[0])
    made.plan()
    build(made, "L4")
    containers = template(made, "hello-gpu-l4")["spec"]["initContainers"]
    assert [container["name"] for container in containers] == ["verify", "triton"]
    assert {"name": "COSYVOICE_ENGINE_DIR", "value": "/engine"} in containers[1]["env"]


def machine(name: str, arch: str) -> dict[str, Any]:
    """Make a node without GPUs."""
    made = node(name)
    made["metadata"]["labels"] = {"kubernetes.io/arch": arch}
    return made


class TestWhatIsNotNeededAnyMore:
    def test_a_replaced_engine_is_kept_while_pods_run_it_and_removed_when_it_has_been_unused_for_long(self) -> None:
        made = world(CPU, keepUnused="1h")
        made.plan()
        build(made)
        old = engine(made)
        made.pods = [running("hello-cpu", "c0", ready=made.now)]
        made.pods[0]["metadata"]["labels"][ENGINE_LABEL] = old["key"]
        made.owner["spec"]["runtime"] = {"image": "cpu:2"}
        made.owner["spec"]["engines"]["builderImage"] = "builder:2"
        made.plan(SECOND)
        made.plan(SECOND)
        new = next(e for e in made.owner["status"]["engines"] if e["key"] != old["key"])
        made.finish(new["job"])
        made.plan(SECOND)
        entry = next(e for e in made.owner["status"]["engines"] if e["key"] == old["key"])
        assert (entry["state"], entry["reason"]) == ("Ready", "InUse")
        made.pods = []
        made.plan(SECOND)
        plan = made.plan(timedelta(hours=1))
        assert [child.args for child in plan.children if child.kind == "Job"] == [("remove", old["key"])]  # type: ignore[attr-defined]

    def test_the_engine_of_a_tier_that_serves_on_is_never_removed(self) -> None:
        made = world({**ON_L4, "gpu": {}}, CPU, keepUnused="1h")
        made.plan()
        build(made, "L4")
        key = engine(made, "L4")["key"]
        made.pods = [running("hello-gpu-l4", f"g{n}", ready=made.now) for n in range(2)]
        for pod in made.pods:
            pod["metadata"]["labels"][ENGINE_LABEL] = key
        made.owner["spec"]["tiers"] = [CPU]
        plan = made.plan(timedelta(hours=2))
        plan = made.plan(timedelta(hours=2))
        assert [child for child in plan.children if child.kind == "Job"] == []

    def test_caches_of_two_resources_are_cleaned_by_two_jobs(self) -> None:
        assert cleanup_job_name("0123", "a-engines") != cleanup_job_name("0123", "b-engines")

    def test_nothing_is_put_away_while_it_is_not_known_what_the_model_is(self) -> None:
        spec = resource(tiers=[{"name": "gpu", "backend": "Triton", "gpu": {}}])
        spec["spec"]["model"] = {"family": "CosyVoice3", "source": {"persistentVolumeClaim": {"claimName": "m"}}}
        spec["spec"]["engines"] = {**ENGINES, "keepUnused": "0s"}
        made = World(spec, nodes=[L4])
        plan = made.plan()
        fetch = plan.jobs[0].name
        made.finish(fetch, digest="sha256:" + "ab" * 32)
        made.plan(SECOND)
        made.plan(SECOND)
        made.finish(engine(made, "L4")["job"])
        made.plan(SECOND)
        del made.jobs[fetch]
        plan = made.plan(SECOND)
        assert [child for child in plan.children if child.kind == "Job"] == []


class TestFailures:
    def failed(self, **result: Any) -> World:
        made = world(CPU, resources={"limits": {"memory": "2Gi"}})
        made.plan()
        made.plan(SECOND)
        made.finish(engine(made)["job"], outcome="Failed", **result)
        made.plan(SECOND)
        assert engine(made)["state"] == "Failed"
        return made

    def test_what_the_message_asks_for_leads_to_another_try_and_only_one(self) -> None:
        made = self.failed(reason="OutOfMemory", message="Raise engines.resources.limits.memory.")
        made.owner["spec"]["engines"]["resources"] = {"limits": {"memory": "8Gi"}}
        assert [action.delete for action in made.plan(SECOND).jobs] == [True]
        made.job_pods = []
        made.plan(SECOND)
        made.plan(SECOND)
        made.finish(engine(made)["job"], outcome="Failed", reason="OutOfMemory", message="Still.")
        assert [action.delete for action in made.plan(SECOND).jobs] == [False]
        assert engine(made)["state"] == "Failed"

    def test_two_resources_that_share_a_job_try_their_own_settings_once_each(self) -> None:
        made = self.failed(reason="Timeout", message="Raise engines.timeout.")
        name = engine(made)["job"]
        made.jobs[name]["metadata"]["annotations"][ATTEMPT_ANNOTATION] = "that of another resource"
        assert [action.delete for action in made.plan(SECOND).jobs] == [False], "this one has had its try"

    def test_the_way_out_is_named(self) -> None:
        made = self.failed(reason="MissingFile", message="campplus.onnx is not there.")
        assert f"kubectl delete job {engine(made)['job']}" in made.condition("Stalled")["message"]

    def test_what_a_job_died_of_is_kept_when_its_pods_are_gone(self) -> None:
        made = world(CPU)
        made.plan()
        made.plan(SECOND)
        name = engine(made)["job"]
        made.finish(name, outcome="Failed")
        made.job_pods = [job_pod(name, {"terminated": {"exitCode": 137, "reason": "OOMKilled"}})]
        made.plan(SECOND)
        made.job_pods = []
        made.plan(SECOND)
        assert engine(made)["reason"] == "OutOfMemory"

    @pytest.mark.parametrize("figures", [{"seconds": "long"}, {"bytes": 1.5}, {"seconds": None}])
    def test_a_result_with_figures_that_are_none_stops_nothing(self, figures: dict[str, Any]) -> None:
        made = world(CPU)
        made.plan()
        made.plan(SECOND)
        made.finish(engine(made)["job"], **figures)
        made.plan(SECOND)
        assert engine(made)["state"] == "Ready"
        assert not figures.keys() & engine(made).keys()

    def test_an_engine_that_is_not_there_is_built_anew(self) -> None:
        made = world(CPU)
        made.plan()
        build(made)
        missing = 'failed to create subPath directory for volumeMount "engine" of container "verify"'
        pod = stuck("hello-cpu", "c0", "")
        waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": missing}}
        pod["status"]["initContainerStatuses"] = [
            {"name": "verify", "image": "cpu:1", "restartCount": 0, "state": waiting}
        ]
        pod["status"]["containerStatuses"] = []
        pod["metadata"]["labels"][ENGINE_LABEL] = engine(made)["key"]
        made.pods = [pod]
        assert [action.delete for action in made.plan(SECOND).jobs] == [False], "a volume takes a moment"
        assert [action.delete for action in made.plan(timedelta(minutes=2)).jobs] == [True]

    def test_a_job_that_ended_before_its_pod_is_heard_of_is_not_fetched_again(self) -> None:
        spec = resource(tiers=[{"name": "gpu", "backend": "Triton", "gpu": {}}])
        spec["spec"]["model"] = {"family": "CosyVoice3", "source": {"persistentVolumeClaim": {"claimName": "m"}}}
        made = World(spec, nodes=[L4])
        name = made.plan().jobs[0].name
        made.finish(name)
        made.job_pods = [job_pod(name, {"running": {"startedAt": "2026-01-01T12:00:00Z"}})]
        made.job_pods[0]["status"]["phase"] = "Running"
        assert [action.delete for action in made.plan(SECOND).jobs] == [False]
        made.job_pods = []
        assert [action.delete for action in made.plan(SECOND).jobs] == [True]


class TestArchitectures:
    def test_an_engine_for_cpus_is_built_where_it_runs(self) -> None:
        made = world(CPU)
        made.nodes = [machine("r0", "arm64"), machine("r1", "arm64"), machine("a0", "amd64")]
        wanted = made.plan().jobs[0].wanted
        assert wanted is not None
        assert wanted.node_selector == {"kubernetes.io/arch": "arm64"}

    def test_nodes_that_join_change_neither_the_engine_nor_where_pods_run(self) -> None:
        made = world(CPU)
        made.nodes = [machine("r0", "arm64")]
        made.plan()
        build(made)
        before = template(made, "hello-cpu")
        made.nodes += [machine(f"a{n}", "amd64") for n in range(3)]
        made.plan(SECOND)
        assert template(made, "hello-cpu") == before
        assert len(made.owner["status"]["engines"]) == 1


class TestRollouts:
    def test_image_settings_and_engine_of_a_pool_change_together(self) -> None:
        made = world(CPU)
        made.plan()
        build(made)
        before = template(made, "hello-cpu")
        made.owner["spec"]["engines"]["builderImage"] = "builder:2"
        made.owner["spec"]["runtime"] = {"image": "cpu:2"}
        made.owner["spec"]["replicas"] = 3
        made.plan(SECOND)
        assert template(made, "hello-cpu") == before
        assert made.replicas() == {"hello-cpu": 3}, "the number of pods follows at once"
        made.plan(SECOND)
        made.finish(next(e["job"] for e in made.owner["status"]["engines"] if e["state"] != "Ready"))
        made.plan(SECOND)
        assert template(made, "hello-cpu")["spec"]["containers"][0]["image"] == "cpu:2"

    def test_a_claim_stays_as_long_as_pods_of_any_version_read_from_it(self) -> None:
        made = world(CPU, cache={"size": "1Gi"})
        made.plan()
        build(made)
        made.pods = [running("hello-cpu", "c0", ready=made.now)]
        made.pods[0]["metadata"]["labels"][ENGINE_LABEL] = engine(made)["key"]
        del made.owner["spec"]["engines"]
        made.plan(SECOND)
        assert "hello-engines" in {ref.name for ref in made.plan(SECOND).keep}
        made.pods = []
        assert "hello-engines" not in {ref.name for ref in made.plan(SECOND).keep}


def test_a_job_that_kueue_queues_is_left_to_it() -> None:
    made = world(CPU)
    made.plan()
    made.jobs[engine(made)["job"]]["metadata"]["labels"][KUEUE_LABEL] = "team"
    assert [action.start for action in made.plan(SECOND).jobs] == [False]


def test_a_paused_resource_of_any_family_makes_nothing() -> None:
    spec = resource(tiers=[{"name": "gpu", "backend": "Triton", "gpu": {}}], paused=True)
    spec["spec"]["model"] = {"family": "CosyVoice3", "source": {"persistentVolumeClaim": {"claimName": "m"}}}
    plan = World(spec, nodes=[L4]).plan()
    assert (plan.jobs, plan.children) == ((), ())


def test_waiting_for_a_node_is_not_counted_as_building() -> None:
    made = world(CPU)
    made.plan()
    job = made.jobs[engine(made)["job"]]["spec"]
    assert "activeDeadlineSeconds" not in job
    assert job["template"]["spec"]["activeDeadlineSeconds"] > 3600
    rules = [rule.get("onExitCodes", {}).get("values") for rule in job["podFailurePolicy"]["rules"]]
    assert rules.index([143]) < rules.index([1]), "a pod that was stopped is tried again"
