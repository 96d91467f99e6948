"""The plan as a whole: one resource, what is around it, and what the operator would do and say."""

from __future__ import annotations

import pytest

from cosyvoice_operator.core.errors import Blocked
from cosyvoice_operator.core.plan import make_plan
from cosyvoice_operator.render import render
from tests.unit.operator.builders import (
    CONFIG,
    GPU_THEN_CPU,
    NO_GPU_LEFT,
    NOW,
    SECOND,
    World,
    gpu_world,
    node,
    pending,
    report,
    resource,
    running,
    serving_on_gpu,
    stuck,
)


def test_the_smallest_resource_becomes_one_cpu_pool_with_what_it_needs() -> None:
    world = World(resource())
    plan = world.plan()
    assert [(child.ref.kind, child.ref.name) for child in plan.children] == [
        ("ServiceAccount", "hello-runtime"),
        ("Service", "hello"),
        ("PodDisruptionBudget", "hello"),
        ("Deployment", "hello-cpu"),
    ]
    assert world.replicas() == {"hello-cpu": 1}
    assert plan.status["effective"]["failover"] == {"after": "2m", "recoverAfter": "5m", "minimumDwell": "10m"}


def test_each_child_belongs_to_the_resource_and_carries_no_label_that_argo_cd_tracks() -> None:
    for child in gpu_world().plan().children:
        meta = render(child)["metadata"]
        assert meta["ownerReferences"][0]["uid"] == "uid-hello"
        assert meta["ownerReferences"][0]["controller"] is True
        assert "app.kubernetes.io/instance" not in meta["labels"]


def test_a_plan_repeated_changes_nothing() -> None:
    world = serving_on_gpu()
    first = world.plan(SECOND)
    second = make_plan(world.snapshot(), CONFIG, world.now + SECOND)
    assert second.children == first.children
    assert second.status == first.status
    assert second.events == ()


def test_a_ready_resource_says_where_it_serves() -> None:
    status = serving_on_gpu().owner["status"]
    assert status["serving"] == {"units": 2, "readyUnits": 2, "summary": "2/2", "tier": "gpu", "gpu": "L4"}
    assert status["replicas"] == 2
    assert status["observedGeneration"] == 1


def test_a_gpu_taken_away_moves_its_unit_to_cpu_and_back_and_says_so() -> None:
    world = serving_on_gpu()
    world.pods[1] = pending("hello-gpu-l4", "g2")
    plan = world.plan(SECOND)
    assert world.pool("hello-gpu-l4")["state"] == "Exhausted"
    assert [event.reason for event in plan.events] == ["NotReady", "Exhausted"]
    assert plan.requeue_after == pytest.approx(10), "time alone ends the wait, so it must wake up by itself"
    assert world.condition("Reconciling")["reason"] == "MovingToLowerTier"

    plan = world.plan(10 * SECOND)
    assert world.replicas() == {"hello-gpu-l4": 2, "hello-cpu": 1}
    world.pods.append(running("hello-cpu", "c1", ready=world.now))
    plan = world.plan(SECOND)
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("FallbackActive")["status"] == "True"
    assert world.condition("CapacityAvailable")["status"] == "False"
    assert world.condition("Reconciling")["status"] == "False"
    assert world.owner["status"]["serving"]["tier"] == "mixed"
    assert "Ready" in [event.reason for event in plan.events]

    world.pods[1] = running("hello-gpu-l4", "g2", ready=world.now)
    world.plan(SECOND)
    assert world.replicas()["hello-cpu"] == 1, "the GPU has not proved itself"
    plan = world.plan(40 * SECOND)
    assert world.replicas() == {"hello-gpu-l4": 2, "hello-cpu": 0}
    world.pods.pop()
    plan = world.plan(SECOND)
    assert world.condition("FallbackActive")["status"] == "False"
    assert [event.reason for event in plan.events] == ["Recovered"]


def test_no_node_with_the_gpu_type_is_told_with_the_next_step_and_moves_to_cpu() -> None:
    world = gpu_world()
    world.nodes = [node("plain")]
    world.plan()
    assert world.pool("hello-gpu-l4")["state"] == "NoSuchGPU"
    assert "cosyvoice-operator gpus" in world.pool("hello-gpu-l4")["message"]
    plan = world.plan(11 * SECOND)
    assert world.replicas() == {"hello-gpu-l4": 1, "hello-cpu": 2}
    assert plan.requeue_after is None


def test_a_tier_over_all_gpu_types_without_any_goes_to_cpu_at_once() -> None:
    tiers = [{**GPU_THEN_CPU[0], "gpu": {}}, GPU_THEN_CPU[1]]
    world = World(resource(tiers=tiers))
    world.plan()
    assert world.replicas() == {"hello-cpu": 1}
    assert world.pool("hello-gpu")["state"] == "NoSuchGPU"


def test_a_missing_image_is_a_matter_for_a_person_and_never_a_reason_to_fall_back() -> None:
    world = gpu_world()
    world.plan()
    world.pods = [
        stuck("hello-gpu-l4", "g0", "ImagePullBackOff", 'Back-off pulling image "x": ErrImagePull: not found')
    ]
    plan = world.plan(300 * SECOND)
    assert world.condition("Stalled") | {"lastTransitionTime": ""} == {
        "type": "Stalled",
        "status": "True",
        "observedGeneration": 1,
        "lastTransitionTime": "",
        "reason": "Misconfigured",
        "message": "Container gateway of pod g0 can't get its image cpu:1: not found. Correct the image, or add a pull secret.",
    }
    assert world.replicas().get("hello-cpu", 0) == 0
    assert "Stalled" in [event.reason for event in plan.events]
    world.pods = [stuck("hello-gpu-l4", "g0", "ErrImagePull", "not found")]
    again = make_plan(world.snapshot(), CONFIG, world.now + SECOND)
    assert again.status == plan.status, "the kubelet's two words for it are one state"


def test_a_crashing_model_is_told_with_the_command_to_look_and_the_cpu_tier_steps_in() -> None:
    world = gpu_world(replicas=1)
    world.plan()
    world.pods = [stuck("hello-gpu-l4", "g0", "CrashLoopBackOff", restarts=3)]
    world.pods[0]["status"]["containerStatuses"][0]["lastState"] = {"terminated": {"message": "loading\nno voice x\n"}}
    world.plan(SECOND)
    assert world.pool("hello-gpu-l4")["state"] == "LoadFailed"
    assert (
        "(3 restarts): no voice x. See `kubectl logs g0 -c gateway --previous`" in world.condition("Stalled")["message"]
    )
    world.pods = [running("hello-gpu-l4", "g0", restarts=3)]
    world.plan(11 * SECOND)
    assert world.pool("hello-gpu-l4")["state"] == "LoadFailed", "it runs for a moment between two crashes"
    assert world.replicas()["hello-cpu"] == 1


def test_a_model_that_does_not_load_within_its_timeout_is_a_failed_load() -> None:
    world = gpu_world(replicas=1)
    world.plan()
    world.pods = [running("hello-gpu-l4", "g0", started=NOW)]
    plan = world.plan(SECOND)
    assert plan.requeue_after == pytest.approx(599)
    world.plan(601 * SECOND)
    assert world.pool("hello-gpu-l4")["reason"] == "LoadTimeout"


def test_a_gpu_pod_that_computes_on_cpu_does_not_count() -> None:
    world = gpu_world(replicas=1)
    world.owner["spec"]["tiers"] = [{**GPU_THEN_CPU[0], "executionProvider": "CUDA"}, GPU_THEN_CPU[1]]
    world.plan()
    world.pods = [running("hello-gpu-l4", "g0")]
    assert [probe.key for probe in world.plan(SECOND).probes] == ["uid-g0/0/starting"], "it can say why it is not ready"
    world.reports = {"uid-g0/0/starting": report(provider="CPU", ready=False)}
    world.plan(SECOND)
    assert world.condition("ProviderMismatch")["status"] == "True"
    assert world.condition("Ready")["status"] == "False"
    world.reports = {}  # a restarted operator has no reports yet
    world.plan(11 * SECOND)
    assert world.condition("ProviderMismatch")["status"] == "True"
    assert world.replicas()["hello-cpu"] == 1


def test_the_load_time_that_the_runtime_reports_reaches_status_and_survives_a_restart() -> None:
    world = World(resource())
    world.plan()
    world.pods = [running("hello-cpu", "c0", ready=NOW + 3 * SECOND)]
    plan = world.plan(5 * SECOND)
    assert [(probe.key, probe.url) for probe in plan.probes] == [("uid-c0/0/ready", "http://10.244.0.9:8080/status")]
    world.reports = {"uid-c0/0/ready": report(load_seconds=0.42)}
    plan = world.plan(SECOND)
    assert plan.probes == ()
    assert world.pool("hello-cpu")["modelLoad"] == {"seconds": 0.42, "podStartSeconds": 3.0, "slow": False}
    assert world.owner["status"]["serving"]["load"] == "0.4s"
    world.reports = {}
    assert make_plan(world.snapshot(), CONFIG, world.now + SECOND).status == plan.status


def test_a_load_over_its_budget_raises_a_condition_with_both_figures() -> None:
    world = World(resource(runtime={"loadBudget": "1s"}))
    world.plan()
    world.pods = [running("hello-cpu", "c0", ready=NOW)]
    world.reports = {"uid-c0/0/ready": report(load_seconds=2.5)}
    plan = world.plan(SECOND)
    assert world.condition("ModelLoadSlow")["status"] == "True"
    assert "2.5 s" in world.condition("ModelLoadSlow")["message"]
    assert "(1 s)" in world.condition("ModelLoadSlow")["message"]
    assert "ModelLoadSlow" in [event.reason for event in plan.events]


def test_a_renamed_tier_keeps_serving_until_its_successor_does() -> None:
    world = World(resource())
    world.plan()
    world.pods = [running("hello-cpu", "c0", ready=NOW)]
    world.plan(SECOND)
    world.owner["spec"]["tiers"] = [{"name": "small", "backend": "ONNXRuntime"}]
    plan = world.plan(SECOND)
    assert {ref.name for ref in plan.keep} == {"hello-cpu"}
    assert world.condition("Ready")["status"] == "True"
    world.pods.append(running("hello-small", "s0", ready=world.now))
    assert world.plan(SECOND).keep == frozenset()


def test_paused_leaves_every_child_as_it_is() -> None:
    world = serving_on_gpu()
    world.owner["spec"] |= {"paused": True, "replicas": 5}
    plan = world.plan(SECOND)
    assert plan.children == ()
    assert {ref.name for ref in plan.keep} == {name for _, name in world.children}
    assert world.condition("Reconciling")["reason"] == "Paused"


def test_zero_replicas_is_ready() -> None:
    world = World(resource(replicas=0))
    world.plan()
    assert world.condition("Ready")["reason"] == "ScaledToZero"


def test_a_family_that_this_version_can_not_serve_takes_nothing_away() -> None:
    world = serving_on_gpu()
    world.owner["spec"]["model"] = {
        "family": "CosyVoice3",
        "source": {"persistentVolumeClaim": {"claimName": "models"}},
    }
    world.owner["metadata"]["generation"] = 2
    plan = make_plan(world.snapshot(), CONFIG, world.now)
    conditions = {c["type"]: c for c in plan.status["conditions"]}
    assert conditions["Stalled"]["status"] == "True"
    assert "spec.model.family is CosyVoice3" in conditions["Stalled"]["message"]
    assert conditions["Ready"]["status"] == "True", "what serves goes on serving"
    assert plan.status["observedGeneration"] == 2
    assert {ref.name for ref in plan.keep} == {name for _, name in world.children}


def test_a_child_that_belongs_to_somebody_else_is_told() -> None:
    world = World(
        resource(), blocked=(Blocked("NameConflict", "Service tts/hello exists and belongs to nobody: rename it."),)
    )
    world.plan()
    assert world.condition("Stalled")["reason"] == "NameConflict"


def test_a_condition_moves_its_time_only_with_its_status() -> None:
    world = World(resource())
    world.plan()
    before = world.condition("Ready")["lastTransitionTime"]
    world.plan(60 * SECOND)
    assert world.condition("Ready")["lastTransitionTime"] == before
    world.pods = [running("hello-cpu", "c0", ready=world.now)]
    world.plan(SECOND)
    assert world.condition("Ready")["lastTransitionTime"] > before


def test_a_lone_gpu_pod_is_replaced_in_place_only_while_another_pool_serves() -> None:
    world = gpu_world(replicas=1)
    world.plan()
    strategy = lambda: world.children["Deployment", "hello-gpu-l4"]["spec"]["strategy"]["rollingUpdate"]  # noqa: E731
    assert strategy() == {"maxSurge": 1, "maxUnavailable": 0}
    world.pods = [pending("hello-gpu-l4", "g0", NO_GPU_LEFT), running("hello-cpu", "c0", ready=NOW)]
    world.plan(SECOND)
    assert strategy() == {"maxSurge": 0, "maxUnavailable": 1}


def test_a_node_of_another_gpu_type_that_joins_moves_nothing() -> None:
    world = World(resource(tiers=[{**GPU_THEN_CPU[0], "gpu": {}}, GPU_THEN_CPU[1]]), nodes=[node("n1", "NVIDIA-L4", 2)])
    world.plan()
    world.pods = [running("hello-gpu-l4", "g0", ready=NOW)]
    world.nodes.append(node("n2", "NVIDIA-A100-SXM4-80GB", 8))
    world.plan(3600 * SECOND)
    assert world.replicas() == {"hello-gpu-l4": 1}
