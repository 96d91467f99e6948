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


def pool_name(owner: str, tier: str, gpu_slug: str | None) -> str:
    """Name one tier on one GPU type: ``<owner>-<tier>[-<gpu slug>]``, at most 63 characters since it is a label value too."""
    name = "-".join(part for part in (owner, tier, gpu_slug) if part)
    if len(name) <= _LABEL_VALUE_LIMIT:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _LABEL_VALUE_LIMIT - 9].rstrip('-')}-{digest}"


def service_account_name(owner: str) -> str:
    """Name the ServiceAccount of the runtime pods."""
    return f"{owner}-runtime"
