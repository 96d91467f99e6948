"""Keeps of each object only what planning and comparing need: a thousand resources must fit into a small pod.

Nothing is changed in place; what Kopf holds stays as it came.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from cosyvoice_operator.core.model import Json
from cosyvoice_operator.core.naming import MANAGER

_POD_META = ("name", "namespace", "uid", "labels", "creationTimestamp", "deletionTimestamp", "ownerReferences")
_POD_SPEC = ("nodeName", "schedulingGates")
_POD_STATUS = (
    "conditions", "phase", "reason", "message", "podIP", "startTime", "initContainerStatuses", "containerStatuses",
)  # fmt: skip
_JOB_META = (
    "name", "namespace", "uid", "labels", "annotations", "ownerReferences", "creationTimestamp", "deletionTimestamp",
)  # fmt: skip
_CONTAINER = ("name", "image", "ready", "started", "restartCount", "state", "lastState")

# Only the status of these is read. The others change it without any meaning for us (a budget does with every pod).
_STATUS_READ = frozenset({"Deployment", "Job"})

_INTERNED = 64
"""Longest string that is looked for among those of other objects; longer ones are messages, and rarely the same."""

_REVISION = "deployment.kubernetes.io/revision"
"""Counted up by the Deployment controller with each rollout; it would look as if someone had edited the object."""


def trim_owner(obj: Json, known: Json) -> Json:
    """A CosyVoiceDeployment: all but ``managedFields``, which are as long as the rest.

    Args:
        obj: The object as it came.
        known: What was kept of its last version, parts of which are used again; empty for a new one.
    """
    return _share({**obj, "metadata": _without(obj["metadata"], ("managedFields", "resourceVersion"))}, known)


def trim_child(obj: Json, kind: str, known: Json) -> Json:
    """A child: of ``managedFields`` only the entry of our applies, which tells what we must give up. See :func:`trim_owner`."""
    meta = _without(obj["metadata"], ("resourceVersion",))
    if _REVISION in (meta.get("annotations") or {}):
        meta["annotations"] = _without(meta["annotations"], (_REVISION,))
    meta["managedFields"] = [
        _without(entry, ("time",))
        for entry in meta.get("managedFields") or ()
        if entry.get("manager") == MANAGER and entry.get("operation") == "Apply" and not entry.get("subresource")
    ]
    trimmed = {**obj, "kind": kind, "metadata": meta}
    if kind not in _STATUS_READ:
        trimmed.pop("status", None)
    return _share(trimmed, known)


def trim_pod(obj: Json, known: Json) -> Json:
    """A pod: where it is, how it is, and how its containers are. See :func:`trim_owner`."""
    status = _only(obj.get("status") or {}, _POD_STATUS)
    for field in ("initContainerStatuses", "containerStatuses"):
        if field in status:
            status[field] = [_only(container, _CONTAINER) for container in status[field]]
    if "conditions" in status:
        status["conditions"] = [_without(c, ("lastProbeTime", "observedGeneration")) for c in status["conditions"]]
    trimmed = {"metadata": _only(obj["metadata"], _POD_META), "spec": _only(obj["spec"], _POD_SPEC), "status": status}
    return _share(trimmed, known)


def trim_job(obj: Json, known: Json) -> Json:
    """A Job that several resources may share: whose it is, whether it may run, and how it ended. See :func:`trim_owner`."""
    status = _only(obj.get("status") or {}, ("conditions",))
    if "conditions" in status:
        status["conditions"] = [_without(c, ("lastProbeTime",)) for c in status["conditions"]]
    spec = _only(obj["spec"], ("suspend",))
    return _share({"metadata": _only(obj["metadata"], _JOB_META), "spec": spec, "status": status}, known)


def _only(mapping: Mapping[str, Any], keys: Iterable[str]) -> Json:
    return {key: mapping[key] for key in keys if key in mapping}


def _without(mapping: Mapping[str, Any], keys: Iterable[str]) -> Json:
    return {key: value for key, value in mapping.items() if key not in keys}


def _share(obj: Json, known: Json) -> Json:
    """Copy an object so that what is equal is one object: to what was known of it, and strings to those of all the others.

    Comparing is quick and copying isn't; most events change a part of the status and nothing else.
    """
    return {sys.intern(key): _shared_part(value, known.get(key)) for key, value in obj.items()}


def _shared_part(value: Any, known: Any) -> Any:  # noqa: ANN401 - any JSON value
    if known is not None and value == known:
        return known
    if isinstance(value, dict):
        below = known if isinstance(known, dict) else {}
        return {sys.intern(key): _shared_part(item, below.get(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_shared_part(item, None) for item in value]
    if type(value) is str and len(value) <= _INTERNED:
        return sys.intern(value)
    return value
