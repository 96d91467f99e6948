"""Defaults: what the operator reads where the user wrote nothing."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_operator.api.defaults import EffectiveSpec, Images, effective, merge_resources
from cosyvoice_operator.api.pods import Resources
from cosyvoice_operator.api.quantity import parse_quantity
from cosyvoice_operator.api.spec import CosyVoiceDeploymentSpec

IMAGES = Images(cpu="cpu:1", gateway="gateway:1", triton="triton:1")
DEMO = {"family": "Demo", "source": {"embedded": {"voice": "heart"}}}
COSYVOICE3 = {"family": "CosyVoice3", "source": {"persistentVolumeClaim": {"claimName": "models"}}}
GPU = {"name": "gpu", "backend": "Triton", "gpu": {}}
CPU = {"name": "cpu", "backend": "ONNXRuntime"}


def effective_of(**spec: Any) -> EffectiveSpec:
    return effective(CosyVoiceDeploymentSpec.model_validate({"model": DEMO} | spec), IMAGES)


def test_demo_runs_on_one_cpu_tier() -> None:
    (tier,) = effective_of().tiers

    assert (tier.name, tier.backend, tier.gpu, tier.execution_provider, tier.image) == (
        "cpu",
        "ONNXRuntime",
        None,
        "CPU",
        "cpu:1",
    )


def test_a_real_model_runs_on_every_gpu_type_and_then_on_cpu() -> None:
    gpu, cpu = effective_of(model=COSYVOICE3).tiers

    assert (gpu.name, gpu.backend, gpu.execution_provider, gpu.image) == ("gpu", "Triton", "CUDA", "triton:1")
    assert gpu.gpu is not None
    assert (gpu.gpu.products, gpu.gpu.resource, gpu.gpu.count) == ((), "nvidia.com/gpu", 1)
    assert (cpu.name, cpu.backend, cpu.gpu, cpu.pods_per_unit) == ("cpu", "ONNXRuntime", None, 2)


@pytest.mark.parametrize(
    ("model", "tiers", "pods_per_unit"),
    [
        (COSYVOICE3, [GPU, CPU], [1, 2]),
        (COSYVOICE3, [CPU], [1]),
        (COSYVOICE3, [CPU, GPU], [1, 1]),
        (COSYVOICE3, [GPU, CPU | {"replicasPerUnit": 3}], [1, 3]),
        (DEMO, [GPU, CPU], [1, 1]),
    ],
)
def test_a_cpu_tier_below_a_gpu_tier_needs_two_pods_for_a_unit_but_for_demo(
    model: dict[str, Any], tiers: list[dict[str, Any]], pods_per_unit: list[int]
) -> None:
    assert [tier.pods_per_unit for tier in effective_of(model=model, tiers=tiers).tiers] == pods_per_unit


def test_times_have_defaults() -> None:
    spec = effective_of()

    assert spec.replicas == 1
    assert spec.failover.after == timedelta(minutes=2)
    assert spec.failover.recover_after == timedelta(minutes=5)
    assert spec.failover.minimum_dwell == timedelta(minutes=10)
    assert spec.runtime.load_timeout == timedelta(minutes=10)
    assert spec.runtime.drain_timeout == timedelta(seconds=30)
    assert spec.runtime.warmup_requests == 2


def test_zero_is_no_missing_value() -> None:
    spec = effective_of(
        replicas=0, failover={"after": "0s"}, runtime={"warmupRequests": 0, "drainTimeout": "0s", "loadBudget": "0s"}
    )

    assert (spec.replicas, spec.runtime.warmup_requests) == (0, 0)
    assert spec.failover.after == spec.runtime.drain_timeout == spec.tiers[0].load_budget == timedelta(0)


def test_the_load_budget_follows_what_has_to_be_loaded() -> None:
    gpu, cpu = effective_of(model=COSYVOICE3).tiers
    demo_gpu = effective_of(tiers=[GPU]).tiers[0]

    assert (gpu.load_budget, cpu.load_budget, demo_gpu.load_budget) == (
        timedelta(minutes=1),
        timedelta(seconds=5),
        timedelta(seconds=5),
    )


def test_only_unet_does_not_stream() -> None:
    unet = effective_of(model=COSYVOICE3 | {"family": "CosyVoice2UNet"})

    assert effective_of().runtime.streaming
    assert not unet.runtime.streaming


def test_the_tiers_image_goes_before_the_runtimes_and_that_before_the_operators() -> None:
    spec = effective_of(tiers=[GPU | {"image": "own:1"}, CPU], runtime={"image": "runtime:1"})

    assert [tier.image for tier in spec.tiers] == ["own:1", "runtime:1"]
    assert effective_of(tiers=[GPU, CPU]).tiers[0].image == "triton:1"


def test_gpus_are_in_requests_and_limits() -> None:
    tier = effective_of(tiers=[GPU | {"gpu": {"count": 2, "resourceName": "nvidia.com/gpu.shared"}}]).tiers[0]

    assert tier.resources.requests["nvidia.com/gpu.shared"] == tier.resources.limits["nvidia.com/gpu.shared"] == "2"


@pytest.mark.parametrize("model", [DEMO, COSYVOICE3])
def test_every_container_has_requests_and_limits_so_that_a_quota_accepts_it(model: dict[str, Any]) -> None:
    spec = effective_of(model=model, tiers=[GPU, CPU])

    for resources in (spec.runtime.gateway_resources, *(tier.resources for tier in spec.tiers)):
        assert {"cpu", "memory"} <= set(resources.requests) <= set(resources.limits)


def test_a_limit_below_the_default_request_lowers_the_request() -> None:
    wanted = Resources.model_validate({"limits": {"memory": "256Mi"}})

    merged = merge_resources(wanted, {"memory": parse_quantity("512Mi")}, {"memory": parse_quantity("1Gi")})

    assert merged.to_json() == {"requests": {"memory": "256Mi"}, "limits": {"memory": "256Mi"}}


@pytest.mark.parametrize(
    ("cpus", "requested", "limit"), [(None, "512Mi", "1Gi"), ("1500m", "512Mi", "1Gi"), (8, "1664Mi", "3328Mi")]
)
def test_memory_of_a_cpu_pod_grows_with_its_worker_processes(cpus: object, requested: str, limit: str) -> None:
    resources = {"limits": {"cpu": cpus}} if cpus else {}

    tier = effective_of(tiers=[CPU | {"resources": resources}]).tiers[0]

    assert (tier.resources.requests["memory"], tier.resources.limits["memory"]) == (requested, limit)


amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "example.com/x"]), st.integers(0, 64))


@given(amounts, amounts)
def test_merged_limits_never_fall_below_requests_and_keep_what_the_user_wrote(
    requests: dict[str, int], limits: dict[str, int]
) -> None:
    limits = {name: max(limit, requests.get(name, 0)) for name, limit in limits.items()}
    wanted = Resources.model_validate({"requests": requests, "limits": limits})

    merged = merge_resources(
        wanted, {"cpu": parse_quantity(1), "memory": parse_quantity(8)}, {"cpu": parse_quantity(4)}
    )

    assert {name: Decimal(merged.requests[name]) for name in requests} == requests
    assert {name: Decimal(merged.limits[name]) for name in limits} == limits
    for name in merged.requests.keys() & merged.limits.keys():
        assert parse_quantity(merged.requests[name]).value <= parse_quantity(merged.limits[name]).value


def test_the_effective_spec_stands_in_status() -> None:
    status = effective_of(tiers=[GPU, CPU], failover={"after": "90s"}).to_status().to_json()

    assert status["failover"] == {"after": "1m30s", "recoverAfter": "5m", "minimumDwell": "10m"}
    assert status["tiers"][0] == {
        "name": "gpu",
        "backend": "Triton",
        "image": "triton:1",
        "gatewayImage": "gateway:1",
        "executionProvider": "CUDA",
        "replicasPerUnit": 1,
        "loadBudget": "5s",
    }
    assert "gatewayImage" not in status["tiers"][1]


def test_nothing_is_left_open_in_an_effective_spec() -> None:
    spec = effective_of(engines={})

    assert spec.engines is not None
    for part in (spec, spec.failover, spec.runtime, spec.engines):
        assert [field.name for field in fields(part) if getattr(part, field.name) is None] == []


@pytest.mark.parametrize(
    ("family", "backend", "precision", "image"),
    [
        ("Demo", "ONNXRuntime", None, "cpu"),
        ("Demo", "ONNXRuntime", "FP32", "cpu"),
        ("Demo", "ONNXRuntime", "INT8", "builder"),
        ("Demo", "Triton", None, "cpu"),
        ("CosyVoice3", "Triton", None, "gpu-builder"),
        ("CosyVoice3", "ONNXRuntime", "FP16", "builder"),
    ],
)
def test_what_serves_builds_too_unless_that_takes_more(
    family: str, backend: str, precision: str | None, image: str
) -> None:
    tier = {"name": "t", "backend": backend, "gpu": {}, **({"precision": precision} if precision else {})}
    source = {"embedded": {"voice": "heart"}} if family == "Demo" else {"persistentVolumeClaim": {"claimName": "m"}}
    spec = CosyVoiceDeploymentSpec.model_validate({"model": {"family": family, "source": source}, "tiers": [tier]})
    images = Images("cpu", "gateway", "triton", fetch="fetch", builder="builder", gpu_builder="gpu-builder")
    assert effective(spec, images).tiers[0].builder_image == image
