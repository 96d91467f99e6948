"""Tolerations of our pods: the user's, and those that every pod of its kind needs."""

from __future__ import annotations

from collections.abc import Mapping

from cosyvoice_operator.api.pods import Scheduling

LOST_NODE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
LOST_NODE_SECONDS = 60
"""How long pods stay on a node that does not answer; they hold nothing that would be lost with them."""


def tolerations(scheduling: Scheduling, gpu: str | None) -> tuple[Mapping[str, object], ...]:
    """Give the tolerations of pods that need the extended resource ``gpu``, or none."""
    wanted = tuple(toleration.to_json() for toleration in scheduling.tolerations or ())
    named = {toleration.get("key") for toleration in wanted}
    # Left out, the API server writes five minutes: so long would the units of a dead node be missing before their pods are replaced.
    lost = tuple(
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LOST_NODE_SECONDS}
        for key in LOST_NODE_TAINTS
        if not named & {key, None}
    )
    # Clouds taint GPU nodes with the resource's name, so that only pods that need a GPU land there.
    own = ({"key": gpu, "operator": "Exists"},) if gpu else ()
    return (*wanted, *own, *lost)
