"""Which of two replicas works: the holder of a Lease, as client-go's leader election does it.

The clocks of two nodes are never compared: a lease has expired when *we* have seen it unchanged for its whole duration. A holder that
can't renew gives up well before that, so that two replicas never work at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from cosyvoice_operator.core.model import Json
from cosyvoice_operator.kube.client import KubeClient
from cosyvoice_operator.kube.errors import ApiError, ConflictError
from cosyvoice_operator.kube.resources import LEASE

logger = logging.getLogger(__name__)


class LeaseLostError(Exception):
    """Another replica may hold the lease by now: stop writing at once."""


@dataclass(frozen=True)
class LeaseTerms:
    """How a lease is held.

    Attributes:
        namespace, name: Where the Lease object is.
        identity: Name of this replica, unique among all that ever tried.
        duration: Seconds after which others may take a lease that wasn't renewed.
        renew_deadline: Seconds without a successful renewal after which the holder gives up; less than ``duration``.
        retry_period: Seconds between two attempts.
    """

    namespace: str
    name: str
    identity: str
    duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if not self.retry_period < self.renew_deadline < self.duration:
            raise ValueError("a lease needs retry period < renew deadline < duration, or it is lost without a fault")


class LeaseHolder:
    """Takes, keeps and gives back one Lease."""

    def __init__(
        self, client: KubeClient, terms: LeaseTerms, clock: Callable[[], float], now: Callable[[], datetime]
    ) -> None:
        """Make a candidate.

        Args:
            client: Used for nothing but the Lease.
            terms: How to hold it.
            clock: Monotonic seconds.
            now: Wall clock, only written for people to read.
        """
        self._client = client
        self._terms = terms
        self._clock = clock
        self._now = now
        self._seen: tuple[str, str] | None = None
        self._seen_at = 0.0
        self._lease: Json | None = None
        self._answered_at = clock()
        self._renewed_at: float | None = None

    @property
    def held(self) -> bool:
        """Whether this replica may write now."""
        return self._renewed_at is not None and self._clock() < self._renewed_at + self._terms.duration

    @property
    def silence(self) -> float:
        """Seconds since the API server last answered about the lease."""
        return self._clock() - self._answered_at

    async def acquire(self) -> None:
        """Wait until the lease is ours."""
        while not await self._attempt():  # noqa: ASYNC110 - another process gives it back: no event of ours can tell
            await asyncio.sleep(self._terms.retry_period)
        logger.info("holding the lease", extra={"lease": self._terms.name, "identity": self._terms.identity})

    async def keep(self) -> None:
        """Renew for ever.

        Raises:
            LeaseLostError: It could not be renewed in time, or another replica took it.
        """
        while True:
            await asyncio.sleep(self._terms.retry_period)
            renewed = False
            try:
                async with asyncio.timeout(self._left()):
                    renewed = await self._attempt()
            except TimeoutError:
                logger.warning("renewing the lease took too long")
            if not renewed and self._left() <= 0:
                raise LeaseLostError(
                    f"lease {self._terms.namespace}/{self._terms.name} was not renewed for {self._terms.renew_deadline:g} s"
                )

    async def release(self) -> None:
        """Give the lease back, so that the other replica need not wait for it to expire."""
        if not self.held or self._lease is None:
            return
        spec = {**self._lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._timestamp()}
        try:
            await self._client.replace(LEASE, self._terms.namespace, self._terms.name, {**self._lease, "spec": spec})
            logger.info("released the lease", extra={"lease": self._terms.name})
        except ApiError as error:
            logger.warning("could not release the lease; the other replica waits for it to expire: %s", error)
        self._renewed_at = None

    def _left(self) -> float:
        assert self._renewed_at is not None, "keep() comes after acquire()"
        return self._renewed_at + self._terms.renew_deadline - self._clock()

    async def _attempt(self) -> bool:
        """Try once to take or renew the lease, and say whether it is ours now."""
        # Before the request: what counts is that nobody else can have it until `duration` after this moment.
        started = self._clock()
        try:
            current = await self._client.find(LEASE, self._terms.namespace, self._terms.name)
            self._answered_at = self._clock()
            if current is None:
                self._lease = await self._client.create(LEASE, self._terms.namespace, self._fresh())
            elif self._may_take(current):
                self._lease = await self._client.replace(
                    LEASE, self._terms.namespace, self._terms.name, self._renewed(current)
                )
            else:
                return False
        except ConflictError:
            return False  # another replica was quicker
        except ApiError as error:
            logger.warning("could not read or write the lease: %s", error)
            return False
        self._renewed_at = started
        return True

    def _may_take(self, lease: Json) -> bool:
        spec = lease.get("spec") or {}
        holder, seen = spec.get("holderIdentity") or "", (spec.get("holderIdentity") or "", spec.get("renewTime") or "")
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock()
        if holder in {"", self._terms.identity}:
            return True
        return self._clock() >= self._seen_at + float(spec.get("leaseDurationSeconds") or self._terms.duration)

    def _fresh(self) -> Json:
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"name": self._terms.name, "namespace": self._terms.namespace},
            "spec": self._spec(acquired=self._timestamp(), transitions=0),
        }

    def _renewed(self, lease: Json) -> Json:
        """Give the whole lease with us as its holder; its resource version makes the write fail if anyone else wrote."""
        spec = lease.get("spec") or {}
        transitions = int(spec.get("leaseTransitions") or 0)
        if spec.get("holderIdentity") == self._terms.identity:
            return {**lease, "spec": self._spec(spec.get("acquireTime") or self._timestamp(), transitions)}
        return {**lease, "spec": self._spec(self._timestamp(), transitions + 1)}

    def _spec(self, acquired: str, transitions: int) -> Json:
        return {
            "holderIdentity": self._terms.identity,
            "leaseDurationSeconds": max(1, round(self._terms.duration)),
            "acquireTime": acquired,
            "renewTime": self._timestamp(),
            "leaseTransitions": transitions,
        }

    def _timestamp(self) -> str:
        return self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
