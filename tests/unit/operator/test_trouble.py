"""What goes wrong in production: crashes between writes, dead nodes, drains and rollouts in a shortage, GPU types that come and go."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cosyvoice_operator.core.clock import format_time
from cosyvoice_operator.core.errors import Invalid
from cosyvoice_operator.core.naming import REVISION_LABEL
from cosyvoice_operator.core.plan import stalled_plan
from tests.unit.operator.builders import (
    GPU_THEN_CPU,
    L4,
    NOW,
    QUICK,
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


def fallen_back() -> World:
    """One unit on GPU, one on CPU: another tenant has taken a GPU, and the wait is over."""
    world = serving_on_gpu()
    world.pods[1] = pending("hello-gpu-l4", "g2")
    world.plan(SECOND)
    world.plan(10 * SECOND)
    world.pods.append(running("hello-cpu", "c1", ready=world.now))
    world.plan(SECOND)
    assert world.replicas() == {"hello-gpu-l4": 2, "hello-cpu": 1}
    return world


def test_a_pod_that_waits_for_a_gpu_does_not_keep_nodes_from_being_drained() -> None:
    world = serving_on_gpu()
    budget = lambda: world.children["PodDisruptionBudget", "hello"]["spec"]["maxUnavailable"]  # noqa: E731
    world.pods[1] = pending("hello-gpu-l4", "g2")
    world.plan(SECOND)
    assert budget() == 1, "until another pool stands in for it, it is missing"
    world = fallen_back()
    assert budget() == 2, "the waiting pod, and one that a drain may take"
    world.pods[1] = running("hello-gpu-l4", "g2", ready=world.now)
    world.plan(SECOND)
    assert budget() == 1


def test_a_status_that_was_not_written_before_a_crash_takes_no_ready_unit_away() -> None:
    world = serving_on_gpu()
    world.pods[1] = pending("hello-gpu-l4", "g2")
    world.plan(SECOND)
    before = world.owner["status"]
    world.plan(10 * SECOND)
    assert world.replicas()["hello-cpu"] == 1
    world.owner["status"] = before  # killed between the Deployment and the status
    world.pods.append(running("hello-cpu", "c1", ready=world.now))
    world.pods[1] = running("hello-gpu-l4", "g2")  # a GPU is back, and its pod is only loading
    world.plan(15 * SECOND)
    assert world.replicas()["hello-cpu"] == 1


def test_pods_that_somebody_asked_for_by_hand_are_no_fallback() -> None:
    world = serving_on_gpu()
    world.children["Deployment", "hello-cpu"] = render_idle_cpu(world, replicas=3)
    world.plan(SECOND)
    assert world.replicas()["hello-cpu"] == 0


def render_idle_cpu(world: World, replicas: int) -> dict:
    """Make the Deployment of the CPU pool as `kubectl scale` would leave it."""
    raised = fallen_back().children["Deployment", "hello-cpu"]
    return {**raised, "spec": {**raised["spec"], "replicas": replicas}}


def test_one_pod_on_the_wrong_silicon_does_not_discredit_the_others() -> None:
    world = serving_on_gpu()
    world.reports = {"uid-g0/0/ready": report(), "uid-g1/0/ready": report(provider="CUDA")}
    world.plan(SECOND)
    assert world.condition("ProviderMismatch")["status"] == "True"
    assert world.owner["status"]["serving"]["summary"] == "1/2"
    world.plan(11 * SECOND)
    assert world.replicas()["hello-cpu"] == 1, "one unit is missing, not two"


def test_a_pod_that_stops_being_ready_for_a_moment_after_a_long_service_has_not_failed_to_load() -> None:
    world = serving_on_gpu()
    world.now += timedelta(days=3)
    world.pods[0] = running("hello-gpu-l4", "g0", started=NOW)
    world.pods[0]["status"]["conditions"][1]["lastTransitionTime"] = world.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    plan = world.plan(SECOND)
    assert world.pool("hello-gpu-l4")["state"] == "Starting"
    assert world.condition("Stalled")["status"] == "False"
    assert plan.requeue_after == pytest.approx(599)
    world.plan(601 * SECOND)
    assert world.pool("hello-gpu-l4")["reason"] == "LoadTimeout"


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "CreateContainerConfigError", "CrashLoopBackOff"])
def test_a_corrected_version_is_not_blamed_for_the_pods_that_it_replaces(reason: str) -> None:
    world = World(resource(tiers=[{"name": "cpu", "backend": "ONNXRuntime"}]))
    world.plan()
    world.pods = [stuck("hello-cpu", "first", reason, restarts=3)]
    world.plan(SECOND)
    assert world.condition("Stalled")["status"] == "True"
    world.owner["spec"]["runtime"] = {"image": "corrected:2"}
    world.plan(SECOND)
    world.plan(SECOND)
    assert world.condition("Stalled")["status"] == "False", (
        "the new version has no pod yet, so nothing is known against it"
    )
    world.pods.append(running("hello-cpu", "second"))
    world.plan(SECOND)
    assert world.condition("Stalled")["status"] == "False"
    world.pods[1] = stuck("hello-cpu", "second", reason, restarts=3)
    world.plan(SECOND)
    assert world.condition("Stalled")["status"] == "True"
    assert "pod second" in world.condition("Stalled")["message"]


def test_a_pod_of_the_old_version_that_is_made_again_hides_nothing_of_the_new_one() -> None:
    world = World(resource(tiers=[{"name": "cpu", "backend": "ONNXRuntime"}]))
    world.plan()
    world.pods = [running("hello-cpu", "good", ready=NOW)]
    world.plan(SECOND)
    world.owner["spec"]["runtime"] = {"image": "no-such-image:1"}
    world.plan(SECOND)
    world.pods.append(stuck("hello-cpu", "bad", "ImagePullBackOff"))
    world.plan(SECOND)
    again = running("hello-cpu", "good-again", ready=world.now)
    again["metadata"]["labels"][REVISION_LABEL] = world.pods[0]["metadata"]["labels"][REVISION_LABEL]
    again["metadata"]["creationTimestamp"] = format_time(world.now + SECOND)
    world.pods[0] = again
    world.plan(2 * SECOND)
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("Stalled")["status"] == "True"


def test_a_pause_does_not_restart_the_dwell() -> None:
    world = fallen_back()
    since = world.pool("hello-cpu")["activeSince"]
    world.owner["spec"]["paused"] = True
    world.plan(SECOND)
    assert world.pool("hello-cpu")["activeSince"] == since


def test_the_lone_pod_of_a_full_gpu_pool_is_replaced_once_cpu_stands_in() -> None:
    world = gpu_world(replicas=1)
    world.plan()
    world.pods = [running("hello-gpu-l4", "g0", ready=NOW)]
    world.plan(SECOND)
    successor = pending("hello-gpu-l4", "g1")
    successor["metadata"]["labels"]["tts.cosyvoice.io/revision"] = "second"
    world.pods.append(successor)
    world.plan(SECOND)
    world.plan(10 * SECOND)
    assert world.replicas() == {"hello-gpu-l4": 1, "hello-cpu": 1}
    world.pods.append(running("hello-cpu", "c0", ready=world.now))
    world.plan(SECOND)
    strategy = world.children["Deployment", "hello-gpu-l4"]["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 0, "maxUnavailable": 1}


def test_a_gpu_type_whose_last_node_went_away_keeps_a_pod_waiting_for_an_autoscaler() -> None:
    tiers = [{**GPU_THEN_CPU[0], "gpu": {}}, GPU_THEN_CPU[1]]
    world = World(resource(tiers=tiers, failover=QUICK), nodes=[L4])
    world.plan()
    world.pods = [running("hello-gpu-l4", "g0", ready=NOW)]
    world.plan(SECOND)
    world.nodes, world.pods = [], [pending("hello-gpu-l4", "g1")]
    world.plan(SECOND)
    world.plan(11 * SECOND)
    assert world.pool("hello-gpu-l4")["state"] == "NoSuchGPU"
    assert world.replicas() == {"hello-gpu-l4": 1, "hello-cpu": 1}
    world.nodes = [node("node-2", "NVIDIA-A10", 1)]
    world.pods = [
        pending("hello-gpu-l4", "g1"),
        running("hello-gpu-a10", "a0", ready=world.now),
        running("hello-cpu", "c0", ready=world.now),
    ]
    world.plan(SECOND)
    plan = world.plan(60 * SECOND)
    assert world.replicas() == {"hello-gpu-a10": 1, "hello-gpu-l4": 0, "hello-cpu": 0}
    world.pods = world.pods[1:2]
    world.plan(SECOND)
    plan = world.plan(SECOND)
    assert "hello-gpu-l4" not in {child.ref.name for child in plan.children}, "another type covers it: it is forgotten"


def test_a_cluster_without_any_gpu_is_told_without_naming_a_type() -> None:
    world = World(resource(tiers=[{**GPU_THEN_CPU[0], "gpu": {}}, GPU_THEN_CPU[1]]))
    world.plan()
    assert world.pool("hello-gpu")["message"].startswith("No node has a GPU (nvidia.com/gpu).")


def test_pods_leave_a_dead_node_after_a_minute_unless_the_resource_says_otherwise() -> None:
    def waits(world: World) -> dict[str, int | None]:
        world.plan()
        pods = world.children["Deployment", "hello-cpu"]["spec"]["template"]["spec"]
        return {t.get("key", "*"): t.get("tolerationSeconds") for t in pods["tolerations"]}

    assert waits(World(resource())) == {"node.kubernetes.io/not-ready": 60, "node.kubernetes.io/unreachable": 60}
    own = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 5, "effect": "NoExecute"}
    assert waits(World(resource(scheduling={"tolerations": [own]}))) == {
        "node.kubernetes.io/not-ready": 5,
        "node.kubernetes.io/unreachable": 60,
    }
    assert waits(World(resource(scheduling={"tolerations": [{"operator": "Exists"}]}))) == {"*": None}


def test_a_status_that_this_version_can_not_read_is_written_anew() -> None:
    world = serving_on_gpu()
    world.owner["status"] = {"conditions": "all well"}
    world.plan(SECOND)
    assert world.condition("Ready")["status"] == "True"
    world.owner["status"] = {"conditions": "all well"}
    stalled_plan(world.snapshot(), Invalid("InvalidSpec", "no"), world.now)


def test_the_gateway_is_given_its_time_budgets_in_a_form_that_it_takes() -> None:
    world = World(resource(runtime={"drainTimeout": "0s", "loadTimeout": "20m"}))
    world.plan()
    container = world.children["Deployment", "hello-cpu"]["spec"]["template"]["spec"]["containers"][0]
    env = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert env["COSYVOICE_LOAD_TIMEOUT"] == "1200"
    assert float(env["COSYVOICE_DRAIN_SECONDS"]) > 0


def test_a_retired_pool_says_how_to_free_the_gpus_that_its_successor_waits_for() -> None:
    world = serving_on_gpu()
    world.owner["spec"]["tiers"] = [{**GPU_THEN_CPU[0], "name": "fast"}]
    world.plan(SECOND)
    assert "delete Deployment hello-gpu-l4" in world.pool("hello-gpu-l4")["message"]


def test_a_spec_edit_in_a_shortage_reaches_the_gpu_pods_too() -> None:
    def unavailable(world: World) -> int:
        return world.children["Deployment", "hello-gpu-l4"]["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"]

    assert unavailable(serving_on_gpu()) == 1
    assert unavailable(fallen_back()) == 2, "the waiting pod is missing anyway; one more must be let go for its GPU"


def test_a_ready_pod_without_a_date_counts_from_its_creation() -> None:
    world = World(resource())
    world.plan()
    world.pods = [running("hello-cpu", "c0", ready=NOW)]
    world.pods[0]["status"]["conditions"][1]["lastTransitionTime"] = None
    world.plan(SECOND)
    assert world.condition("Ready")["status"] == "True"


def refuse_pods(world: World, message: str) -> None:
    """Let the Deployment say that its ReplicaSet could not make a pod."""
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    world.children["Deployment", "hello-gpu-l4"]["status"]["conditions"] = [failure]


def test_a_used_up_quota_is_a_shortage_and_the_next_tier_steps_in() -> None:
    world = gpu_world(replicas=1)
    world.plan()
    refuse_pods(
        world, 'pods "hello-gpu-l4-5f-x7" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1'
    )
    first = world.plan(SECOND)
    assert world.pool("hello-gpu-l4")["reason"] == "QuotaExceeded"
    refuse_pods(
        world, 'pods "hello-gpu-l4-5f-b2" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1'
    )
    assert world.plan(SECOND).status == first.status, "the name of the pod that was tried says nothing"
    refuse_pods(
        world, 'pods "hello-gpu-l4-5f-c3" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1'
    )
    world.plan(10 * SECOND)
    assert world.replicas()["hello-cpu"] == 1


def test_pods_that_an_admission_rule_refuses_are_a_matter_for_a_person() -> None:
    world = gpu_world(replicas=1)
    world.plan()
    refuse_pods(world, 'pods "hello-gpu-l4-5f-x7" is forbidden: no PriorityClass with name urgent was found')
    world.plan(SECOND)
    assert world.condition("Stalled")["status"] == "True"
    assert "no PriorityClass with name urgent was found" in world.condition("Stalled")["message"]
