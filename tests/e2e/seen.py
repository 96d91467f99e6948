"""What a user sees of a resource: its conditions and its events."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from devcluster.demo.target import OwnMachine


def condition(target: OwnMachine, namespace: str, name: str) -> dict[str, Any]:
    """Give one condition of `hello`, or nothing while there is none."""
    resource = json.loads(target.kubectl("get", "cvd", "hello", "-n", namespace, "-o", "json"))
    return next((c for c in resource.get("status", {}).get("conditions", []) if c["type"] == name), {})


def is_true(target: OwnMachine, namespace: str, name: str) -> Callable[[], dict[str, Any] | None]:
    """Make a probe that gives the condition once it is True."""
    return lambda: ((found := condition(target, namespace, name)).get("status") == "True" and found) or None


def events(target: OwnMachine, namespace: str) -> set[str]:
    """Give the reasons of the events about `hello`."""
    found = json.loads(
        target.kubectl(
            "get", "events", "-n", namespace, "-o", "json", "--field-selector=involvedObject.kind=CosyVoiceDeployment"
        )
    )
    return {event["reason"] for event in found["items"]}
