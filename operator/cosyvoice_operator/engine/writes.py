"""What one reconcile did, and what stood in its way."""

from __future__ import annotations

from collections.abc import Awaitable

from cosyvoice_operator.core.children import ObjectRef
from cosyvoice_operator.core.errors import Blocked
from cosyvoice_operator.core.model import Json
from cosyvoice_operator.engine.failures import blocked_by, name_conflict
from cosyvoice_operator.kube.errors import ApiError, ConflictError

DELETION_LOOK = 1.0
"""Seconds until an object that is being deleted is looked at again, should its last event be missed."""


class Writes:
    """Collects the outcome of one write after the other.

    Attributes:
        count: Writes that changed something.
        blocked: What a person must see to.
        retry: A conflict: something stored was old.
    """

    def __init__(self, blocked_retry: float) -> None:
        """Begin; ``blocked_retry`` is the seconds until what is blocked is tried again."""
        self.count = 0
        self.blocked: list[Blocked] = []
        self.retry: ApiError | None = None
        self._blocked_retry = blocked_retry
        self._look: float | None = None

    async def attempt(self, ref: ObjectRef, write: Awaitable[None]) -> None:
        """Await the writes of one object, and sort out what becomes of them.

        Raises:
            ApiError: Trying again is all there is to do.
        """
        try:
            await write
        except ConflictError as error:
            self.retry = error  # what is stored is old; the rest need not wait for it
        except ApiError as error:
            blocked = blocked_by(ref, error)
            if blocked is None:
                raise
            self.block(blocked)

    def block(self, blocked: Blocked) -> None:
        """Note what a person must see to."""
        self.blocked.append(blocked)
        self.look_again(self._blocked_retry)

    def refuse(self, ref: ObjectRef, live: Json, owner: Json) -> None:
        """Leave an object alone that isn't ours."""
        controller = next((r for r in live["metadata"].get("ownerReferences") or () if r.get("controller")), None)
        mine = (owner["kind"], owner["metadata"]["name"])
        if controller and (controller["kind"], controller["name"]) == mine:
            # Left by a resource of the same name that was deleted a moment ago; the garbage collector is on its way.
            self.look_again(DELETION_LOOK)
            return
        self.block(name_conflict(ref, f"{controller['kind']} {controller['name']}" if controller else None))

    def look_again(self, seconds: float) -> None:
        """Have the resource looked at again by then."""
        self._look = self.earliest(seconds)

    def earliest(self, other: float | None) -> float | None:
        """Give the seconds until the next look, which is at ``other`` at the latest; None for never."""
        return min((delay for delay in (self._look, other) if delay is not None), default=None)
