"""Capacity down the tiers and back: how many pods each pool is asked for.

A pure function of what is seen, what was asked for before, and the time. Units are units of serving capacity; a pool turns them into
pods. Two different questions are kept apart, and most of the care is in not mixing them up:

- growing asks what is *expected*: a pool that lacks nothing counts for all it was asked for, one that has been short for
  ``after`` counts for its ready pods only;
- shrinking asks what has been *proved*: a lower pool gives up a unit only for one above it that has been ready for
  ``recover_after``, and only after it has itself served for ``minimum_dwell``.

So a move never takes a ready unit away before its replacement is ready, and a restart of the operator changes nothing: all memory is in
the arguments, and those come from the resource's status and from the pods' own times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from cosyvoice_operator.api.defaults import EffectiveFailover

PENDING_KEPT = 1
"""Pods left waiting in a pool that has run out: an autoscaler still sees the demand, and the return of a GPU is noticed."""


@dataclass(frozen=True, slots=True)
class PoolObservation:
    """One pool as it is now, in the order in which pools are tried.

    Attributes:
        pods_per_unit: Pods of this pool that make one unit.
        ready_since: For each ready pod, when it became ready.
        starting: Pods that have a node and aren't ready.
        desired: Pods that the previous plan asked for.
        active_since: When ``desired`` last rose from nothing; None while it is nothing.
        short_since: When the shortage that lasts now began; None without one.
        trims: Whether the shortage leaves pods waiting for a node, so that all but one of them are withdrawn.
        outgoing: Ready pods whose successor in a rollout waits for their GPU: they must make way, so they don't count as lasting.
    """

    pods_per_unit: int
    ready_since: tuple[datetime, ...] = ()
    starting: int = 0
    desired: int = 0
    active_since: datetime | None = None
    short_since: datetime | None = None
    trims: bool = False
    outgoing: int = 0

    def ready_units(self) -> int:
        """Whole units that are ready."""
        return len(self.ready_since) // self.pods_per_unit

    def proved_units(self, before: datetime) -> int:
        """Whole units whose pods have all been ready since ``before`` at the latest."""
        return sum(since <= before for since in self.ready_since) // self.pods_per_unit

    def lasting_units(self) -> int:
        """Whole units that are ready and need not make way."""
        return (len(self.ready_since) - self.outgoing) // self.pods_per_unit

    def held_units(self) -> int:
        """Units that were asked for, counting a begun one as whole."""
        return -(-self.desired // self.pods_per_unit)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one pool is asked for.

    Attributes:
        asked_units: Units that this pool should serve.
        pods: Pods to run; fewer than the units need while the pool is short.
        active_since: See :class:`PoolObservation`.
        failed_over: Whether the shortage has lasted long enough for the pools below to take over.
    """

    asked_units: int
    pods: int
    active_since: datetime | None
    failed_over: bool


@dataclass(frozen=True, slots=True)
class Allocation:
    """One assignment for each pool, and when time alone may change them (None: never)."""

    pools: tuple[Assignment, ...]
    next_look: datetime | None


def allocate(units: int, pools: Sequence[PoolObservation], timing: EffectiveFailover, now: datetime) -> Allocation:
    """Share ``units`` out over ``pools``, first to last."""
    expected = units  # not yet covered, if every pool above keeps what it promises
    unproved = units  # not yet covered by pods above that have proved themselves
    assignments, looks = [], set[datetime]()
    above_failed_over = False
    for position, pool in enumerate(pools):
        target = max(0, expected)
        if position and pool.held_units() > target:
            target, look = _held(pool, target, unproved, units, timing, now)
            looks |= look
            looks |= {since + timing.recover_after for above in pools[:position] for since in above.ready_since}
        failed_over = False
        if pool.short_since is not None:
            looks.add(pool.short_since + timing.after)
            # The wait is for the units, not for each pool: those that were moved here have waited already.
            failed_over = above_failed_over or now >= pool.short_since + timing.after
            above_failed_over |= failed_over
        assignments.append(_assign(pool, target, failed_over=failed_over, now=now))
        expected -= min(pool.lasting_units(), target) if failed_over else target
        unproved -= min(pool.proved_units(now - timing.recover_after), target)
    return Allocation(tuple(assignments), _first_after(now, looks))


def _held(
    pool: PoolObservation, target: int, unproved: int, units: int, timing: EffectiveFailover, now: datetime
) -> tuple[int, set[datetime]]:
    """Say how much of a lower pool stays although the pools above are expected to cover it, and when to look again."""
    # A smaller spec.replicas is not a move: it applies at once.
    held = min(pool.held_units(), units)
    if held <= target:
        return target, set()
    dwell_ends = (pool.active_since or now) + timing.minimum_dwell
    if now < dwell_ends:
        return held, {dwell_ends}
    return max(target, min(held, max(0, unproved))), set()


def _assign(pool: PoolObservation, units: int, *, failed_over: bool, now: datetime) -> Assignment:
    pods = units * pool.pods_per_unit
    if failed_over and pool.trims:
        pods = min(pods, len(pool.ready_since) + pool.starting + PENDING_KEPT)
    active_since = (pool.active_since or now) if pods else None
    return Assignment(units, pods, active_since, failed_over)


def _first_after(now: datetime, moments: Iterable[datetime]) -> datetime | None:
    return min((moment for moment in moments if moment > now), default=None)
