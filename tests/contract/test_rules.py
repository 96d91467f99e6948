"""Each rule of the resource, with one object that keeps it and one that breaks it, before the real API server.

The models know the same rules, so that a file is judged alike with and without a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import ValidationError

from cosyvoice_operator.api.deployment import CosyVoiceDeployment
from cosyvoice_operator.crdgen.crd import custom_resource_definition
from devcluster import Cluster
from tests.contract.resources import (
    CPU_TIER,
    GPU_TIER,
    ON_VOLUME,
    Json,
    refusal,
    resource,
    with_model,
    with_runtime,
    with_source,
    with_tier,
)

SHA = "0" * 64


@dataclass(frozen=True)
class Case:
    """One rule: what keeps it, what breaks it, and a part of the words that refuse the latter."""

    rule: str
    accepted: Json
    refused: Json
    says: str


def hub(**fields: str) -> Json:
    return {"huggingFace": {"repo": "FunAudioLLM/Fun-CosyVoice3-0.5B-2512", "revision": "29e01c4"} | fields}


def limits(**amounts: Any) -> Json:
    return with_tier(resources={"limits": {key.replace("GPU", "nvidia.com/gpu"): v for key, v in amounts.items()}})


CASES = (
    # The resource
    Case("names leave room for those of children", resource("x" * 40), resource("x" * 41), "at most 40 characters"),
    Case("names fit a Service", resource("ab-1"), resource("a.b"), "becomes the name of a Service"),
    Case("names start with a letter", resource("a1"), resource("1a"), "becomes the name of a Service"),
    # The model
    Case(
        "families are known",
        with_model("CosyVoice2DiT", ON_VOLUME),
        with_model("CosyVoice1", ON_VOLUME),
        'supported values: "CosyVoice3", "CosyVoice2DiT", "CosyVoice2UNet", "Demo"',
    ),
    Case("a source is set", with_source(ON_VOLUME), with_source({}), "exactly one source is needed"),
    Case("one source only", with_source(ON_VOLUME), with_source(ON_VOLUME | hub()), "exactly one source is needed"),
    Case("Demo is embedded", resource(), with_model("Demo", ON_VOLUME), "family Demo speaks with the voice inside"),
    Case(
        "embedded is Demo",
        resource(),
        with_source({"embedded": {"voice": "heart"}}),
        "source embedded exists for family Demo only",
    ),
    Case(
        "voices are named",
        with_model("Demo", {"embedded": {"voice": "heart"}}),
        with_model("Demo", {"embedded": {"voice": "../Heart"}}),
        "voices are named in lower case",
    ),
    Case(
        "paths stay in the volume",
        with_source({"persistentVolumeClaim": {"claimName": "models", "path": "a/b..c"}}),
        with_source({"persistentVolumeClaim": {"claimName": "models", "path": "a/../../b"}}),
        "path is relative to the volume and stays inside it",
    ),
    Case(
        "claims are objects",
        with_source({"persistentVolumeClaim": {"claimName": "my.models"}}),
        with_source({"persistentVolumeClaim": {"claimName": "My models"}}),
        "this is no object name",
    ),
    Case(
        "hubs name an owner",
        with_source(hub()),
        with_source(hub(repo="CosyVoice3")),
        "write the repository as owner/name",
    ),
    Case(
        "revisions do not move",
        with_source(hub(revision="v1.0")),
        with_source(hub(revision="main")),
        "a branch that moves",
    ),
    Case(
        "revisions are words",
        with_source(hub()),
        with_source(hub(revision="a b")),
        "write the revision as a commit or tag",
    ),
    Case(
        "Hugging Face is pinned",
        with_source(hub()),
        with_source({"huggingFace": {"repo": "a/b"}}),
        "spec.model.source.huggingFace.revision: Required value",
    ),
    Case(
        "ModelScope is pinned",
        with_source({"modelScope": {"repo": "a/b", "revision": "v1"}}),
        with_source({"modelScope": {"repo": "a/b"}}),
        "spec.model.source.modelScope.revision: Required value",
    ),
    Case(
        "tokens have a key",
        with_source(
            hub() | {"huggingFace": hub()["huggingFace"] | {"tokenSecretRef": {"name": "hub", "key": "token"}}}
        ),
        with_source(
            hub() | {"huggingFace": hub()["huggingFace"] | {"tokenSecretRef": {"name": "hub", "key": "to ken"}}}
        ),
        "this is no key of a Secret or ConfigMap",
    ),
    Case(
        "buckets are names",
        with_source({"s3": {"bucket": "models", "prefix": "cosyvoice3/"}}),
        with_source({"s3": {"bucket": "s3://models"}}),
        "this is no bucket name",
    ),
    Case(
        "endpoints are addresses",
        with_source({"s3": {"bucket": "models", "endpoint": "http://minio:9000"}}),
        with_source({"s3": {"bucket": "models", "endpoint": "minio:9000"}}),
        "write the endpoint as https://",
    ),
    Case(
        "downloads are addresses",
        with_source({"http": {"url": "https://example.com/m.tar", "sha256": SHA}}),
        with_source({"http": {"url": "file:///m.tar", "sha256": SHA}}),
        "write the url of a file",
    ),
    Case(
        "downloads are checked",
        with_source({"http": {"url": "https://example.com/m.tar", "sha256": SHA}}),
        with_source({"http": {"url": "https://example.com/m.tar"}}),
        "spec.model.source.http.sha256: Required value",
    ),
    Case(
        "digests are hexadecimal",
        with_source({"http": {"url": "https://example.com/m.tar", "sha256": "ab" * 32}}),
        with_source({"http": {"url": "https://example.com/m.tar", "sha256": "AB" * 32}}),
        "sha256 is 64 hexadecimal digits",
    ),
    # How much, and in which way
    Case("replicas count", resource(replicas=0), resource(replicas=-1), "should be greater than or equal to 0"),
    Case(
        "replicas have an end",
        resource(replicas=10_000),
        resource(replicas=10_001),
        "should be less than or equal to 10000",
    ),
    Case("tiers are listed", resource(tiers=[CPU_TIER]), resource(tiers=[]), "should have at least 1 items"),
    Case(
        "tiers have names of their own",
        resource(tiers=[GPU_TIER, CPU_TIER]),
        resource(tiers=[CPU_TIER, CPU_TIER]),
        'Duplicate value: {"name":"cpu"}',
    ),
    Case(
        "tiers are DNS labels",
        with_tier(name="a-1"),
        with_tier(name="GPU_1"),
        "a tier's name becomes part of object names",
    ),
    Case("tiers have short names", with_tier(name="x" * 20), with_tier(name="x" * 21), "may not be more than 20 bytes"),
    Case(
        "Deployments of two tiers have two names",
        resource(tiers=[GPU_TIER, CPU_TIER | {"name": "gpus-l4"}]),
        resource(tiers=[GPU_TIER, CPU_TIER | {"name": "gpu-l4"}]),
        "a tier's name begins with the name of a GPU tier",
    ),
    Case("backends are known", with_tier(), with_tier(backend="vLLM"), 'supported values: "Triton", "ONNXRuntime"'),
    Case("Triton has a GPU", with_tier(), with_tier(gpu=None), "backend Triton needs a GPU"),
    Case(
        "CUDA has a GPU",
        with_tier(executionProvider="CUDA"),
        with_tier(backend="ONNXRuntime", gpu=None, executionProvider="CUDA"),
        "executionProvider CUDA needs a GPU",
    ),
    Case(
        "a unit has few pods", with_tier(replicasPerUnit=16), with_tier(replicasPerUnit=17), "less than or equal to 16"
    ),
    Case("a unit has a pod", with_tier(replicasPerUnit=1), with_tier(replicasPerUnit=0), "greater than or equal to 1"),
    Case("pods have GPUs", with_tier(gpu={"count": 1}), with_tier(gpu={"count": 0}), "greater than or equal to 1"),
    Case(
        "GPU types are label values",
        with_tier(gpu={"products": ["NVIDIA-L4", "NVIDIA-H100-80GB-HBM3"]}),
        with_tier(gpu={"products": ["NVIDIA L4"]}),
        "write the GPU type as in the node label",
    ),
    Case(
        "GPU types are listed once",
        with_tier(gpu={"products": ["NVIDIA-L4", "NVIDIA-L40S"]}),
        with_tier(gpu={"products": ["NVIDIA-L4", "NVIDIA-L4"]}),
        "Duplicate value",
    ),
    Case(
        "GPUs are extended resources",
        with_tier(gpu={"resourceName": "nvidia.com/mig-1g.5gb"}),
        with_tier(gpu={"resourceName": "gpu"}),
        "write an extended resource with its domain",
    ),
    # Resources
    Case(
        "limits cover requests",
        with_tier(resources={"requests": {"cpu": "1500m", "memory": "1Gi"}, "limits": {"cpu": 2, "memory": "1Gi"}}),
        with_tier(resources={"requests": {"memory": "1Gi"}, "limits": {"memory": "1000Mi"}}),
        "a limit is below its request",
    ),
    Case("quantities parse", limits(memory="1.5Gi", cpu=2), limits(memory="1.5 GB"), "this is no quantity"),
    Case("quantities are not negative", limits(cpu="0"), limits(cpu="-1"), "this is no quantity"),
    Case("GPU counts agree", limits(GPU=1), limits(GPU="2"), "resources name a GPU that differs from gpu"),
    Case(
        "GPU counts agree in requests",
        with_tier(gpu={"count": 2}, resources={"requests": {"nvidia.com/gpu": 2}}),
        with_tier(gpu={"count": 2}, resources={"requests": {"nvidia.com/gpu": 1}}),
        "resources name a GPU that differs from gpu",
    ),
    Case(
        "GPU names agree",
        with_tier(gpu={"resourceName": "nvidia.com/gpu.shared"}, resources={"limits": {"nvidia.com/gpu.shared": 1}}),
        with_tier(gpu={"resourceName": "nvidia.com/gpu.shared"}, resources={"limits": {"nvidia.com/gpu": 1}}),
        "resources name a GPU that differs from gpu",
    ),
    Case(
        "GPUs are asked for by gpu",
        with_tier(backend="ONNXRuntime", gpu=None, resources={"limits": {"example.com/fpga": 1}}),
        with_tier(backend="ONNXRuntime", gpu=None, resources={"limits": {"nvidia.com/gpu": 1}}),
        "resources ask for a GPU in a tier without gpu",
    ),
    Case(
        "the gateway's limits cover its requests",
        with_runtime(gatewayResources={"requests": {"cpu": "100m"}, "limits": {"cpu": "0.1"}}),
        with_runtime(gatewayResources={"requests": {"cpu": "101m"}, "limits": {"cpu": "0.1"}}),
        "a limit is below its request",
    ),
    # Failover
    Case(
        "durations parse",
        resource(failover={"after": "1h30m"}),
        resource(failover={"after": "2 min"}),
        "this is no duration",
    ),
    Case(
        "durations have units",
        resource(failover={"after": "0s"}),
        resource(failover={"after": "120"}),
        "this is no duration",
    ),
    Case(
        "durations are not negative",
        resource(failover={"minimumDwell": "500ms"}),
        resource(failover={"minimumDwell": "-5s"}),
        "this is no duration",
    ),
    # The runtime
    Case(
        "UNet does not stream",
        with_model("CosyVoice2UNet", ON_VOLUME, runtime={"streaming": False}),
        with_model("CosyVoice2UNet", ON_VOLUME, runtime={"streaming": True}),
        "CosyVoice2UNet falls silent after its first streamed request (CosyVoice issue 1866): set runtime.streaming: false",
    ),
    Case(
        "DiT streams",
        with_model("CosyVoice2DiT", ON_VOLUME, runtime={"streaming": True}),
        with_model("CosyVoice2DiT", ON_VOLUME, runtime={"streaming": False}),
        "CosyVoice2DiT only streams",
    ),
    Case(
        "images are references",
        with_runtime(gatewayImage="registry.example.com:5000/gateway@sha256:" + SHA),
        with_runtime(gatewayImage="gateway :1"),
        "this is no image reference",
    ),
    Case(
        "one image serves one backend",
        resource(tiers=[GPU_TIER | {"image": "triton:1"}, CPU_TIER], runtime={"image": "cpu:1"}),
        resource(tiers=[GPU_TIER, CPU_TIER], runtime={"image": "cpu:1"}),
        "runtime.image would be used for two backends",
    ),
    Case(
        "one image serves one backend of the tiers by default",
        with_runtime(image="cpu:1"),
        with_model("CosyVoice3", ON_VOLUME, runtime={"image": "cpu:1"}),
        "runtime.image would be used for two backends",
    ),
    Case(
        "loading has time",
        with_runtime(loadTimeout="1s"),
        with_runtime(loadTimeout="0s"),
        "loadTimeout must be at least 1s",
    ),
    Case(
        "the load budget is below the timeout",
        with_runtime(loadBudget="20m", loadTimeout="20m"),
        with_runtime(loadBudget="20m"),
        "loadBudget is above loadTimeout",
    ),
    Case(
        "drains end",
        with_runtime(drainTimeout="1h"),
        with_runtime(drainTimeout="61m"),
        "drainTimeout must be at most 1h",
    ),
    Case(
        "warm-ups end", with_runtime(warmupRequests=100), with_runtime(warmupRequests=101), "less than or equal to 100"
    ),
    Case(
        "variables are named",
        with_runtime(env=[{"name": "HTTP_PROXY", "value": ""}]),
        with_runtime(env=[{"name": "HTTP-PROXY", "value": ""}]),
        "names of variables consist of",
    ),
    Case(
        "variables of the operator stay its own",
        with_runtime(env=[{"name": "MY_COSYVOICE_TIER", "value": "x"}]),
        with_runtime(env=[{"name": "COSYVOICE_TIER", "value": "x"}]),
        "variables that start with COSYVOICE_ are set by the operator",
    ),
    Case(
        "variables have one value",
        with_runtime(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
        with_runtime(env=[{"name": "A"}]),
        "needs exactly one of value and valueFrom",
    ),
    Case(
        "variables come from one object",
        with_runtime(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "s", "key": "k"}}}]),
        with_runtime(env=[{"name": "A", "valueFrom": {}}]),
        "exactly one of secretKeyRef and configMapKeyRef is needed",
    ),
    # Placement
    Case(
        "tolerations are those of pods",
        resource(scheduling={"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]}),
        resource(scheduling={"tolerations": [{"key": "gpu", "operator": "In"}]}),
        'supported values: "Exists", "Equal"',
    ),
    # Engines
    Case(
        "a cache exists or is made",
        resource(engines={"cache": {"claimName": "cache"}}),
        resource(engines={"cache": {"claimName": "cache", "size": "1Gi"}}),
        "write exactly one of them",
    ),
    Case(
        "a cache that exists is taken as it is",
        resource(engines={"cache": {"size": "1Gi", "storageClassName": "fast", "accessModes": ["ReadWriteOnce"]}}),
        resource(engines={"cache": {"claimName": "cache", "accessModes": ["ReadWriteOnce"]}}),
        "leave them out beside claimName",
    ),
    Case(
        "access modes are those that a cache can have",
        resource(engines={"cache": {"size": "1Gi", "accessModes": ["ReadWriteMany", "ReadWriteOnce"]}}),
        resource(engines={"cache": {"size": "1Gi", "accessModes": ["ReadOnlyMany"]}}),
        "supported values",
    ),
    Case(
        "CPUs compute in few formats",
        resource(tiers=[CPU_TIER | {"precision": "INT8"}]),
        resource(tiers=[CPU_TIER | {"precision": "BF16"}]),
        "CPUs compute in FP32 or INT8",
    ),
    Case(
        "Triton has no INT8",
        with_tier(backend="Triton", precision="BF16"),
        with_tier(backend="Triton", precision="INT8"),
        "INT8 is for backend ONNXRuntime",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_a_resource_that_keeps_the_rule_is_accepted(cluster: Cluster, case: Case) -> None:
    assert refusal(cluster, case.accepted) == ""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_a_resource_that_breaks_the_rule_is_refused_in_helpful_words(cluster: Cluster, case: Case) -> None:
    assert case.says in refusal(cluster, case.refused)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_the_models_judge_as_the_api_server_does(case: Case) -> None:
    CosyVoiceDeployment.parse(case.accepted)
    with pytest.raises(ValidationError):
        CosyVoiceDeployment.parse(case.refused)


def test_a_misspelt_field_is_refused(cluster: Cluster) -> None:
    assert 'unknown field "spec.failover.afer"' in refusal(cluster, resource(failover={"afer": "2m"}))


def test_a_resource_without_spec_is_refused(cluster: Cluster) -> None:
    bare = resource()
    del bare["spec"]

    assert "spec: Required value" in refusal(cluster, bare)


def test_every_rule_of_the_crd_has_a_case() -> None:
    messages = set(_messages(custom_resource_definition()))

    assert {message for message in messages if not any(case.says in message for case in CASES)} == set()


def _messages(node: Any) -> Iterator[str]:
    """All messages of CEL rules below a node of the CRD."""
    if isinstance(node, dict):
        yield from (rule["message"] for rule in node.get("x-kubernetes-validations", ()))
        for value in node.values():
            yield from _messages(value)
    elif isinstance(node, list):
        for value in node:
            yield from _messages(value)
