"""The one place where an error becomes a decision: what a person must do, what is tried again, and when."""

from __future__ import annotations

from dataclasses import dataclass

from cosyvoice_operator.core.children import ObjectRef
from cosyvoice_operator.core.errors import Blocked
from cosyvoice_operator.kube.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    TooManyRequestsError,
    UnavailableError,
)
from cosyvoice_operator.kube.resources import PERSISTENT_VOLUME_CLAIM

TERMINATING_RETRY = 30.0
"""Seconds until a namespace that is being deleted is looked at again; with it, its resources go too."""


@dataclass(frozen=True)
class Retry:
    """Try again.

    Attributes:
        reason: Short, for logs and metrics.
        after: Seconds until then; None for the key's own growing delay.
        expected: Whether this happens in healthy clusters too, so that nobody need be told.
    """

    reason: str
    after: float | None = None
    expected: bool = False


def name_conflict(ref: ObjectRef, live_owner: str | None) -> Blocked:
    """Say that an object that isn't ours has the name of a child."""
    holder = f"is controlled by {live_owner}" if live_owner else "was not made by this operator"
    return Blocked(
        "NameConflict",
        f"{ref.kind} {ref.name} exists in namespace {ref.namespace} and {holder}; it is left alone. "
        "Rename this CosyVoiceDeployment, or delete that object if nothing needs it.",
    )


def blocked_by(ref: ObjectRef, error: ApiError) -> Blocked | None:
    """Say what a refused write of a child needs from a person; None when trying again is all there is to do."""
    if ref.kind == PERSISTENT_VOLUME_CLAIM.kind and _about_content(error):
        return Blocked(
            "ChildRefused",
            f"the API server refused PersistentVolumeClaim {ref.name}: {error.message}. A claim that exists can't be changed, but for "
            "its size where the storage class lets it grow: put engines.cache back as it was, or name another claim.",
        )
    if isinstance(error, ForbiddenError) and not error.terminating:
        if "exceeded quota" in error.message:
            return Blocked("QuotaExceeded", f"{ref.kind} {ref.name}: {error.message}. Raise the quota or ask for less.")
        return Blocked(
            "Forbidden",
            f"the operator may not {error.call.verb} {error.call.resource} in namespace {ref.namespace} for {ref.kind} {ref.name}: "
            f"{error.message}. Grant its ServiceAccount that verb.",
        )
    if isinstance(error, InvalidError):
        return Blocked("ChildRefused", f"the API server refused {ref.kind} {ref.name}: {error.message}")
    return None


def _about_content(error: ApiError) -> bool:
    """Tell whether an object was refused for what is in it. That a storage class can't grow comes as "forbidden"."""
    return isinstance(error, InvalidError) or (isinstance(error, ForbiddenError) and "resize" in error.message)


def retry_for(error: BaseException) -> Retry:
    """Say when to look at a resource again after ``error``."""
    match error:
        case TooManyRequestsError():
            retry = Retry("TooManyRequests", error.retry_after or 1.0, expected=True)
        case ConflictError():
            retry = Retry("Conflict", expected=True)
        case ForbiddenError() if error.terminating:
            retry = Retry("NamespaceTerminating", TERMINATING_RETRY, expected=True)
        case NotFoundError():
            retry = Retry("NotFound", expected=True)
        case UnavailableError():
            retry = Retry("Unavailable")
        case ApiError():
            retry = Retry(error.reason or f"HTTP{error.status}")
        case _:
            retry = Retry("Bug")
    return retry
