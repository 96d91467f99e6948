"""States of a pool from the texts that schedulers and kubelets really write."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cosyvoice_operator.core.classify import PoolFacts, PoolState, classify
from cosyvoice_operator.core.gpu import Supply
from cosyvoice_operator.core.pods import parse_pod
from tests.unit.operator.builders import NOW, pending, pod, running, stuck

GPU_POOL = PoolFacts(
    name="hello-gpu-l4",
    gpu_type="L4",
    resource="nvidia.com/gpu",
    supply=Supply(nodes=1, usable=1),
    pods=(),
    desired=1,
    load_timeout=timedelta(minutes=10),
    expected_provider="CUDA",
    provider=None,
    previous=None,
    now=NOW,
)


def judge(*pods: dict, **changes: object) -> tuple[str, str]:
    """Classify a GPU pool with these raw pods."""
    from dataclasses import replace

    finding = classify(replace(GPU_POOL, pods=tuple(parse_pod(raw) for raw in pods), **changes))  # type: ignore[arg-type]
    return finding.state, finding.reason


@pytest.mark.parametrize(
    ("message", "state"),
    [
        (
            "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available: 3 No preemption victims found.",
            "Exhausted",
        ),
        (
            "0/9 nodes are available: 1 Insufficient cpu, 1 Insufficient nvidia.com/gpu, 8 node(s) had untolerated taint {a: b}.",
            "Exhausted",
        ),
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.shared.", "Misconfigured"),
        (
            "0/3 nodes are available: 1 Insufficient memory, 2 node(s) didn't match Pod's node affinity/selector.",
            "Misconfigured",
        ),
        ("0/1 nodes are available: 1 node(s) had untolerated taint {team: other}.", "Misconfigured"),
        ("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.", "Misconfigured"),
        ("", "Misconfigured"),
    ],
)
def test_only_its_own_gpu_resource_exhausts_a_gpu_pool(message: str, state: str) -> None:
    assert judge(pending("hello-gpu-l4", "g0", message))[0] == state


def test_a_cpu_pool_is_exhausted_by_whatever_is_short() -> None:
    message = "0/3 nodes are available: 3 Insufficient memory."
    assert (
        judge(pending("hello-cpu", "c0", message), supply=None, gpu_type=None, resource="cpu")[0] == PoolState.EXHAUSTED
    )


def test_a_shortage_is_not_over_while_a_withdrawn_pod_is_being_replaced() -> None:
    unseen = pod("hello-gpu-l4", "g1")
    assert judge(unseen, previous=PoolState.EXHAUSTED)[0] == PoolState.EXHAUSTED
    assert judge(unseen, previous=PoolState.STARTING)[0] == PoolState.STARTING
    assert judge(running("hello-gpu-l4", "g1"), previous=PoolState.EXHAUSTED)[0] == PoolState.STARTING


def test_cordoned_nodes_with_ready_pods_on_them_are_no_shortage() -> None:
    cordoned = Supply(nodes=1, usable=0)
    assert judge(running("hello-gpu-l4", "g0", ready=NOW), supply=cordoned)[0] == PoolState.SERVING
    assert judge(pending("hello-gpu-l4", "g0"), supply=cordoned) == (PoolState.NO_SUCH_GPU, "NoUsableNode")


@pytest.mark.parametrize(
    "reason", ["ErrImagePull", "InvalidImageName", "CreateContainerConfigError", "RunContainerError"]
)
def test_a_container_that_can_not_start_is_misconfigured(reason: str) -> None:
    assert judge(stuck("hello-gpu-l4", "g0", reason, "why"))[0] == PoolState.MISCONFIGURED


def test_pods_that_are_going_away_say_nothing() -> None:
    leaving = stuck("hello-gpu-l4", "g0", "CrashLoopBackOff")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    assert judge(leaving, running("hello-gpu-l4", "g1", ready=NOW))[0] == PoolState.SERVING


def test_nothing_asked_and_nothing_there_is_idle() -> None:
    assert judge(desired=0)[0] == PoolState.IDLE
