"""Runtime pods as facts: the few things of a raw Pod that capacity is decided on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cosyvoice_operator.core.clock import parse_time
from cosyvoice_operator.core.naming import POOL_LABEL, REVISION_LABEL

GATEWAY = "gateway"
"""Name of the container that speaks to clients and to the operator, in every runtime pod."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A container that can't run, in the kubelet's words.

    Attributes:
        container: Its name.
        image: Its image.
        reason: CamelCase.
        message: The kubelet's explanation.
        last_words: What the container's last run left as its termination message, or at the end of its log.
        ended: When its last run ended; None when it never ran.
    """

    container: str
    image: str
    reason: str
    message: str
    last_words: str
    ended: datetime | None = None


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One runtime pod.

    Attributes:
        ready_since: When it became Ready; None while it isn't, or is going away.
        unschedulable: The scheduler's message while no node fits, else None.
        scheduled: Whether it has a node.
        waiting: The first container (init containers first) that waits for a reason other than starting up.
        restarts: Restarts of all containers together.
        created: When the API server accepted it.
        started: When its first container now running was started; None before.
        unready_since: When it was last ready; for a pod that never was, when it was first looked at. None while it is ready.
        leaving: Deleted, failed or finished: it never serves again.
        revision: Which pod template it was made from.
        report_key: Changes whenever the gateway process does, and once more when it becomes ready, so that an old report is
            never taken for a new process, nor that of a start for that of a running one.
    """

    name: str
    pool: str
    ip: str
    ready_since: datetime | None
    unschedulable: str | None
    scheduled: bool
    waiting: Waiting | None
    restarts: int
    created: datetime
    started: datetime | None
    unready_since: datetime | None
    leaving: bool
    revision: str
    report_key: str

    @property
    def uid(self) -> str:
        """Tells it from an earlier pod of the same name."""
        return self.report_key.partition("/")[0]

    @property
    def host(self) -> str:
        """Its address as it stands in a URL."""
        return f"[{self.ip}]" if ":" in self.ip else self.ip

    @property
    def pending(self) -> bool:
        """No node fits it now."""
        return not self.leaving and self.unschedulable is not None

    @property
    def loading_since(self) -> datetime | None:
        """When its time to become ready began: with its containers, and again when it stopped being ready after weeks of service."""
        return max(filter(None, (self.started, self.unready_since))) if self.started else None

    @property
    def starting(self) -> bool:
        """It has a node and isn't ready (yet, or any more)."""
        return not self.leaving and self.scheduled and self.ready_since is None


def parse_pod(pod: Mapping[str, Any]) -> PodFacts:
    """Read a raw Pod object."""
    meta, status = pod["metadata"], pod.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    leaving = bool(meta.get("deletionTimestamp")) or status.get("phase") in {"Failed", "Succeeded"}
    scheduled, ready = conditions.get("PodScheduled", {}), conditions.get("Ready", {})
    gateway_restarts = next((c.get("restartCount", 0) for c in containers if c["name"] == GATEWAY), 0)
    created = parse_time(meta["creationTimestamp"])
    # Not every kubelet dates its conditions (virtual ones don't): then the pod's own age is the nearest that is known.
    turned = parse_time(ready["lastTransitionTime"]) if ready.get("lastTransitionTime") else created
    ready_since = turned if ready.get("status") == "True" and not leaving else None
    return PodFacts(
        name=meta["name"],
        pool=(meta.get("labels") or {}).get(POOL_LABEL, ""),
        ip=status.get("podIP", ""),
        ready_since=ready_since,
        unschedulable=scheduled.get("message", "") if scheduled.get("reason") == "Unschedulable" else None,
        scheduled=bool((pod.get("spec") or {}).get("nodeName")),
        waiting=next(_waiting(containers), None),
        restarts=sum(c.get("restartCount", 0) for c in containers),
        created=created,
        started=min(_started(containers), default=None),
        unready_since=turned if ready.get("status") == "False" else None,
        leaving=leaving,
        revision=(meta.get("labels") or {}).get(REVISION_LABEL, ""),
        report_key=f"{meta['uid']}/{gateway_restarts}/{'ready' if ready_since else 'starting'}",
    )


def _waiting(containers: Iterable[Mapping[str, Any]]) -> Iterator[Waiting]:
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        # These two are what every healthy start passes through.
        if waiting.get("reason") not in {None, "ContainerCreating", "PodInitializing"}:
            last = (container.get("lastState") or {}).get("terminated") or {}
            yield Waiting(
                container=container["name"],
                image=container.get("image", ""),
                reason=waiting["reason"],
                message=waiting.get("message", ""),
                last_words=last.get("message", ""),
                ended=parse_time(last["finishedAt"]) if last.get("finishedAt") else None,
            )


def _started(containers: Iterable[Mapping[str, Any]]) -> Iterable[datetime]:
    return (parse_time(c["state"]["running"]["startedAt"]) for c in containers if (c.get("state") or {}).get("running"))
