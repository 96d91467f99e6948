"""The model of one resource: whether its files are where builds find them, and under which digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cosyvoice_operator.api.defaults import EffectiveEngines, EffectiveSpec
from cosyvoice_operator.core.children import Owner
from cosyvoice_operator.core.engine_jobs import claim_name, fetch_job, public_source
from cosyvoice_operator.core.engine_key import digest
from cosyvoice_operator.core.jobs import JobFacts, JobState, attend, fingerprint, worth_another_try
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
        attempt: Fingerprint of what this resource last had it fetched with.
    """

    digest: str | None
    path: str | None
    state: str
    message: str = ""
    bytes: int | None = None
    job: JobAction | None = None
    attempt: str | None = None


def find_model(  # noqa: PLR0913, PLR0917 - the facts of one plan
    owner: Owner,
    spec: EffectiveSpec,
    engines: EffectiveEngines,
    jobs: Mapping[str, JobFacts],
    snapshot: Snapshot,
    config: PlanConfig,
    tried: str | None,
) -> ModelFacts:
    """Say where the model stands, from the Job that fetches it. ``tried`` is ``attempt`` of the last plan."""
    source = spec.model.source
    if source.embedded:
        return ModelFacts(f"embedded:{source.embedded.voice}", None, READY)
    name = model_job_name(source_digest(spec), claim_name(owner.name, engines))
    facts = jobs.get(name)
    wanted = fetch_job(owner, spec, engines, source_digest(spec))
    action, again = attend(wanted, facts, snapshot, config), JobAction(name, wanted, delete=True)
    if facts is None:
        message = f"Job {name} is being made."
        return ModelFacts(None, None, JobState.QUEUED, message, job=action, attempt=fingerprint(wanted))
    if worth_another_try(wanted, facts, tried):
        message = f"{facts.message} What it was made from has been changed since, so it runs again."
        return ModelFacts(None, None, JobState.QUEUED, message, job=again, attempt=fingerprint(wanted))
    if facts.state is JobState.SUCCEEDED:
        return _fetched(facts, action, again, tried)
    state = {JobState.RUNNING: FETCHING, JobState.FAILED: FAILED}.get(facts.state, facts.state.value)
    message = f"{facts.reason}: {facts.message}" if facts.state is JobState.FAILED else facts.message
    return ModelFacts(None, None, state, message, job=action, attempt=tried)


def _fetched(facts: JobFacts, action: JobAction, again: JobAction, tried: str | None) -> ModelFacts:
    result = facts.result or {}
    if result.get("digest"):
        path, size = result.get("path"), result.get("bytes")
        return ModelFacts(result["digest"], path, READY, bytes=size, job=action, attempt=tried)
    if facts.pod_at_work:  # the news of the Job came before those of its pod
        return ModelFacts(None, None, FETCHING, facts.message, job=action, attempt=tried)
    # Its pod was gone before anybody read what it said. Fetched files stay, so a second run is short.
    message = f"Job {facts.name} left no result; it runs again."
    return ModelFacts(None, None, FETCHING, message, job=again, attempt=tried)


def source_digest(spec: EffectiveSpec) -> str:
    """Name where the model comes from: resources with the same source share one fetch."""
    return digest({"family": spec.model.family.value, "source": public_source(spec.model.source)})
