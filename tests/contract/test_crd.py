"""The custom resource definition as users meet it: explained, printed, scaled, and never written into."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cosyvoice_operator.api.base import Model
from cosyvoice_operator.api.quantity import parse_quantity
from cosyvoice_operator.api.status import (
    Condition,
    CosyVoiceDeploymentStatus,
    EffectiveEnginesStatus,
    EffectiveFailoverStatus,
    EffectiveStatus,
    EffectiveTierStatus,
    EngineStatus,
    ModelLoad,
    ModelStatus,
    PoolStatus,
    ServingStatus,
)
from cosyvoice_operator.crdgen.crd import custom_resource_definition
from devcluster import Cluster
from devcluster.api import MERGE_PATCH
from tests.cluster import apply, get, kubectl
from tests.contract.resources import COLLECTION, Json, resource

SINCE = "2026-01-02T03:04:05Z"

FULL_STATUS = CosyVoiceDeploymentStatus(
    observed_generation=1,
    replicas=3,
    selector="tts.cosyvoice.io/deployment=hello",
    url="http://hello.default.svc",
    serving=ServingStatus(units=3, ready_units=3, summary="3/3", tier="gpu", gpu="L4", load="3.2s"),
    pools=(
        PoolStatus(
            name="hello-gpu-l4",
            tier="gpu",
            gpu_type="L4",
            desired=3,
            ready=3,
            pending=1,
            state="Exhausted",
            reason="Unschedulable",
            message="Insufficient nvidia.com/gpu",
            since="2026-01-02T03:04:05.678Z",
            active_since=SINCE,
            engine_key="0123456789abcdef",
            model_load=ModelLoad(seconds=3.2, pod_start_seconds=4.75, slow=False),
            provider="CUDA",
        ),
    ),
    model=ModelStatus(
        family="Demo",
        source="embedded",
        digest="embedded:heart",
        path="models/0123456789abcdef",
        state="Ready",
        message="Fetched.",
        since=SINCE,
        bytes=3_000_000_000,
        attempt="0123456789abcdef",
    ),
    engines=(
        EngineStatus(
            key="0123456789abcdef",
            backend="ONNXRuntime",
            gpu_type="L4",
            state="Ready",
            reason="Complete",
            message="Job engine-0123456789abcdef has finished.",
            since=SINCE,
            job="engine-0123456789abcdef",
            seconds=3.5,
            bytes=5_000_000_000,
            rebuilds=1,
            attempt="0123456789abcdef",
        ),
    ),
    effective=EffectiveStatus(
        replicas=3,
        tiers=(
            EffectiveTierStatus(
                name="gpu",
                backend="Triton",
                image="triton:1",
                gateway_image="gateway:1",
                execution_provider="CUDA",
                replicas_per_unit=1,
                load_budget=timedelta(seconds=5),
            ),
        ),
        failover=EffectiveFailoverStatus(
            after=timedelta(minutes=2), recover_after=timedelta(minutes=5), minimum_dwell=timedelta(minutes=10)
        ),
        engines=EffectiveEnginesStatus(
            claim_name="hello-engines", timeout=timedelta(hours=1), keep_unused=timedelta(hours=24)
        ),
        streaming=True,
        load_timeout=timedelta(minutes=10),
        drain_timeout=timedelta(seconds=30),
        warmup_requests=2,
    ),
    conditions=(
        Condition(
            type="Ready",
            status="True",
            observed_generation=1,
            last_transition_time=SINCE,
            reason="AllUnitsReady",
            message="3 of 3 units are ready.",
        ),
        Condition(
            type="EnginesReady",
            status="True",
            observed_generation=1,
            last_transition_time=SINCE,
            reason="AllEnginesReady",
            message="All 1 engine(s) are built.",
        ),
        Condition(
            type="FallbackActive",
            status="False",
            observed_generation=1,
            last_transition_time=SINCE,
            reason="FirstTierServes",
            message="The first tier serves.",
        ),
    ),
)


@pytest.fixture
def stored(cluster: Cluster) -> Iterator[Json]:
    """The smallest resource, stored."""
    yield cluster.api.request("POST", COLLECTION, resource())
    cluster.api.request("DELETE", f"{COLLECTION}/hello")


def write_status(cluster: Cluster, status: CosyVoiceDeploymentStatus) -> Json:
    body = {"status": status.to_json()}
    written: Json = cluster.api.request("PATCH", f"{COLLECTION}/hello/status", body, content_type=MERGE_PATCH)
    return written


def test_the_crd_is_established_without_a_complaint_about_its_schema(cluster: Cluster) -> None:
    conditions = get(cluster, "crd", "cosyvoicedeployments.tts.cosyvoice.io")["status"]["conditions"]

    assert {c["type"]: c["status"] for c in conditions} == {"NamesAccepted": "True", "Established": "True"}


def test_the_crd_is_small_enough_for_client_side_apply(cluster: Cluster) -> None:
    kubectl(cluster, "apply", "--dry-run=server", "-f", "crds/tts.cosyvoice.io_cosyvoicedeployments.yaml")


def test_no_default_is_written_into_the_spec(stored: Json) -> None:
    assert stored["spec"] == resource()["spec"]


def test_the_schema_holds_no_default_anywhere() -> None:
    assert [path for path, node in _nodes(custom_resource_definition()) if "default" in node] == []


def test_every_field_is_explained() -> None:
    schema = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    fields = [
        (f"{path}.{name}", field)
        for path, node in [*_nodes(schema["spec"], "spec"), *_nodes(schema["status"], "status")]
        if isinstance(node.get("properties"), dict)
        for name, field in node["properties"].items()
    ]

    assert [path for path, field in fields if not field.get("description")] == []


def test_kubectl_explains_a_field_by_short_name(cluster: Cluster, tmp_path: Path) -> None:
    # A cache of one's own: kubectl remembers for ten minutes what another server on the same port knew.
    explained = kubectl(cluster, "--cache-dir", str(tmp_path), "explain", "cvd.spec.failover")

    assert "How long a shortage must last before the next tiers take over. Left out: 2m." in " ".join(explained.split())


def test_a_status_with_every_field_comes_back_as_it_was_written(cluster: Cluster, stored: Json) -> None:
    returned = write_status(cluster, FULL_STATUS)

    assert returned["status"] == FULL_STATUS.to_json()
    assert CosyVoiceDeploymentStatus.model_validate(returned["status"]) == FULL_STATUS


def test_the_status_above_leaves_no_field_out() -> None:
    assert list(_unset(FULL_STATUS)) == []


def test_columns_answer_whether_it_serves_and_on_what(cluster: Cluster, stored: Json) -> None:
    write_status(cluster, FULL_STATUS)

    header, row = kubectl(cluster, "get", "cvd", "hello").splitlines()

    assert header.split() == ["NAME", "READY", "SERVING", "TIER", "GPU", "ENGINES", "LOAD", "AGE"]
    assert row.split()[:7] == ["hello", "True", "3/3", "gpu", "L4", "True", "3.2s"]


def test_wide_columns_say_why_it_is_not_on_the_first_tier(cluster: Cluster, stored: Json) -> None:
    write_status(cluster, FULL_STATUS)

    assert "The first tier serves." in kubectl(cluster, "get", "cvd", "hello", "-o", "wide")


@pytest.mark.parametrize("category", ["all", "ai"])
def test_it_is_found_by_category(cluster: Cluster, stored: Json, category: str) -> None:
    assert "cosyvoicedeployment.tts.cosyvoice.io/hello" in kubectl(cluster, "get", category, "-o", "name")


def test_kubectl_scales_it(cluster: Cluster, stored: Json) -> None:
    kubectl(cluster, "scale", "cvd/hello", "--replicas=5")

    assert get(cluster, "cvd", "hello")["spec"]["replicas"] == 5


def test_the_scale_subresource_tells_an_autoscaler_the_pods(cluster: Cluster, stored: Json) -> None:
    kubectl(cluster, "scale", "cvd/hello", "--replicas=3")
    write_status(cluster, FULL_STATUS)

    scale = cluster.api.request("GET", f"{COLLECTION}/hello/scale")

    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 3, "selector": "tts.cosyvoice.io/deployment=hello"}


def test_a_new_spec_counts_a_generation_and_a_new_status_does_not(cluster: Cluster, stored: Json) -> None:
    assert write_status(cluster, FULL_STATUS)["metadata"]["generation"] == 1

    apply(cluster, resource(replicas=2))

    assert get(cluster, "cvd", "hello")["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    "written",
    [
        "0",
        "1",
        "0.5",
        "1.5",
        "1000m",
        "1500m",
        "0.1",
        "100u",
        "1k",
        "1000",
        "1e3",
        "1500e-3",
        "12E2",
        "2M",
        "10E",
        "0.001k",
    ],
)
def test_cpu_is_written_as_the_api_server_stores_it(cluster: Cluster, written: str) -> None:
    assert _stored_quantity(cluster, "cpu", written) == str(parse_quantity(written))


@pytest.mark.parametrize(
    "written",
    [
        "1Gi",
        "1024Mi",
        "1.5Gi",
        "0.5Gi",
        "1000Mi",
        "2048Ki",
        "1023",
        "1024",
        "1000Ki",
        "0.5Ki",
        "1G",
        "1e9",
        "128974848",
        ".5Mi",
    ],
)
def test_memory_is_written_as_the_api_server_stores_it(cluster: Cluster, written: str) -> None:
    assert _stored_quantity(cluster, "memory", written) == str(parse_quantity(written))


def _stored_quantity(cluster: Cluster, name: str, written: str) -> Any:
    container = {"name": "c", "image": "i", "resources": {"limits": {name: written}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}
    answer = cluster.api.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod)
    return answer["spec"]["containers"][0]["resources"]["limits"][name]


def _nodes(node: Any, path: str = "") -> Iterator[tuple[str, Json]]:
    if isinstance(node, dict):
        yield path, node
        for name, value in node.items():
            yield from _nodes(value, f"{path}.{name}")
    elif isinstance(node, list):
        for position, value in enumerate(node):
            yield from _nodes(value, f"{path}[{position}]")


def _unset(model: Model, path: str = "status") -> Iterator[str]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if value is None:
            yield f"{path}.{name}"
        for position, child in enumerate(value if isinstance(value, tuple) else (value,)):
            if isinstance(child, Model):
                yield from _unset(child, f"{path}.{name}[{position}]")
