"""Builders of CosyVoiceDeployments, and the question to the real API server whether it takes one."""

from __future__ import annotations

import json
from typing import Any

from cosyvoice_operator import api
from devcluster import Cluster
from devcluster.api import ApiError

Json = dict[str, Any]

DEMO: Json = {"family": "Demo", "source": {"embedded": {"voice": "heart"}}}
ON_VOLUME: Json = {"persistentVolumeClaim": {"claimName": "models"}}
GPU_TIER: Json = {"name": "gpu", "backend": "Triton", "gpu": {}}
CPU_TIER: Json = {"name": "cpu", "backend": "ONNXRuntime"}

COLLECTION = f"/apis/{api.API_VERSION}/namespaces/default/{api.PLURAL}"


def resource(name: str = "hello", **spec: Any) -> Json:
    """A CosyVoiceDeployment; without more it is the smallest useful one."""
    return {
        "apiVersion": api.API_VERSION,
        "kind": api.KIND,
        "metadata": {"name": name},
        "spec": {"model": DEMO} | spec,
    }


def with_model(family: str, source: Json, **spec: Any) -> Json:
    """A CosyVoiceDeployment of another family, or from another source."""
    return resource(model={"family": family, "source": source}, **spec)


def with_source(source: Json) -> Json:
    """A CosyVoice3 from this source."""
    return with_model("CosyVoice3", source)


def with_tier(**tier: Any) -> Json:
    """A Demo whose only tier is a GPU tier with these changes; None takes a field away."""
    return resource(tiers=[{key: value for key, value in (GPU_TIER | tier).items() if value is not None}])


def with_runtime(**runtime: Any) -> Json:
    """A Demo with these runtime settings."""
    return resource(runtime=runtime)


def refusal(cluster: Cluster, candidate: Json) -> str:
    """What the API server says against an object; nothing when it takes it. The object is not stored."""
    try:
        cluster.api.request("POST", f"{COLLECTION}?dryRun=All&fieldValidation=Strict", candidate)
    except ApiError as error:
        return str(json.loads(str(error).split(f"{error.code} ", 1)[1])["message"])
    return ""
