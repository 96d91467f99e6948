"""Names and labels of children. Deterministic, so that a restarted operator finds what it made."""

from __future__ import annotations

import hashlib

GROUP = "tts.cosyvoice.io"
MANAGER = "cosyvoice-operator"
"""Field manager of every server-side apply, and the value of ``app.kubernetes.io/managed-by``."""

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
DEPLOYMENT_LABEL = f"{GROUP}/deployment"
TIER_LABEL = f"{GROUP}/tier"
POOL_LABEL = f"{GROUP}/pool"
REVISION_LABEL = f"{GROUP}/revision"
"""On runtime pods and in the template that they are made from: tells pods of one version of the template from those of another."""

ENGINE_LABEL = f"{GROUP}/engine"
"""On Jobs that build an engine, on their pods, and on runtime pods that run it: its key."""
MODEL_LABEL = f"{GROUP}/model"
"""On Jobs that fetch a model, and on their pods."""
RESULT_ANNOTATION = f"{GROUP}/result"
"""On Jobs that have ended: what the program in them said last."""
ATTEMPT_ANNOTATION = f"{GROUP}/attempt"
"""On Jobs: digest of what they were made from beside what their name tells."""
KUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""On Jobs that Kueue starts and suspends."""
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
"""Written by Kubernetes on the pods of a Job."""

_LABEL_VALUE_LIMIT = 63


def common_labels(owner: str) -> dict[str, str]:
    """Give the labels of every child of ``owner``.

    ``app.kubernetes.io/instance`` is left out on purpose: Argo CD may use it to track what it applied itself, and would then prune our
    children.
    """
    return {
        "app.kubernetes.io/name": "cosyvoice",
        "app.kubernetes.io/component": "runtime",
        MANAGED_BY_LABEL: MANAGER,
        DEPLOYMENT_LABEL: owner,
    }


def shared_labels(component: str, label: str, value: str) -> dict[str, str]:
    """Give the labels of a Job that several resources may need, and of its pods."""
    return {
        "app.kubernetes.io/name": "cosyvoice",
        "app.kubernetes.io/component": component,
        MANAGED_BY_LABEL: MANAGER,
        label: value,
    }


def pool_name(owner: str, tier: str, gpu_slug: str | None) -> str:
    """Name one tier on one GPU type: ``<owner>-<tier>[-<gpu slug>]``, at most 63 characters since it is a label value too."""
    name = "-".join(part for part in (owner, tier, gpu_slug) if part)
    if len(name) <= _LABEL_VALUE_LIMIT:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _LABEL_VALUE_LIMIT - 9].rstrip('-')}-{digest}"


def engine_job_name(key: str, claim: str) -> str:
    """Name the Job that builds an engine: one for each key in a cache, whoever needs it."""
    return f"engine-{key}-{_short(claim)}"


def model_job_name(source: str, claim: str) -> str:
    """Name the Job that fetches a model into a cache; ``source`` is the digest of where it comes from."""
    return f"model-{source}-{_short(claim)}"


def cleanup_job_name(key: str, claim: str) -> str:
    """Name the Job that removes an engine from a cache."""
    return f"engine-cleanup-{key}-{_short(claim)}"


def cache_claim_name(owner: str) -> str:
    """Name the claim that the operator makes for models and engines."""
    return f"{owner}-engines"


def service_account_name(owner: str) -> str:
    """Name the ServiceAccount of the runtime pods."""
    return f"{owner}-runtime"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]
