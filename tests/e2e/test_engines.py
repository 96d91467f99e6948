"""Engines on a real node: a Job really builds one, pods really load it, and a damaged one is found and built anew."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devcluster.demo.target import OwnMachine
from tests.cluster import eventually
from tests.e2e.seen import condition, events, is_true

Apply = Callable[..., None]
Json = dict[str, Any]

SHARED = {"cache": {"claimName": "cache"}, "timeout": "5m"}


@pytest.fixture
def cache(target: OwnMachine, namespace: str) -> str:
    """A claim of the user's own."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "cache", "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    target.kubectl("apply", "-f", "-", stdin=json.dumps(claim))
    return "cache"


def listed(target: OwnMachine, namespace: str, kind: str, *selector: str) -> list[Json]:
    items: list[Json] = json.loads(target.kubectl("get", kind, "-n", namespace, "-o", "json", *selector))["items"]
    return items


def status(target: OwnMachine, namespace: str, name: str = "hello") -> Json:
    resource: Json = json.loads(target.kubectl("get", "cvd", name, "-n", namespace, "-o", "json"))
    return resource.get("status", {})


def said_by_the_gateway(target: OwnMachine, namespace: str) -> Json:
    with urllib.request.urlopen(f"{target.service_url(namespace, 'hello')}/status", timeout=10) as answer:
        said: Json = json.load(answer)
    return said


def folder(target: OwnMachine, namespace: str) -> Path:
    """Where the claim's files are on this machine."""
    claim = json.loads(target.kubectl("get", "pvc", "cache", "-n", namespace, "-o", "json"))
    volume = json.loads(target.kubectl("get", "pv", claim["spec"]["volumeName"], "-o", "json"))["spec"]
    return Path((volume.get("local") or volume["hostPath"])["path"])


def test_a_job_builds_the_engine_and_pods_serve_from_it(target: OwnMachine, namespace: str, speech: Apply) -> None:
    speech(engines={"cache": {"size": "1Gi"}, "timeout": "5m"})
    eventually(is_true(target, namespace, "Ready"), "Ready, from an engine", within=180)
    told = status(target, namespace)
    (engine,) = told["engines"]
    assert engine["state"] == "Ready"
    assert engine["bytes"] > 1_000_000
    assert condition(target, namespace, "EnginesReady")["status"] == "True"
    assert told["pools"][0]["engineKey"] == engine["key"]
    assert said_by_the_gateway(target, namespace)["engineKey"] == engine["key"]
    assert "EnginesReady" in events(target, namespace)
    (job,) = listed(target, namespace, "jobs")
    assert json.loads(job["metadata"]["annotations"]["tts.cosyvoice.io/result"])["accuracy"], "it was compared"


def test_triton_serves_from_an_engine(target: OwnMachine, namespace: str, speech: Apply) -> None:
    gpu = {
        "name": "gpu",
        "backend": "Triton",
        "gpu": {"products": [target.product]},
        "executionProvider": "CPU",
        "resources": {"requests": {"cpu": "250m", "memory": "768Mi"}, "limits": {"cpu": "1", "memory": "1536Mi"}},
    }
    speech(tiers=[gpu], engines={"cache": {"size": "1Gi"}, "timeout": "5m"})
    eventually(is_true(target, namespace, "Ready"), "Ready, on Triton", within=180)
    (engine,) = status(target, namespace)["engines"]
    said = said_by_the_gateway(target, namespace)
    assert (said["backend"], said["engineKey"]) == ("Triton", engine["key"])


def test_a_second_resource_on_the_same_cache_builds_nothing(
    target: OwnMachine, namespace: str, speech: Apply, cache: str
) -> None:
    speech(engines=SHARED)
    eventually(is_true(target, namespace, "EnginesReady"), "the first is built", within=180)
    twin = json.loads(target.kubectl("get", "cvd", "hello", "-n", namespace, "-o", "json"))
    twin["metadata"] = {"name": "twin", "namespace": namespace}
    target.kubectl("apply", "-f", "-", stdin=json.dumps({key: twin[key] for key in twin if key != "status"}))
    eventually(lambda: status(target, namespace, "twin").get("serving", {}).get("summary") == "1/1", "ready", within=90)
    (job,) = listed(target, namespace, "jobs")
    assert {ref["name"] for ref in job["metadata"]["ownerReferences"]} == {"hello", "twin"}
    target.kubectl("delete", "cvd", "hello", "-n", namespace, "--timeout=60s")
    assert listed(target, namespace, "jobs"), "the twin still needs it"
    target.kubectl("delete", "cvd", "twin", "-n", namespace, "--timeout=60s")
    eventually(lambda: not listed(target, namespace, "jobs"), "the Job goes with the last of them", within=60)


def test_a_damaged_engine_is_never_loaded_and_built_anew(
    target: OwnMachine, namespace: str, speech: Apply, cache: str
) -> None:
    speech(engines=SHARED)
    eventually(is_true(target, namespace, "Ready"), "Ready", within=180)
    (engine,) = status(target, namespace)["engines"]
    largest = max((folder(target, namespace) / "engines" / engine["key"]).rglob("*"), key=lambda p: p.stat().st_size)
    body = bytearray(largest.read_bytes())
    body[len(body) // 2] ^= 1
    largest.write_bytes(body)
    target.kubectl("delete", "pods", "-n", namespace, "-l", "tts.cosyvoice.io/pool=hello-cpu", "--wait=false")
    rebuilt = eventually(
        lambda: next((e for e in status(target, namespace)["engines"] if e.get("rebuilds")), None),
        "the operator hears of it and builds it anew",
        within=120,
    )
    assert rebuilt["key"] == engine["key"]
    eventually(
        lambda: (
            status(target, namespace)["serving"]["summary"] == "1/1"
            and condition(target, namespace, "Stalled")["status"] == "False"
        ),
        "it serves again, from a sound engine",
        within=240,
    )
    assert largest.read_bytes() != bytes(body)
