"""Errors as types, each with the fields that its message needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Invalid(Exception):  # noqa: N818 - named for what it says of the resource, as kstatus does
    """The spec can't be served until a person edits it.

    Attributes:
        reason: CamelCase reason for the Stalled condition.
        message: Names the field, what is wrong with it, and what to write instead.
    """

    reason: str
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Blocked:
    """A child that can't be written, and why; it becomes the Stalled condition.

    Attributes:
        reason: CamelCase reason, e.g. ``NameConflict``.
        message: Names the object in the way and the next step.
    """

    reason: str
    message: str
