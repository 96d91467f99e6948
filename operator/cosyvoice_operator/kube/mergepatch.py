"""Merge patches (RFC 7386) that really remove what is no longer wanted, at any depth."""

from __future__ import annotations

from cosyvoice_operator.core.model import Json


def merge_patch(live: Json | None, desired: Json) -> Json:
    """Give the patch that turns ``live`` into ``desired``.

    A merge patch leaves alone what it doesn't name, in nested objects too; what is to go must be named with null there as well. Lists are
    replaced as a whole.
    """
    live = live or {}
    patch: Json = {key: None for key in live if key not in desired}
    for key, value in desired.items():
        have = live.get(key)
        if isinstance(value, dict) and isinstance(have, dict):
            below = merge_patch(have, value)
            if below:
                patch[key] = below
        elif key not in live or have != value:
            patch[key] = value
    return patch
