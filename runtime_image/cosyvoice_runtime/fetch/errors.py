"""Why a fetch can fail: a closed list that the operator decides by, and texts that never show a secret."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path


class Reason(StrEnum):
    """What the operator decides by. `Internal` is everything that nobody has recognised yet."""

    DISK_FULL = "DiskFull"
    CHECKSUM_MISMATCH = "ChecksumMismatch"
    UNAUTHORIZED = "Unauthorized"
    NOT_FOUND = "NotFound"
    MISSING_FILE = "MissingFile"
    NETWORK = "Network"
    TIMEOUT = "Timeout"
    INTERNAL = "Internal"


class FetchError(Exception):
    """A fetch that cannot go on; the message names the object, the number and the next step.

    Args:
        reason: What the operator decides by.
        message: For people.
        transient: Whether the same request may succeed in a moment.
    """

    def __init__(self, reason: Reason, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.transient = transient


FAILED, AGAIN, STOPPED = 1, 75, 143
"""Exit statuses. A Job gives up after the first; after the others (what may pass, and SIGTERM) it tries again, and the fetch goes on."""


class Interrupted(BaseException):
    """The time is over, or the pod is being deleted. Like KeyboardInterrupt, so that no `except Exception` swallows it."""

    def __init__(self, error: FetchError, status: int) -> None:
        super().__init__(error.message)
        self.error = error
        self.status = status


_FULL = {errno.ENOSPC, errno.EDQUOT}


def disk_error(error: OSError, path: Path) -> FetchError:
    """What an error of the cache's file system means."""
    if error.errno in _FULL:
        return FetchError(
            Reason.DISK_FULL, f"the cache is full: {path.name} could not be written; enlarge the claim of the cache"
        )
    return FetchError(Reason.INTERNAL, f"{path}: {error.strerror or type(error).__name__}")


SECRETS = ("HF_TOKEN", "MODELSCOPE_API_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_URL = re.compile(r"(https?://)(?:[^\s/@]*@)?([^\s?#'\"]*)(?:[?#][^\s'\"]*)?")


def without_secrets(text: str, environment: Mapping[str, str]) -> str:
    """Take secrets out of a text: values of the variables that hold them, and what addresses carry beside host and path."""
    for value in {environment.get(name, "") for name in SECRETS}:
        if len(value) >= 4:
            text = text.replace(value, "***")
    return _URL.sub(r"\1\2", text)
