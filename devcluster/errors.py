"""The errors that a person is meant to read, so that the command line can print them without a traceback."""

from __future__ import annotations


class DevClusterError(Exception):
    """Something the caller can act on.

    Args:
        message: What is wrong, naming the object and the figure.
        hint: The next step, often a command to run.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}\n{hint}" if hint else message)
        self.message = message
        self.hint = hint


class NotRunningError(DevClusterError):
    """The cluster that was asked for does not run here."""


class ComponentFailedError(DevClusterError):
    """A component ended, or was not healthy in time; the message holds the end of its log."""


class MissingToolError(DevClusterError):
    """A program is missing and could not be installed."""
