"""Engines of one resource: which it needs, where each stands, and what is to be done about it.

An engine is built once for each key, whoever needs it. A pool serves from it as soon as its Job has finished; until then the pools after it
serve, or it keeps the engine that its pods already run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cosyvoice_operator.api.conditions import Reason
from cosyvoice_operator.api.defaults import EffectiveEngines, EffectiveSpec
from cosyvoice_operator.api.status import CosyVoiceDeploymentStatus, EngineStatus
from cosyvoice_operator.core.children import EngineMount, JobParams, Owner
from cosyvoice_operator.core.clock import format_precise_time, parse_time
from cosyvoice_operator.core.engine_jobs import ARCH_LABEL, build_job, claim_name, cleanup_job
from cosyvoice_operator.core.engine_key import EngineFields, Target
from cosyvoice_operator.core.engine_model import ModelFacts, find_model
from cosyvoice_operator.core.errors import Blocked
from cosyvoice_operator.core.gpu import NodeFacts, type_facts
from cosyvoice_operator.core.jobs import JobFacts, JobState, attend, fingerprint, read_jobs, worth_another_try
from cosyvoice_operator.core.model import JobAction, Json, PlanConfig, ProbeTarget, Snapshot
from cosyvoice_operator.core.naming import ENGINE_LABEL, cache_claim_name, cleanup_job_name, engine_job_name
from cosyvoice_operator.core.pods import PodFacts, parse_pod
from cosyvoice_operator.core.pools import Pool

ENGINE_VOLUME = "engine"
"""Name of the volume with the engine, in runtime pods."""

VERIFY = "verify"
"""Name of the init container that checks an engine before the runtime loads it."""

UNUSED, NO_NODE = "Unused", "NoNode"
"""States of an engine beside those of its Job: nobody needs it any more; no node is there that it could be built on."""

_MOUNTS_WITHIN = timedelta(minutes=1)
"""After this a mount that fails is no matter of a volume that another node has not seen the change of yet."""

_DEFAULT_ARCH = "amd64"


@dataclass(frozen=True, slots=True)
class PoolEngine:
    """What a pool serves from.

    Attributes:
        mount: The engine that its pods are to run; None for the model as it is in the image.
        waiting: Why it can't serve yet; empty when it can.
        stale: Its pods run on with what they have, template and all, until the engine that they should run is there.
        unbuildable: It waits for a person to tell what its GPU type is; nothing goes on.
    """

    mount: EngineMount | None = None
    waiting: str = ""
    stale: bool = False
    unbuildable: bool = False


AS_IT_IS = PoolEngine()
"""The model as it is in the image."""


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """All engines of one resource.

    Attributes:
        pools: What each pool serves from, by the pool's name; one that is missing serves the model as it is.
        statuses: For ``status.engines``; those that are needed first.
        model: The model; None where nothing is fetched or built.
        jobs: What is to be done with Jobs.
        cleanups: Jobs of this resource alone, that remove engines from the cache.
        problem: Why nothing goes on until a person acts; None while it does.
        unbuildable: Pools that wait for a person to tell what their GPU type is, each with what to do.
        next_look: When time alone may change this.
        probes: Pods of Jobs to ask how far they are: those that this resource owns first, so that each is asked for one of them.
    """

    pools: Mapping[str, PoolEngine] = field(default_factory=dict)
    statuses: tuple[EngineStatus, ...] = ()
    model: ModelFacts | None = None
    jobs: tuple[JobAction, ...] = ()
    cleanups: tuple[JobParams, ...] = ()
    problem: Blocked | None = None
    unbuildable: Mapping[str, str] = field(default_factory=dict)
    next_look: datetime | None = None
    probes: tuple[ProbeTarget, ...] = ()


@dataclass(frozen=True, slots=True)
class _Standing:
    """Where an engine stands, how often it was built anew, and with what this resource last had it tried."""

    state: str
    reason: str
    message: str
    rebuilds: int = 0
    attempt: str | None = None


@dataclass(slots=True)
class _Others:
    """Engines that are not needed, or not any more: what is told of them and done about them."""

    statuses: list[EngineStatus] = field(default_factory=list)
    actions: list[JobAction] = field(default_factory=list)
    cleanups: list[JobParams] = field(default_factory=list)
    looks: list[datetime] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Engine:
    """One engine that a pool needs, and what is to be done about its Job."""

    fields: EngineFields
    status: EngineStatus
    action: JobAction | None

    @property
    def ready(self) -> bool:
        return self.status.state == JobState.SUCCEEDED


def plan_engines(
    snapshot: Snapshot,
    spec: EffectiveSpec,
    pools: Sequence[Pool],
    previous: CosyVoiceDeploymentStatus,
    config: PlanConfig,
    now: datetime,
) -> EnginePlan:
    """Say what each pool serves from, and what is to be done so that it has its engine."""
    return _Planner(snapshot, spec, pools, previous, config, now).plan()


class _Planner:
    """The facts of one plan, so that each step needn't be handed all of them."""

    def __init__(
        self,
        snapshot: Snapshot,
        spec: EffectiveSpec,
        pools: Sequence[Pool],
        previous: CosyVoiceDeploymentStatus,
        config: PlanConfig,
        now: datetime,
    ) -> None:
        meta = snapshot.owner["metadata"]
        self.owner = Owner(meta["name"], meta["namespace"], meta["uid"])
        self.snapshot = snapshot
        self.spec = spec
        self.pools = [pool for pool in pools if not pool.placeless]
        self.previous = {engine.key: engine for engine in previous.engines or ()}
        self.config = config
        self.now = now
        self.jobs = read_jobs(snapshot)
        self.deployments = {c["metadata"]["name"]: c for c in snapshot.children if c["kind"] == "Deployment"}
        self.claim = claim_name(self.owner.name, spec.engines) if spec.engines else ""
        self.tried = previous.model.attempt if previous.model else None

    def plan(self) -> EnginePlan:
        engines = self.spec.engines
        if engines is None:
            mine = (name for name, facts in self.jobs.items() if self.owner.uid in facts.owners)
            return EnginePlan(jobs=tuple(JobAction(name, None) for name in mine))
        model = find_model(self.owner, self.spec, engines, self.jobs, self.snapshot, self.config, self.tried)
        needed = {pool.name: self._needed(pool, engines, model) for pool in self.pools}
        built = {engine.fields.key: engine for engine in needed.values() if engine}
        # While it isn't known what the model is, it isn't known either which engines it needs no more.
        others = self._others(engines, {*built}, model) if model.digest is not None else _Others()
        actions = (model.job, *(engine.action for engine in built.values()), *others.actions)
        pools = {pool.name: self._pool(pool, model, needed[pool.name]) for pool in self.pools}
        failed = next((e.status for e in built.values() if e.status.state == JobState.FAILED), None)
        return EnginePlan(
            pools=pools,
            statuses=(*(engine.status for engine in built.values()), *others.statuses),
            model=model,
            jobs=tuple(action for action in actions if action),
            cleanups=tuple(others.cleanups),
            problem=_problem(model, failed),
            unbuildable={name: choice.waiting for name, choice in pools.items() if choice.unbuildable},
            next_look=min(others.looks, default=None),
            probes=self._probes(),
        )

    def _probes(self) -> tuple[ProbeTarget, ...]:
        return tuple(facts.probe for facts in self.jobs.values() if facts.probe and facts.first_owner == self.owner.uid)

    def _needed(self, pool: Pool, engines: EffectiveEngines, model: ModelFacts) -> _Engine | None:
        """Give the engine of a pool; None while it isn't known what to build, or for what."""
        target = self._target(pool)
        if model.digest is None or target is None:
            return None
        family, tier = self.spec.model.family.value, pool.tier
        precision = tier.precision.value if tier.precision else None
        fields = EngineFields(model.digest, family, tier.backend.value, tier.builder_image, precision, target)
        facts = self.jobs.get(engine_job_name(fields.key, self.claim))
        wanted = build_job(self.owner, self.spec, engines, tier, fields, model.path, pool.terms)
        # Nothing can be built for a type that has no node; an engine that was built stays until it has been unused for long.
        if facts is None and pool.supply is not None and not pool.supply.nodes:
            message = f"No node has GPU type {pool.gpu_type}; it is built when one appears."
            return _Engine(fields, self._status(pool, wanted, fields, None, _Standing(NO_NODE, NO_NODE, message)), None)
        standing, action = self._standing(wanted, fields.key, facts)
        return _Engine(fields, self._status(pool, wanted, fields, facts, standing), action)

    def _standing(self, wanted: JobParams, key: str, facts: JobFacts | None) -> tuple[_Standing, JobAction]:
        """Say where an engine stands, and what is to be done about its Job."""
        action, again = attend(wanted, facts, self.snapshot, self.config), JobAction(wanted.name, wanted, delete=True)
        before = self.previous.get(key)
        rebuilds, tried = ((before.rebuilds or 0), before.attempt) if before else (0, None)
        if facts is None:
            message = f"Job {wanted.name} is being made."
            return _Standing(JobState.QUEUED, "WaitingForTurn", message, rebuilds, fingerprint(wanted)), action
        if worth_another_try(wanted, facts, tried):
            message = f"{facts.message} What it was made from has been changed since, so it runs again."
            return _Standing(JobState.QUEUED, "Changed", message, rebuilds, fingerprint(wanted)), again
        if self._is_removed(key):
            message = "It was being removed from the cache as unused when it was needed again; it is built anew."
            return _Standing(JobState.QUEUED, "Removed", message, rebuilds, tried), again
        damaged = self._damaged(key, facts)
        if not damaged:
            # What was built anew and serves is as good as any other.
            rebuilds = 0 if self._serves(key, facts) else rebuilds
            return _Standing(facts.state, facts.reason, facts.message, rebuilds, tried), action
        if rebuilds:
            message = f"{damaged} It was built anew once already: look at the volume of the cache."
            return _Standing(JobState.FAILED, "CorruptEngine", message, rebuilds, tried), action
        return _Standing(JobState.QUEUED, "CorruptEngine", f"{damaged} It is built once more.", 1, tried), again

    def _target(self, pool: Pool) -> Target | None:
        provider = pool.tier.execution_provider.value
        if pool.gpu_type is None:
            return Target(_cpu_arch(self.spec, self.snapshot.nodes, self.deployments), provider)
        facts = type_facts(self.snapshot.nodes, pool.gpu_type, pool.resource)
        if facts.compute_capability is None:
            return None
        arch = facts.arch or _DEFAULT_ARCH
        return Target(arch, provider, pool.gpu_type, facts.compute_capability, facts.memory_mib)

    def _pool(self, pool: Pool, model: ModelFacts, engine: _Engine | None) -> PoolEngine:
        deployment = self.deployments.get(pool.name)
        if engine and engine.ready:
            return PoolEngine(EngineMount(engine.fields.key, self.claim, engine.fields.target.arch))
        if deployment is not None:
            return PoolEngine(_mounted(deployment), stale=True)
        if self._target(pool) is None:
            return PoolEngine(
                unbuildable=True,
                waiting=f"Nothing tells the compute capability of GPU type {pool.gpu_type}, so no engine can be built for it. "
                "`cosyvoice-operator gpus` shows what is known; tell the rest in the operator's settings.",
            )
        if engine is None:
            return PoolEngine(waiting=f"The engine waits for the model ({model.state}): {model.message}")
        return PoolEngine(waiting=f"Engine {engine.fields.key} is {engine.status.state}: {engine.status.message}")

    def _status(
        self, pool: Pool, wanted: JobParams, fields: EngineFields, facts: JobFacts | None, standing: _Standing
    ) -> EngineStatus:
        before = self.previous.get(fields.key)
        result = (facts.result if facts else None) or {}
        return EngineStatus(
            key=fields.key,
            backend=fields.backend,
            gpu_type=pool.gpu_type,
            state=standing.state,
            reason=standing.reason,
            message=standing.message,
            since=before.since if before and before.state == standing.state else format_precise_time(self.now),
            job=wanted.name,
            seconds=result.get("seconds"),
            bytes=result.get("bytes"),
            rebuilds=standing.rebuilds or None,
            attempt=standing.attempt,
        )

    def _damaged(self, key: str, facts: JobFacts) -> str:
        """Say which pod found an engine damaged, if that was after the engine was built."""
        for pod in self._pods(key):
            waiting = pod.waiting
            if waiting is None or waiting.container != VERIFY or facts.completed is None:
                continue
            if "CorruptEngine" in waiting.last_words and (waiting.ended is None or waiting.ended > facts.completed):
                return f"Pod {pod.name} found engine {key} damaged."
            if "subPath" in waiting.message and self.now - facts.completed > _MOUNTS_WITHIN:
                return f"Pod {pod.name} did not find engine {key} in claim {self.claim}."
        return ""

    def _serves(self, key: str, facts: JobFacts) -> bool:
        ready = (pod.ready_since for pod in self._pods(key) if pod.ready_since)
        return facts.completed is not None and any(since > facts.completed for since in ready)

    def _pods(self, key: str) -> Iterable[PodFacts]:
        labelled = (pod for pod in self.snapshot.pods if (pod["metadata"].get("labels") or {}).get(ENGINE_LABEL) == key)
        return map(parse_pod, labelled)

    def _others(self, engines: EffectiveEngines, built: set[str], model: ModelFacts) -> _Others:
        """Find what this resource has a Job of and doesn't need any more: kept for a while, then removed from the cache."""
        others, in_use = _Others(), self._in_use()
        for name, facts in sorted(self.jobs.items()):
            needed = name == engine_job_name(facts.key, self.claim) and facts.key in built
            if self.owner.uid not in facts.owners or needed or (model.job and name == model.job.name):
                continue
            if name != engine_job_name(facts.key, self.claim) or facts.state is not JobState.SUCCEEDED:
                # A fetch, in another cache, or nothing that lies in this one.
                others.actions.append(JobAction(name, None))
            elif facts.key in in_use:
                others.statuses.append(
                    self._put_by(facts, JobState.SUCCEEDED, "InUse", "Pods run it until they are replaced.")
                )
            elif len(facts.owners) > 1:
                others.actions.append(JobAction(name, None))
            else:
                self._put_away(engines, facts, others)
        return others

    def _put_away(self, engines: EffectiveEngines, facts: JobFacts, others: _Others) -> None:
        before = self.previous.get(facts.key)
        since = before.since if before and before.state == UNUSED and before.since else format_precise_time(self.now)
        until = parse_time(since) + engines.keep_unused
        message = (
            f"No pool has needed it since {since}; it is kept until {format_precise_time(until)} (engines.keepUnused)."
        )
        others.statuses.append(self._put_by(facts, UNUSED, UNUSED, message))
        if self.now < until:
            others.looks.append(until)
        elif self._is_removed(facts.key):
            others.actions.append(JobAction(facts.name, None))
        else:
            others.cleanups.append(cleanup_job(self.owner, self.spec, engines, facts.key))

    def _put_by(self, facts: JobFacts, state: str, reason: str, message: str) -> EngineStatus:
        before = self.previous.get(facts.key) or EngineStatus(key=facts.key, state="", job=facts.name)
        since = before.since if before.state == state else format_precise_time(self.now)
        return before.model_copy(update={"state": state, "reason": reason, "message": message, "since": since})

    def _in_use(self) -> set[str]:
        """Keys that pods run, or would run when they are made again."""
        labels = (pod["metadata"].get("labels") or {} for pod in self.snapshot.pods)
        mounts = map(_mounted, self.deployments.values())
        return {each[ENGINE_LABEL] for each in labels if ENGINE_LABEL in each} | {
            mount.key for mount in mounts if mount
        }

    def _is_removed(self, key: str) -> bool:
        """Whether the Job that removes an engine has ended. One that failed isn't repeated: what it leaves is found by the next build."""
        name = cleanup_job_name(key, self.claim)
        jobs = (c for c in self.snapshot.children if c["kind"] == "Job" and c["metadata"]["name"] == name)
        conditions = (c for job in jobs for c in (job.get("status") or {}).get("conditions") or ())
        return any(c["type"] in {"Complete", "Failed"} and c.get("status") == "True" for c in conditions)


def claims_in_use(snapshot: Snapshot) -> frozenset[str]:
    """Name the claims that engines are mounted from, by Deployments or by pods of an older version of them."""
    mounted = {_claim(child) for child in snapshot.children if child["kind"] == "Deployment"}
    if any(ENGINE_LABEL in (pod["metadata"].get("labels") or {}) for pod in snapshot.pods):
        mounted.add(cache_claim_name(snapshot.owner["metadata"]["name"]))
    return frozenset(mounted - {""})


def _mounted(deployment: Json) -> EngineMount | None:
    """Read which engine a Deployment's pods run, from which claim and where: the spec may say something else by now."""
    template = deployment["spec"]["template"]
    key, claim = (template["metadata"].get("labels") or {}).get(ENGINE_LABEL), _claim(deployment)
    arch = (template["spec"].get("nodeSelector") or {}).get(ARCH_LABEL, _DEFAULT_ARCH)
    return EngineMount(key, claim, arch) if key and claim else None


def _claim(deployment: Json) -> str:
    volumes = deployment["spec"]["template"]["spec"].get("volumes") or ()
    return next((v["persistentVolumeClaim"]["claimName"] for v in volumes if v["name"] == ENGINE_VOLUME), "")


def _problem(model: ModelFacts, failed: EngineStatus | None) -> Blocked | None:
    if model.state == JobState.FAILED:
        return Blocked(Reason.ENGINE_FAILED, f"The model can't be had. {model.message}")
    if failed:
        what = f"Engine {failed.key} for {failed.gpu_type or 'CPU'} failed ({failed.reason})"
        return Blocked(Reason.ENGINE_FAILED, f"{what}: {failed.message}")
    return None


def _cpu_arch(spec: EffectiveSpec, nodes: Iterable[NodeFacts], deployments: Mapping[str, Json]) -> str:
    """Choose the one architecture that CPU pods run on: an engine is for one, and a node that joins must not change it."""
    chosen = (spec.scheduling.node_selector or {}).get(ARCH_LABEL)
    selectors = (d["spec"]["template"]["spec"].get("nodeSelector") or {} for d in deployments.values() if _mounted(d))
    kept = next((selector[ARCH_LABEL] for selector in selectors if ARCH_LABEL in selector), None)
    counts = Counter(node.arch for node in nodes if node.arch and node.ready and node.schedulable)
    most = max(sorted(counts), key=lambda arch: (counts[arch], arch == _DEFAULT_ARCH), default=_DEFAULT_ARCH)
    return chosen or kept or most
