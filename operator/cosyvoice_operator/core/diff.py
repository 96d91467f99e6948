"""Whether a write is needed: the steady state must make none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cosyvoice_operator.core.model import Json


def needs_apply(desired: Json, live: Json | None, manager: str) -> bool:
    """Tell whether a server-side apply of ``desired`` would change ``live``.

    It would when a wanted value is missing or different, or when ``manager`` owns a field that is no longer wanted (an apply gives it
    up). Quantities must be written in canonical form, as the API server does (``1``, not ``1000m``).
    """
    if live is None or not _covers(desired, live):
        return True
    owned = next(
        (
            entry.get("fieldsV1") or {}
            for entry in live["metadata"].get("managedFields") or ()
            if entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource")
        ),
        None,
    )
    return owned is None or not _wanted(owned, desired)


def status_differs(live: Json | None, desired: Json) -> bool:
    """Tell whether the status must be patched. Keys that stand in ``live`` only are to be removed, so they count."""
    return (live or {}) != desired


def status_patch(live: Json | None, desired: Json) -> Json:
    """Give the JSON merge patch (RFC 7386) that turns ``live`` into ``desired``: keys to remove become null, at every depth."""
    patch: Json = {}
    for key in {**(live or {}), **desired}:
        have, want = (live or {}).get(key), desired.get(key)
        if have == want:
            continue
        patch[key] = status_patch(have, want) if isinstance(have, dict) and isinstance(want, dict) else want
    return patch


def _covers(desired: Any, live: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Tell whether every value of ``desired`` stands in ``live``; ``live`` may hold more (defaults, other managers' fields)."""
    if isinstance(desired, Mapping):
        return isinstance(live, Mapping) and all(
            key in live and _covers(value, live[key]) for key, value in desired.items()
        )
    if isinstance(desired, Sequence) and not isinstance(desired, str):
        return (
            isinstance(live, Sequence)
            and len(desired) == len(live)
            and all(_covers(want, have) for want, have in zip(desired, live, strict=True))
        )
    return bool(desired == live)


def _wanted(owned: Mapping[str, Any], desired: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Tell whether every field in ``owned`` (the fieldsV1 notation of managedFields) stands in ``desired``."""
    for path, below in owned.items():
        if path == ".":
            continue
        found, value = _lookup(path, desired)
        if not found or (below and not _wanted(below, value)):
            return False
    return True


def _lookup(path: str, desired: Any) -> tuple[bool, Any]:  # noqa: ANN401 - any JSON value
    kind, _, rest = path.partition(":")
    if kind == "f":
        return (
            isinstance(desired, Mapping) and rest in desired,
            desired.get(rest) if isinstance(desired, Mapping) else None,
        )
    if kind == "k":
        keys = json.loads(rest)
        matches = [item for item in desired or () if all(item.get(k) == v for k, v in keys.items())]
        return bool(matches), matches[0] if matches else None
    if kind == "v":
        return json.loads(rest) in (desired or ()), None
    return True, None  # an index ("i:"), which server-side apply doesn't write for our kinds
