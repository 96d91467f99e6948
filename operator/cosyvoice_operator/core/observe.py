"""From raw objects to one view for each pool: what is there, what state it is in, and since when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from cosyvoice_operator.api.defaults import EffectiveSpec
from cosyvoice_operator.api.status import ModelLoad, PoolStatus
from cosyvoice_operator.core.classify import SHORTAGES, TRIMMED, Finding, PoolFacts, PoolState, classify
from cosyvoice_operator.core.clock import parse_time
from cosyvoice_operator.core.engines import AS_IT_IS, PoolEngine
from cosyvoice_operator.core.failover import PoolObservation
from cosyvoice_operator.core.model import Json, RuntimeReport, Snapshot
from cosyvoice_operator.core.naming import POOL_LABEL, REVISION_LABEL, TIER_LABEL
from cosyvoice_operator.core.pods import PodFacts, parse_pod
from cosyvoice_operator.core.pools import Pool


@dataclass(frozen=True, slots=True)
class PoolView:
    """One pool as it is now.

    Attributes:
        pool: What the pool is.
        facts: What its state is decided on.
        reports: Pods with what they report; a pod without a report yet is missing here.
        deployment: The raw Deployment; None before it is made.
        previous: The pool in the previous status; None for a new one.
        engine: What it serves from.
    """

    pool: Pool
    facts: PoolFacts
    reports: tuple[tuple[PodFacts, RuntimeReport], ...]
    deployment: Json | None
    previous: PoolStatus | None
    engine: PoolEngine = AS_IT_IS

    @property
    def available(self) -> bool:
        """Whether it can be asked for pods: there is a place for them, and an engine. Without, its share goes straight to the next."""
        return not self.pool.placeless and not self.engine.waiting

    @property
    def ready(self) -> tuple[PodFacts, ...]:
        """Pods that count as ready: not those that compute on the wrong silicon."""
        if self.facts.provider_mismatch and not self.reports:
            return ()  # the last plan knew of such pods, and none has said yet that it isn't one
        wrong = {pod.name for pod, report in self.reports if report.provider != self.facts.expected_provider}
        return tuple(pod for pod in self.facts.live if pod.ready_since and pod.name not in wrong)

    @property
    def ready_units(self) -> int:
        """Whole units that are ready."""
        return len(self.ready) // self.pool.tier.pods_per_unit

    def judged(self, desired: int) -> tuple[Finding, datetime]:
        """Give the state for this number of wanted pods, and since when it lasts."""
        finding = classify(replace(self.facts, desired=desired))
        if self.previous is None or self.previous.since is None:
            return finding, self.facts.now
        before = self.previous.state
        # One shortage after another is one shortage: the wait before a failover doesn't start anew.
        same = finding.state == before or (finding.state in SHORTAGES and before in SHORTAGES)
        return finding, parse_time(self.previous.since) if same else self.facts.now

    def observation(self) -> PoolObservation:
        """Say it in the terms of :mod:`failover`."""
        finding, since = self.judged(self.facts.desired)
        active_since = self.previous.active_since if self.previous else None
        return PoolObservation(
            pods_per_unit=self.pool.tier.pods_per_unit,
            ready_since=tuple(pod.ready_since for pod in self.ready if pod.ready_since),
            starting=sum(pod.starting for pod in self.facts.live),
            desired=self.facts.desired,
            active_since=parse_time(active_since) if active_since else None,
            short_since=since if finding.state in SHORTAGES else None,
            # On a CPU pool the waiting pods stay: nothing below would replace them, and an autoscaler adds a node for each.
            trims=finding.state in TRIMMED and self.pool.supply is not None,
            outgoing=self._outgoing(),
        )

    def _outgoing(self) -> int:
        """Count ready pods that a rollout can't replace before they are gone: the lone pod of a full GPU pool.

        Pools of several pods give one up first, see :func:`rollout.surge`, so theirs are counted as they are.
        """
        if self.pool.supply is None or self.facts.desired != 1:
            return 0
        waiting = {pod.revision for pod in self.facts.live if pod.pending}
        return sum(bool(waiting - {pod.revision}) for pod in self.ready)

    def model_load(self) -> ModelLoad | None:
        """Give the slowest load among the pods that report, else what the last plan knew."""
        seconds = [r.load_seconds for pod, r in self.reports if pod.ready_since and r.load_seconds is not None]
        if not seconds:
            return self.previous.model_load if self.previous and self.facts.live else None
        starts = [
            (pod.ready_since - pod.started).total_seconds() for pod in self.ready if pod.ready_since and pod.started
        ]
        slowest = round(max(seconds), 2)
        known = self.previous.model_load.pod_start_seconds if self.previous and self.previous.model_load else None
        return ModelLoad(
            seconds=slowest,
            # A pod that was unready for a while looks as if it had started slowly; its first figure is the true one.
            pod_start_seconds=min((s for s in (known, max(starts, default=None)) if s is not None), default=None),
            slow=slowest > self.pool.tier.load_budget.total_seconds(),
        )


@dataclass(frozen=True, slots=True)
class RetiredPool:
    """A pool that the spec no longer has. It serves on until the others can.

    Attributes:
        deployment: The raw Deployment.
        tier: Name of its tier.
        ready_pods: Its ready pods.
    """

    deployment: Json
    tier: str
    ready_pods: int


def observe(
    snapshot: Snapshot,
    spec: EffectiveSpec,
    pools: Sequence[Pool],
    engines: Mapping[str, PoolEngine],
    previous: Mapping[str, PoolStatus],
    now: datetime,
) -> tuple[tuple[PoolView, ...], tuple[RetiredPool, ...]]:
    """Sort what the snapshot holds by pool: those of the spec, and those that it no longer has."""
    pods = [parse_pod(pod) for pod in sorted(snapshot.pods, key=lambda raw: str(raw["metadata"]["name"]))]
    owner = snapshot.owner["metadata"]["uid"]
    deployments = {
        child["metadata"]["name"]: child
        for child in snapshot.children
        if child["kind"] == "Deployment" and _owned(child, owner)
    }
    views = tuple(
        _view(
            pool,
            spec,
            [pod for pod in pods if pod.pool == pool.name],
            snapshot,
            deployments.get(pool.name),
            engines.get(pool.name, AS_IT_IS),
            previous.get(pool.name),
            now,
        )
        for pool in pools
    )
    retired = tuple(
        RetiredPool(
            deployment,
            deployment["metadata"].get("labels", {}).get(TIER_LABEL, ""),
            sum(
                pod.ready_since is not None
                for pod in pods
                if pod.pool == deployment["metadata"].get("labels", {}).get(POOL_LABEL)
            ),
        )
        for name, deployment in sorted(deployments.items())
        if name not in {pool.name for pool in pools}
    )
    return views, retired


def _view(  # noqa: PLR0913, PLR0917 - one place that brings the facts of a pool together
    pool: Pool,
    spec: EffectiveSpec,
    pods: list[PodFacts],
    snapshot: Snapshot,
    deployment: Json | None,
    engine: PoolEngine,
    previous: PoolStatus | None,
    now: datetime,
) -> PoolView:
    reports = tuple(
        (pod, snapshot.reports[pod.report_key])
        for pod in pods
        if not pod.leaving and pod.report_key in snapshot.reports
    )
    asked_before = deployment["spec"].get("replicas", 0) if deployment else 0
    if previous is not None:
        # An operator that was killed after it wrote a Deployment and before it wrote the status: what got ready since then serves, and
        # is held as if the status said so. Pods that aren't ready prove nothing: somebody may have scaled the Deployment by hand.
        asked_before = max(previous.desired, min(asked_before, sum(pod.ready_since is not None for pod in pods)))
    facts = PoolFacts(
        name=pool.name,
        gpu_type=pool.gpu_type,
        resource=pool.resource,
        supply=pool.supply,
        pods=tuple(pods),
        desired=asked_before,
        load_timeout=spec.runtime.load_timeout,
        expected_provider=pool.tier.execution_provider,
        provider=_provider(reports, pool.tier.execution_provider) or (previous.provider if previous and pods else None),
        previous=_state(previous),
        now=now,
        refusal=_refusal(deployment),
        unsupported=pool.unsupported,
        revision=_revision(deployment),
        engine_wait=engine.waiting,
    )
    return PoolView(pool, facts, reports, deployment, previous, engine)


def _refusal(deployment: Json | None) -> str:
    conditions = ((deployment or {}).get("status") or {}).get("conditions") or ()
    failures = (c.get("message", "") for c in conditions if c["type"] == "ReplicaFailure" and c["status"] == "True")
    return next(failures, "")


def _revision(deployment: Json | None) -> str:
    template = deployment["spec"]["template"] if deployment else {}
    return str((template.get("metadata", {}).get("labels") or {}).get(REVISION_LABEL, ""))


def _state(previous: PoolStatus | None) -> PoolState | None:
    """Read a state; a status that another version of the operator wrote may hold one that this version doesn't know."""
    return next((state for state in PoolState if previous and state == previous.state), None)


def _provider(reports: Iterable[tuple[PodFacts, RuntimeReport]], expected: str) -> str | None:
    """Give the provider that differs from the expected one, if any pod reports such, else the one that pods report."""
    providers = sorted({report.provider for _, report in reports}, key=lambda provider: provider == expected)
    return providers[0] if providers else None


def _owned(child: Json, owner_uid: str) -> bool:
    return any(ref.get("uid") == owner_uid for ref in child["metadata"].get("ownerReferences") or ())
