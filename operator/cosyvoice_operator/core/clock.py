"""Times as they stand in Kubernetes objects: RFC 3339, UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def parse_time(text: str) -> datetime:
    """Read an RFC 3339 time, with or without fractions of a second."""
    return datetime.fromisoformat(text).astimezone(UTC)


def format_time(moment: datetime) -> str:
    """Write whole seconds, as Kubernetes does for ``lastTransitionTime``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_precise_time(moment: datetime) -> str:
    """Write milliseconds: a failover that starts from this time must not fire up to a second early."""
    moment = moment.astimezone(UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
