"""What the API server can answer instead of doing what was asked, as types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    """The request that failed, in the words of an access rule.

    Attributes:
        verb: Verb as RBAC names it, e.g. ``patch``.
        resource: Plural with subresource and group, e.g. ``deployments.apps`` or ``cosyvoicedeployments/status.tts.cosyvoice.io``.
        namespace: Namespace; empty for what has none.
        name: Name; empty for collections.
    """

    verb: str
    resource: str
    namespace: str
    name: str

    def __str__(self) -> str:
        place = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.verb} {self.resource} {place}".rstrip()


class ApiError(Exception):
    """An answer other than success, or none.

    Attributes:
        call: The request.
        status: HTTP status; 0 when there was no answer.
        reason: The server's machine-readable reason, e.g. ``AlreadyExists``.
        message: The server's message.
        retry_after: Seconds to wait, where the server says so.
        causes: The ``reason`` of each cause that the server lists.
        fields: The field of each cause, where it is about one.
    """

    def __init__(
        self,
        call: Call,
        status: int,
        reason: str = "",
        message: str = "",
        *,
        retry_after: float | None = None,
        causes: tuple[Mapping[str, str], ...] = (),
    ) -> None:
        super().__init__(call, status, reason, message)
        self.call = call
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.causes = tuple(cause.get("reason", "") for cause in causes)
        self.fields = tuple(cause.get("field", "") for cause in causes)

    def __str__(self) -> str:
        return f"{self.call}: {self.status or 'no answer'} {self.reason}: {self.message}"


class NotFoundError(ApiError):
    """404: there is no such object, or no such kind."""


class ConflictError(ApiError):
    """409: the object exists already, or isn't the one that was meant."""


class GoneError(ApiError):
    """410: the continue token or the resource version is too old; list again."""


class ForbiddenError(ApiError):
    """403: RBAC, a quota or an admission plugin refuses; or the namespace is being deleted."""

    @property
    def terminating(self) -> bool:
        """Whether it is refused because its namespace goes away."""
        return "NamespaceTerminating" in self.causes


class InvalidError(ApiError):
    """400 or 422: the server understood and will never accept it."""


class TooManyRequestsError(ApiError):
    """429: come back later, after :attr:`ApiError.retry_after` seconds."""


class UnavailableError(ApiError):
    """5xx, a time-out or no connection: nothing is known of the outcome."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: InvalidError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: TooManyRequestsError,
}


def from_answer(call: Call, status: int, body: Mapping[str, Any], retry_after: str | None) -> ApiError:
    """Make the error for an answer.

    Args:
        call: The request.
        status: HTTP status.
        body: The ``Status`` object, or empty where a proxy answered.
        retry_after: The header of that name.
    """
    kind = _BY_STATUS.get(status, UnavailableError if status >= 500 else ApiError)
    details = body.get("details") or {}
    seconds = retry_after or details.get("retryAfterSeconds")
    return kind(
        call,
        status,
        body.get("reason", ""),
        body.get("message", ""),
        retry_after=float(seconds) if seconds is not None and str(seconds).replace(".", "", 1).isdigit() else None,
        causes=tuple(details.get("causes") or ()),
    )
