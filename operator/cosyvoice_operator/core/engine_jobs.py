"""Parameters of the Jobs that fetch models, build engines and remove them, and of the claim that holds both."""

from __future__ import annotations

import json
from collections.abc import Mapping

from cosyvoice_operator.api.defaults import EffectiveEngines, EffectiveResources, EffectiveSpec, EffectiveTier
from cosyvoice_operator.api.source import ModelSource
from cosyvoice_operator.core.children import ClaimParams, JobParams, MountParams, Owner
from cosyvoice_operator.core.engine_key import EngineFields
from cosyvoice_operator.core.model import Json
from cosyvoice_operator.core.naming import (
    DEPLOYMENT_LABEL,
    ENGINE_LABEL,
    MODEL_LABEL,
    cache_claim_name,
    cleanup_job_name,
    common_labels,
    engine_job_name,
    model_job_name,
    shared_labels,
)
from cosyvoice_operator.core.tolerations import tolerations

ARCH_LABEL = "kubernetes.io/arch"

CACHE, MODEL = "/cache", "/model"
"""Where Jobs find the cache, and a model that isn't in it."""

_CLEANUP_RESOURCES = EffectiveResources({"cpu": "50m", "memory": "64Mi"}, {"cpu": "500m", "memory": "256Mi"})


def claim(owner: Owner, engines: EffectiveEngines) -> ClaimParams | None:
    """Give the claim to make for models and engines; None where the user has named one."""
    cache = engines.cache
    if cache.claim_name:
        return None
    labels = common_labels(owner.name)
    name = cache_claim_name(owner.name)
    return ClaimParams(owner, name, labels, {}, cache.size, cache.storage_class_name, cache.access_modes)


def claim_name(owner: str, engines: EffectiveEngines) -> str:
    """Name the claim that holds models and engines."""
    return engines.cache.claim_name or cache_claim_name(owner)


def fetch_job(owner: Owner, spec: EffectiveSpec, engines: EffectiveEngines, digest: str) -> JobParams:
    """Fetch the model into the cache, or digest it where it is."""
    source = spec.model.source
    mount = _mount(source)
    request = {
        "version": 1,
        "family": spec.model.family.value,
        "source": public_source(source),
        "mounted": MODEL if mount else None,
    }
    name = model_job_name(digest, claim_name(owner.name, engines))
    return _job(
        owner,
        spec,
        engines,
        name=name,
        labels=shared_labels("model", MODEL_LABEL, digest),
        image=engines.fetch_image,
        args=("fetch",),
        env=(_variable("COSYVOICE_FETCH_REQUEST", _compact(request)), *_secrets(source)),
        resources=engines.fetch_resources,
        model=mount,
    )


def build_job(  # noqa: PLR0913, PLR0917 - the facts of one build
    owner: Owner,
    spec: EffectiveSpec,
    engines: EffectiveEngines,
    tier: EffectiveTier,
    fields: EngineFields,
    model_path: str | None,
    terms: tuple[Mapping[str, object], ...],
) -> JobParams:
    """Build one engine, on a node of exactly the type that it is for."""
    source = spec.model.source
    mount = _mount(source)
    target = fields.target
    request = {
        "version": 1,
        "key": fields.key,
        "backend": fields.backend,
        "family": fields.family,
        "model": {
            "digest": fields.model,
            "path": MODEL if mount else model_path,
            "voice": source.embedded.voice if source.embedded else None,
        },
        "target": {
            "arch": target.arch,
            "provider": target.provider,
            "gpuType": target.gpu_type,
            "computeCapability": target.compute_capability,
            "memoryMiB": target.memory_mib,
            "cpuLevel": "baseline",
        },
        "profile": {"precision": fields.precision} if fields.precision else {},
        "keyFields": fields.to_json(),
    }
    return _job(
        owner,
        spec,
        engines,
        name=engine_job_name(fields.key, claim_name(owner.name, engines)),
        labels=shared_labels("engine", ENGINE_LABEL, fields.key),
        image=tier.builder_image,
        args=("build",),
        env=(_variable("COSYVOICE_BUILD_REQUEST", _compact(request)),),
        resources=tier.build_resources,
        model=mount,
        terms=terms,
        gpu=tier.gpu.resource if tier.gpu else None,
        arch=None if target.gpu_type else target.arch,
    )


def cleanup_job(owner: Owner, spec: EffectiveSpec, engines: EffectiveEngines, key: str) -> JobParams:
    """Remove an engine from the cache that no pool has needed for long."""
    labels = common_labels(owner.name) | {"app.kubernetes.io/component": "cleanup"}
    return _job(
        owner,
        spec,
        engines,
        name=cleanup_job_name(key, claim_name(owner.name, engines)),
        labels=labels,
        image=spec.tiers[-1].builder_image,
        args=("remove", key),
        env=(),
        resources=_CLEANUP_RESOURCES,
        selector={DEPLOYMENT_LABEL: owner.name},
        shared=False,
    )


def public_source(source: ModelSource) -> Json:
    """Give the source without its secrets: what it is, not who may read it."""
    return {
        kind: {field: value for field, value in fields.items() if not field.endswith("SecretRef")}
        for kind, fields in source.to_json().items()
    }


def _mount(source: ModelSource) -> MountParams | None:
    if volume := source.persistent_volume_claim:
        return MountParams(claim_name=volume.claim_name, sub_path=(volume.path or "").strip("/"))
    if source.image:
        return MountParams(image=source.image.reference)
    return None


def _secrets(source: ModelSource) -> tuple[Mapping[str, object], ...]:
    """Refer to secrets by name: what is in them never passes through the operator."""
    for hub, variable in ((source.hugging_face, "HF_TOKEN"), (source.model_scope, "MODELSCOPE_API_TOKEN")):
        if hub and hub.token_secret_ref:
            return (_secret(variable, hub.token_secret_ref.name, hub.token_secret_ref.key),)
    if source.s3 and source.s3.credentials_secret_ref:
        name = source.s3.credentials_secret_ref.name
        return tuple(_secret(key, name, key) for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
    return ()


def _job(  # noqa: PLR0913 - parameters by name, each from another part of the spec
    owner: Owner,
    spec: EffectiveSpec,
    engines: EffectiveEngines,
    *,
    name: str,
    labels: Mapping[str, str],
    image: str,
    args: tuple[str, ...],
    env: tuple[Mapping[str, object], ...],
    resources: EffectiveResources,
    model: MountParams | None = None,
    terms: tuple[Mapping[str, object], ...] = (),
    gpu: str | None = None,
    arch: str | None = None,
    selector: Mapping[str, str] | None = None,
    shared: bool = True,
) -> JobParams:
    seconds = f"{engines.timeout.total_seconds():.15g}"
    return JobParams(
        owner=owner,
        name=name,
        labels=labels,
        selector=selector or {},
        image=image,
        args=args,
        env=(_variable("COSYVOICE_CACHE", CACHE), _variable("COSYVOICE_TIMEOUT", seconds), *env),
        resources=resources.to_json(),
        claim_name=claim_name(owner.name, engines),
        model=model,
        # The Job outlives the resource that made it where others need it too, so it can't have an identity of that one's.
        service_account="default",
        terms=terms,
        # Terms of a GPU type tell its architecture; an engine for CPUs must be built on its own, too.
        node_selector={**(spec.scheduling.node_selector or {}), **({ARCH_LABEL: arch} if arch else {})},
        tolerations=tolerations(spec.scheduling, gpu),
        pull_secrets=spec.runtime.image_pull_secrets,
        timeout=engines.timeout,
        shared=shared,
    )


def _variable(name: str, value: str) -> Mapping[str, object]:
    return {"name": name, "value": value}


def _secret(variable: str, name: str, key: str) -> Mapping[str, object]:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}


def _compact(request: Json) -> str:
    return json.dumps(request, sort_keys=True, separators=(",", ":"))
