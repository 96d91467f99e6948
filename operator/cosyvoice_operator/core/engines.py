"""Engines of one resource: which it needs, where each stands, and what is to be done about it.

An engine is built once for each key, whoever needs it. A pool serves from it as soon as its Job has finished; until then the pools after it
serve, or it keeps the engine that its pods already run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cosyvoice_operator.api.conditions import Reason
from cosyvoice_operator.api.defaults import EffectiveEngines, EffectiveSpec
from cosyvoice_operator.api.status import CosyVoiceDeploymentStatus, EngineStatus
from cosyvoice_operator.core.children import EngineMount, JobParams, Owner
from cosyvoice_operator.core.clock import format_precise_time, parse_time
from cosyvoice_operator.core.engine_jobs import build_job, claim_name, cleanup_job
from cosyvoice_operator.core.engine_key import EngineFields, Target
from cosyvoice_operator.core.engine_model import ModelFacts, find_model
from cosyvoice_operator.core.errors import Blocked
from cosyvoice_operator.core.gpu import NodeFacts, type_facts
from cosyvoice_operator.core.jobs import JobFacts, JobState, attend, read_jobs
from cosyvoice_operator.core.model import JobAction, Json, PlanConfig, ProbeTarget, Snapshot
from cosyvoice_operator.core.naming import ENGINE_LABEL, cleanup_job_name, engine_job_name
from cosyvoice_operator.core.pods import PodFacts, parse_pod
from cosyvoice_operator.core.pools import Pool

ENGINE_VOLUME = "engine"
"""Name of the volume with the engine, in runtime pods."""

VERIFY = "verify"
"""Name of the init container that checks an engine before the runtime loads it."""

UNUSED, NO_NODE = "Unused", "NoNode"
"""States of an engine beside those of its Job: nobody needs it any more; no node is there that it could be built on."""

_ARCH_LABEL = "kubernetes.io/arch"
_DEFAULT_ARCH = "amd64"


@dataclass(frozen=True, slots=True)
class PoolEngine:
    """What a pool serves from.

    Attributes:
        mount: The engine that its pods are to run; None for the model as it is in the image.
        waiting: Why it can't serve yet; empty when it can.
    """

    mount: EngineMount | None = None
    waiting: str = ""


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
        next_look: When time alone may change this.
        probes: Pods of Jobs to ask how far they are: those that this resource owns first, so that each is asked for one of them.
    """

    pools: Mapping[str, PoolEngine] = field(default_factory=dict)
    statuses: tuple[EngineStatus, ...] = ()
    model: ModelFacts | None = None
    jobs: tuple[JobAction, ...] = ()
    cleanups: tuple[JobParams, ...] = ()
    problem: Blocked | None = None
    next_look: datetime | None = None
    probes: tuple[ProbeTarget, ...] = ()


@dataclass(frozen=True, slots=True)
class _Standing:
    """Where an engine stands, and how often it was built anew."""

    state: str
    reason: str
    message: str
    rebuilds: int = 0


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

    def plan(self) -> EnginePlan:
        engines = self.spec.engines
        if engines is None:
            mine = (name for name, facts in self.jobs.items() if self.owner.uid in facts.owners)
            return EnginePlan(jobs=tuple(JobAction(name, None) for name in mine))
        model = find_model(self.owner, self.spec, engines, self.jobs, self.snapshot, self.config)
        needed = {pool.name: self._needed(pool, engines, model) for pool in self.pools}
        built = {engine.fields.key: engine for engine in needed.values() if engine}
        pools = {pool.name: self._pool(pool, engines, model, needed[pool.name]) for pool in self.pools}
        claim = claim_name(self.owner.name, engines)
        mounts = (choice.mount for choice in pools.values() if choice.mount and choice.mount.claim_name == claim)
        kept = {*built, *(mount.key for mount in mounts)}
        unused, given_up, cleanups, looks = self._unused(engines, kept, model)
        actions = (model.job, *(engine.action for engine in built.values()), *given_up)
        failed = next((e.status for e in built.values() if e.status.state == JobState.FAILED), None)
        return EnginePlan(
            pools=pools,
            statuses=(*(engine.status for engine in built.values()), *unused),
            model=model,
            jobs=tuple(action for action in actions if action),
            cleanups=cleanups,
            problem=_problem(model, failed),
            next_look=min(looks, default=None),
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
        name = engine_job_name(fields.key, claim_name(self.owner.name, engines))
        facts = self.jobs.get(name)
        wanted = build_job(self.owner, self.spec, engines, tier, fields, model.path, pool.terms)
        # Nothing can be built for a type that has no node; an engine that was built stays until it has been unused for long.
        if facts is None and pool.supply is not None and not pool.supply.nodes:
            message = f"No node has GPU type {pool.gpu_type}; it is built when one appears."
            return _Engine(fields, self._status(pool, wanted, fields, None, _Standing(NO_NODE, NO_NODE, message)), None)
        standing, action = self._standing(wanted, fields.key, facts)
        return _Engine(fields, self._status(pool, wanted, fields, facts, standing), action)

    def _standing(self, wanted: JobParams, key: str, facts: JobFacts | None) -> tuple[_Standing, JobAction]:
        """Say where an engine stands, and what is to be done about its Job."""
        action = attend(wanted.name, wanted, facts, self.snapshot, self.config)
        before = self.previous.get(key)
        rebuilds = (before.rebuilds or 0) if before else 0
        if facts is None:
            message = f"Job {wanted.name} is being made."
            return _Standing(JobState.QUEUED, "WaitingForTurn", message, rebuilds), action
        damaged = self._damaged(key, facts)
        if not damaged:
            # What was built anew and serves is as good as any other.
            rebuilds = 0 if self._serves(key, facts) else rebuilds
            return _Standing(facts.state, facts.reason, facts.message, rebuilds), action
        if rebuilds:
            message = f"{damaged} It was built anew once already: look at the volume of the cache."
            return _Standing(JobState.FAILED, "CorruptEngine", message, rebuilds), action
        again = JobAction(wanted.name, wanted, delete=True)
        return _Standing(JobState.QUEUED, "CorruptEngine", f"{damaged} It is built once more.", 1), again

    def _target(self, pool: Pool) -> Target | None:
        provider = pool.tier.execution_provider.value
        if pool.gpu_type is None:
            return Target(_cpu_arch(self.spec, self.snapshot.nodes), provider)
        facts = type_facts(self.snapshot.nodes, pool.gpu_type, pool.resource)
        if facts.compute_capability is None:
            return None
        arch = facts.arch or _DEFAULT_ARCH
        return Target(arch, provider, pool.gpu_type, facts.compute_capability, facts.memory_mib)

    def _pool(self, pool: Pool, engines: EffectiveEngines, model: ModelFacts, engine: _Engine | None) -> PoolEngine:
        deployment = self.deployments.get(pool.name)
        target = self._target(pool)
        if engine and engine.ready:
            return PoolEngine(
                EngineMount(engine.fields.key, claim_name(self.owner.name, engines), engine.fields.target.arch)
            )
        if deployment is not None:
            # It serves on from what its pods run now.
            return PoolEngine(_mounted(deployment, target.arch if target else _DEFAULT_ARCH))
        if target is None:
            return PoolEngine(
                waiting=f"Nothing tells the compute capability of GPU type {pool.gpu_type}, so no engine can be built for it. "
                "`cosyvoice-operator gpus` shows what is known; tell the rest in the operator's settings."
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
        )

    def _damaged(self, key: str, facts: JobFacts) -> str:
        """Say which pod found an engine damaged, if that was after the engine was built."""
        for pod in self._pods(key):
            waiting = pod.waiting
            found = waiting and waiting.container == VERIFY and "CorruptEngine" in waiting.last_words
            if found and waiting and facts.completed and (waiting.ended is None or waiting.ended > facts.completed):
                return f"Pod {pod.name} found engine {key} damaged."
        return ""

    def _serves(self, key: str, facts: JobFacts) -> bool:
        ready = (pod.ready_since for pod in self._pods(key) if pod.ready_since)
        return facts.completed is not None and any(since > facts.completed for since in ready)

    def _pods(self, key: str) -> Iterable[PodFacts]:
        labelled = (pod for pod in self.snapshot.pods if (pod["metadata"].get("labels") or {}).get(ENGINE_LABEL) == key)
        return map(parse_pod, labelled)

    def _unused(
        self, engines: EffectiveEngines, kept: set[str], model: ModelFacts
    ) -> tuple[tuple[EngineStatus, ...], tuple[JobAction, ...], tuple[JobParams, ...], list[datetime]]:
        """Find what this resource has a Job of and doesn't need: keep it for a while, then remove it from the cache."""
        statuses, actions, cleanups, looks = [], [], [], []
        for name, facts in sorted(self.jobs.items()):
            key, ours = facts.key, name == engine_job_name(facts.key, claim_name(self.owner.name, engines))
            if self.owner.uid not in facts.owners or (ours and key in kept) or (model.job and name == model.job.name):
                continue
            before = self.previous.get(key)
            if not ours or before is None or facts.state is not JobState.SUCCEEDED or len(facts.owners) > 1:
                actions.append(
                    JobAction(name, None)
                )  # another's, a fetch, in another cache, or nothing that lies in this one
                continue
            since = before.since if before.state == UNUSED and before.since else format_precise_time(self.now)
            until = parse_time(since) + engines.keep_unused
            statuses.append(_put_away(before, since, until))
            if self.now < until:
                looks.append(until)
            elif self._removed(key):
                actions.append(JobAction(name, None))
            else:
                cleanups.append(cleanup_job(self.owner, self.spec, engines, key))
        return tuple(statuses), tuple(actions), tuple(cleanups), looks

    def _removed(self, key: str) -> bool:
        """Whether the Job that removes an engine has ended. One that failed isn't repeated: what it leaves is found by the next build."""
        name = cleanup_job_name(key)
        jobs = (c for c in self.snapshot.children if c["kind"] == "Job" and c["metadata"]["name"] == name)
        conditions = (c for job in jobs for c in (job.get("status") or {}).get("conditions") or ())
        return any(c["type"] in {"Complete", "Failed"} and c.get("status") == "True" for c in conditions)


def claims_in_use(children: Iterable[Json]) -> frozenset[str]:
    """Name the claims that Deployments mount engines from."""
    return frozenset(_claim(child) for child in children if child["kind"] == "Deployment") - {""}


def _mounted(deployment: Json, arch: str) -> EngineMount | None:
    """Read which engine a Deployment's pods run, and from which claim: the spec may name another by now."""
    key = (deployment["spec"]["template"]["metadata"].get("labels") or {}).get(ENGINE_LABEL)
    claim = _claim(deployment)
    return EngineMount(key, claim, arch) if key and claim else None


def _claim(deployment: Json) -> str:
    volumes = deployment["spec"]["template"]["spec"].get("volumes") or ()
    return next((v["persistentVolumeClaim"]["claimName"] for v in volumes if v["name"] == ENGINE_VOLUME), "")


def _put_away(engine: EngineStatus, since: str, until: datetime) -> EngineStatus:
    message = (
        f"No pool has needed it since {since}; it is kept until {format_precise_time(until)} (engines.keepUnused)."
    )
    return engine.model_copy(update={"state": UNUSED, "reason": UNUSED, "message": message, "since": since})


def _problem(model: ModelFacts, failed: EngineStatus | None) -> Blocked | None:
    if model.state == JobState.FAILED:
        return Blocked(Reason.ENGINE_FAILED, f"The model can't be had. {model.message}")
    if failed:
        what = f"Engine {failed.key} for {failed.gpu_type or 'CPU'} failed ({failed.reason})"
        return Blocked(Reason.ENGINE_FAILED, f"{what}: {failed.message}")
    return None


def _cpu_arch(spec: EffectiveSpec, nodes: Iterable[NodeFacts]) -> str:
    """Choose the one architecture that CPU pods run on: an engine is for one."""
    chosen = (spec.scheduling.node_selector or {}).get(_ARCH_LABEL)
    found = {node.arch for node in nodes if node.arch}
    return chosen or (_DEFAULT_ARCH if _DEFAULT_ARCH in found or not found else min(found))
