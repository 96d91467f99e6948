"""Kubernetes Events: told once for each transition, however often its reconcile is repeated."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime

from cosyvoice_operator.core.model import EventParams, Json
from cosyvoice_operator.kube.client import KubeClient
from cosyvoice_operator.kube.errors import ConflictError
from cosyvoice_operator.kube.resources import EVENT

NOTE_LIMIT = 1024
"""Longest ``note`` that the API accepts, in bytes."""


class EventWriter:
    """Writes Events about a resource under names made from what they tell."""

    def __init__(self, client: KubeClient, instance: str, now: Callable[[], datetime]) -> None:
        self._client = client
        self._instance = instance
        self._now = now

    async def write(self, owner: Json, params: EventParams) -> None:
        """Tell ``params`` about ``owner``; that it has been told already is success."""
        body = event_body(owner, params, self._instance, self._now())
        try:
            await self._client.create(EVENT, body["metadata"]["namespace"], body)
        except ConflictError:
            return


def event_body(owner: Json, params: EventParams, instance: str, now: datetime) -> Json:
    """Make an ``events.k8s.io/v1`` Event.

    Args:
        owner: The raw resource that it is about.
        params: What it tells.
        instance: Name of this replica of the operator.
        now: When it happened.
    """
    meta = owner["metadata"]
    digest = hashlib.sha256(f"{meta['uid']}/{params.key}".encode()).hexdigest()[:16]
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": f"{meta['name']}.{digest}", "namespace": meta["namespace"]},
        "eventTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": "tts.cosyvoice.io/operator",
        "reportingInstance": instance[:128],
        "type": params.type,
        "reason": params.reason,
        "action": params.action,
        "note": _clip(params.message, NOTE_LIMIT),
        "regarding": {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
            "resourceVersion": meta.get("resourceVersion", ""),
        },
    }


def _clip(text: str, limit: int) -> str:
    raw = text.encode()
    return text if len(raw) <= limit else raw[: limit - 3].decode(errors="ignore") + "..."
