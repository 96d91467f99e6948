"""The model of one resource: whether its files are where builds find them, and under which digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cosyvoice_operator.api.defaults import EffectiveEngines, EffectiveSpec
from cosyvoice_operator.core.children import Owner
from cosyvoice_operator.core.engine_jobs import claim_name, fetch_job, public_source
from cosyvoice_operator.core.engine_key import digest
from cosyvoice_operator.core.jobs import JobFacts, JobState, attend
from cosyvoice_operator.core.model import JobAction, PlanConfig, Snapshot
from cosyvoice_operator.core.naming import model_job_name

FETCHING, READY, FAILED = "Fetching", "Ready", "Failed"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Where the model stands.

    Attributes:
        digest: Digest over the content of its files; None until they are there.
        path: Where they are in the cache; None outside of it.
        state: ``Ready``, ``Failed``, ``Fetching``, or what the fetch waits for.
        message: What was seen, and what to do; empty when it is ready.
        bytes: Size of its files; None where it isn't known.
        job: What is to be done with the Job that fetches it; None where nothing is fetched.
    """

    digest: str | None
    path: str | None
    state: str
    message: str = ""
    bytes: int | None = None
    job: JobAction | None = None


def find_model(
    owner: Owner,
    spec: EffectiveSpec,
    engines: EffectiveEngines,
    jobs: Mapping[str, JobFacts],
    snapshot: Snapshot,
    config: PlanConfig,
) -> ModelFacts:
    """Say where the model stands, from the Job that fetches it."""
    source = spec.model.source
    if source.embedded:
        return ModelFacts(f"embedded:{source.embedded.voice}", None, READY)
    name = model_job_name(source_digest(spec), claim_name(owner.name, engines))
    facts = jobs.get(name)
    wanted = fetch_job(owner, spec, engines, source_digest(spec))
    action = attend(name, wanted, facts, snapshot, config)
    if facts is None:
        return ModelFacts(None, None, JobState.QUEUED, f"Job {name} is being made.", job=action)
    if facts.state is JobState.SUCCEEDED:
        result = facts.result or {}
        if not result.get("digest"):
            # Its pod was gone before anybody read what it said. Fetched files stay, so a second run is short.
            message = f"Job {name} left no result; it runs again."
            return ModelFacts(None, None, FETCHING, message, job=JobAction(name, wanted, delete=True))
        return ModelFacts(result["digest"], result.get("path"), READY, bytes=result.get("bytes"), job=action)
    state = {JobState.RUNNING: FETCHING, JobState.FAILED: FAILED}.get(facts.state, facts.state.value)
    message = f"{facts.reason}: {facts.message}" if facts.state is JobState.FAILED else facts.message
    return ModelFacts(None, None, state, message, job=action)


def source_digest(spec: EffectiveSpec) -> str:
    """Name where the model comes from: resources with the same source share one fetch."""
    return digest({"family": spec.model.family.value, "source": public_source(spec.model.source)})
