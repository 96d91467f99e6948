"""Waits for what other programs do."""

from __future__ import annotations

import time
from collections.abc import Callable

from devcluster.api import ApiError
from devcluster.errors import ComponentFailedError

READY_WITHIN_SECONDS = 60.0


def wait_until(
    condition: Callable[[], bool], what: str, *, check: Callable[[], None], within: float = READY_WITHIN_SECONDS
) -> None:
    """Wait until something is true.

    Args:
        condition: Returns True when it is; connection errors and refusals count as False.
        what: Names it in the error.
        check: Raises when waiting has become pointless, for example because a process ended.
        within: Seconds to wait at most.

    Raises:
        ComponentFailedError: It was not true in time.
    """
    deadline = time.monotonic() + within
    last = "no answer"
    while True:
        check()
        try:
            if condition():
                return
        except (OSError, ApiError) as error:
            last = str(error)
        if time.monotonic() > deadline:
            raise ComponentFailedError(f"{what} not ready within {within:.0f} s: {last}")
        time.sleep(0.05)
