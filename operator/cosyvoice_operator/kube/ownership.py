"""Whether our applies still own what they wrote.

Comparing values isn't enough: someone may add a key to a map that the API treats as one value (a Service's selector), and every value
that we want still stands there. But a field that another manager changed is no longer ours in ``managedFields``, whatever it changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cosyvoice_operator.core.model import Json

# Never in managedFields: they say which object it is.
_IDENTITY = {"apiVersion", "kind"}
_META_IDENTITY = {"name", "namespace", "uid", "resourceVersion"}


def owns(desired: Json, live: Json, manager: str) -> bool:
    """Tell whether ``manager`` owns, by server-side apply, every field of ``live`` that ``desired`` has."""
    fields = next(
        (
            entry.get("fieldsV1") or {}
            for entry in live["metadata"].get("managedFields") or ()
            if entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource")
        ),
        None,
    )
    if fields is None:
        return False
    body = {key: value for key, value in desired.items() if key not in _IDENTITY}
    body["metadata"] = {key: value for key, value in desired["metadata"].items() if key not in _META_IDENTITY}
    return _owns(fields, body)


def _owns(fields: Mapping[str, Any], value: Any) -> bool:  # noqa: ANN401 - any JSON value
    # Nothing below: the field is owned as a whole, be it a single value, or a map or list that is changed as one.
    if not fields or not value:
        return True
    if isinstance(value, dict):
        return all(f"f:{key}" in fields and _owns(fields[f"f:{key}"], item) for key, item in value.items())
    if isinstance(value, list):
        return all(any(_owns(below, item) for path, below in fields.items() if _names(path, item)) for item in value)
    return True


def _names(path: str, item: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Tell whether a path element stands for this item of a list. A key that the server filled in (a protocol) may be missing in it."""
    kind, _, rest = path.partition(":")
    if kind == "k" and isinstance(item, dict):
        return all(item.get(key, value) == value for key, value in json.loads(rest).items())
    return kind == "v" and json.loads(rest) == item
