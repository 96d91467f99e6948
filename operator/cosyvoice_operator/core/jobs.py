"""Jobs as facts: where a build or a fetch stands, and what it left behind.

A Job is the record of what it made: its result is copied from the pod into an annotation, since pods go with their nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeGuard

from cosyvoice_operator.core.children import JobParams
from cosyvoice_operator.core.clock import parse_time
from cosyvoice_operator.core.engine_key import digest
from cosyvoice_operator.core.model import (
    BuildTicket,
    JobAction,
    Json,
    PlanConfig,
    ProbeTarget,
    ProgressReport,
    Snapshot,
)
from cosyvoice_operator.core.naming import (
    ATTEMPT_ANNOTATION,
    ENGINE_LABEL,
    JOB_NAME_LABEL,
    KUEUE_LABEL,
    RESULT_ANNOTATION,
)
from cosyvoice_operator.core.pods import PodFacts, parse_pod

CONTAINER = "work"
"""Name of the container that does the work, in every Job of ours."""

_PORT = 8080


class JobState(StrEnum):
    """Where a Job stands. These stand in ``status.engines[].state`` too."""

    QUEUED = "Queued"
    """Not made yet, or made and held until it is its turn."""
    WAITING_FOR_CACHE = "WaitingForCache"
    """Its pod waits for the claim of the cache."""
    WAITING_FOR_NODE = "WaitingForNode"
    """No node has room for its pod."""
    RUNNING = "Building"
    """Its pod works, or is about to."""
    SUCCEEDED = "Ready"
    """What it makes is in the cache."""
    FAILED = "Failed"
    """It gave up, or can't begin until a person changes something."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One Job.

    Attributes:
        name: Its name.
        key: Key of the engine that it builds; empty for a fetch.
        state: Where it stands.
        reason: CamelCase detail; on failure one of the closed list of the program that it ran, or Kubernetes' own.
        message: What was seen, and what to do.
        result: What the program said at its end; None before, and when its pod was gone before anybody read it.
        owners: Uids of the resources that need it.
        first_owner: Uid of the first of them; empty without any.
        suspended: Held until it is its turn.
        recorded: Whether the result stands in the Job's own annotation.
        ended: It succeeded or failed for good.
        completed: When it succeeded; None before.
        probe: Whom to ask how far it is; None while nobody can tell.
        attempt: Fingerprint of what it was made from.
        queued_elsewhere: Kueue starts and suspends it.
        pod_at_work: A pod of it has not ended, as far as is known.
    """

    name: str
    key: str
    state: JobState
    reason: str
    message: str
    result: Json | None
    owners: frozenset[str]
    first_owner: str
    suspended: bool
    recorded: bool
    ended: bool
    completed: datetime | None = None
    probe: ProbeTarget | None = None
    attempt: str | None = None
    queued_elsewhere: bool = False
    pod_at_work: bool = False


def read_jobs(snapshot: Snapshot) -> dict[str, JobFacts]:
    """Read all Jobs of a namespace, by name."""
    by_job: dict[str, list[Json]] = {}
    for pod in snapshot.job_pods:
        by_job.setdefault((pod["metadata"].get("labels") or {}).get(JOB_NAME_LABEL, ""), []).append(pod)
    names = ((job["metadata"]["name"], job) for job in snapshot.jobs)
    return {name: read_job(job, by_job.get(name, ()), snapshot.progress) for name, job in names}


def read_job(job: Json, pods: Sequence[Json], progress: Mapping[str, ProgressReport]) -> JobFacts:
    """Read one Job with its pods, and how far those say they are."""
    meta = job["metadata"]
    noted = _load((meta.get("annotations") or {}).get(RESULT_ANNOTATION))
    newest_first = sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)
    result = noted or next(filter(None, map(_result, newest_first)), None)
    conditions = {c["type"]: c for c in (job.get("status") or {}).get("conditions") or () if c.get("status") == "True"}
    owners = [ref["uid"] for ref in meta.get("ownerReferences") or ()]
    suspended = bool(job["spec"].get("suspend"))
    probe = None
    if "Complete" in conditions:
        state, reason, message = JobState.SUCCEEDED, "Complete", f"Job {meta['name']} has finished."
    elif "Failed" in conditions:
        state, (reason, message) = JobState.FAILED, _failure(meta["name"], conditions["Failed"], result, newest_first)
        message = f"{message.rstrip('.')}. To try again once that is done: `kubectl delete job {meta['name']}`."
    elif suspended:
        state, reason, message = JobState.QUEUED, "WaitingForTurn", f"Job {meta['name']} waits for its turn."
    else:
        pod = next((pod for pod in map(parse_pod, newest_first) if not pod.leaving), None)
        state, reason, message = _progress(meta["name"], pod, progress)
        probe = ProbeTarget(pod.uid, f"http://{pod.host}:{_PORT}/progress", progress=True) if _works(pod) else None
    return JobFacts(
        name=meta["name"],
        key=(meta.get("labels") or {}).get(ENGINE_LABEL, ""),
        state=state,
        reason=reason,
        message=message,
        result=result,
        owners=frozenset(owners),
        first_owner=next(iter(owners), ""),
        suspended=suspended,
        recorded=noted is not None,
        ended=bool(conditions),
        completed=parse_time(conditions["Complete"]["lastTransitionTime"]) if "Complete" in conditions else None,
        probe=probe,
        attempt=(meta.get("annotations") or {}).get(ATTEMPT_ANNOTATION),
        queued_elsewhere=KUEUE_LABEL in (meta.get("labels") or {}),
        pod_at_work=any((pod.get("status") or {}).get("phase") in {"Pending", "Running"} for pod in pods),
    )


def may_start(name: str, namespace: str, tickets: Iterable[BuildTicket], *, cluster: int, per_namespace: int) -> bool:
    """Tell whether a Job that is held may run now; see :func:`turns`.

    The answer depends on all Jobs together, and each resource asks for its own: they agree, because they look at the same order.
    """
    chosen = turns(sorted(tickets, key=age), (), cluster, per_namespace)
    return any((turn.namespace, turn.name) == (namespace, name) for turn in chosen)


def turns(
    tickets: Sequence[BuildTicket], starting: Iterable[tuple[str, str]], cluster: int, per_namespace: int
) -> list[BuildTicket]:
    """Give the builds that wait and may start now: the oldest first, within both limits.

    Args:
        tickets: All builds that have not ended, the oldest first.
        starting: Those that are being started: they count as running.
        cluster: Builds that may run at once.
        per_namespace: The same for one namespace.
    """
    begun = set(starting)
    running: dict[str, int] = {}
    waiting = []
    for known in tickets:
        if known.running or (known.namespace, known.name) in begun:
            running[known.namespace] = running.get(known.namespace, 0) + 1
        else:
            waiting.append(known)
    free = cluster - sum(running.values())
    chosen: list[BuildTicket] = []
    for known in waiting:
        if len(chosen) >= free:
            break
        if running.get(known.namespace, 0) < per_namespace:
            running[known.namespace] = running.get(known.namespace, 0) + 1
            chosen.append(known)
    return chosen


def age(known: BuildTicket) -> tuple[datetime, str, str]:
    """Give the place of a build in the order of turns; the name decides between those of one second."""
    return known.created, known.namespace, known.name


def ticket(job: Json) -> BuildTicket | None:
    """Give a Job's place in the order of builds; None when it has ended."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    if any(c["type"] in {"Complete", "Failed"} and c.get("status") == "True" for c in conditions):
        return None
    meta = job["metadata"]
    created = parse_time(meta["creationTimestamp"])
    return BuildTicket(meta["namespace"], meta["name"], created, running=not job["spec"].get("suspend"))


def _works(pod: PodFacts | None) -> TypeGuard[PodFacts]:
    return pod is not None and pod.started is not None and bool(pod.ip)


def _progress(name: str, pod: PodFacts | None, progress: Mapping[str, ProgressReport]) -> tuple[JobState, str, str]:
    if pod is None:
        message = (
            f"Job {name} has been started; its pod is on its way. If none appears, a quota or an admission rule refuses it: see "
            f"`kubectl describe job {name}`."
        )
        return JobState.RUNNING, "PodStarting", message
    if pod.pending:
        text = (pod.unschedulable or "").split(" preemption:", maxsplit=1)[0]
        if "persistentvolumeclaim" in text.lower():
            message = f"Pod {pod.name} waits for the claim of the cache: {text} Create or bind the claim."
            return JobState.WAITING_FOR_CACHE, "ClaimNotBound", message
        return JobState.WAITING_FOR_NODE, "Unschedulable", f"Pod {pod.name} can't be placed: {text}"
    if pod.waiting and pod.waiting.reason != "CrashLoopBackOff":
        cause = pod.waiting.message.rpartition("ErrImagePull: ")[-1][:400]
        message = f"Pod {pod.name} can't start: {cause} Correct image {pod.waiting.image}, or what the message names."
        return JobState.FAILED, pod.waiting.reason.removeprefix("Err").replace("BackOff", ""), message
    told = f": {progress[pod.uid].text}" if pod.uid in progress else ""
    return JobState.RUNNING, "PodRunning", f"Pod {pod.name} works{told}. See `kubectl logs {pod.name}`."


def _failure(name: str, condition: Mapping[str, str], result: Json | None, pods: Iterable[Json]) -> tuple[str, str]:
    late = condition.get("reason") == "DeadlineExceeded"
    if result and result.get("outcome") == "Failed" and not (late and result.get("reason") == "Internal"):
        return str(result.get("reason") or "Internal"), f"{result.get('message') or 'no message'} (Job {name})"
    if late:
        return (
            "Timeout",
            f"Job {name} did not finish in time. Raise engines.timeout, or look at `kubectl logs job/{name}`.",
        )
    if any(_terminated(pod).get("reason") == "OOMKilled" for pod in pods):
        return "OutOfMemory", f"Job {name} was killed for memory. Raise engines.resources.limits.memory."
    return "Internal", f"Job {name} failed: {condition.get('message') or condition.get('reason') or 'no reason given'}."


def _result(pod: Json) -> Json | None:
    return _load(_terminated(pod).get("message"))


def _terminated(pod: Json) -> Json:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    states = ((c.get("state") or {}).get("terminated") or {} for c in statuses if c["name"] == CONTAINER)
    return next(states, {})


def _load(text: str | None) -> Json | None:
    """Read a result. What isn't one (a message of the kernel, a part of a log) is none, and a figure that isn't one is left out."""
    try:
        loaded = json.loads(text) if text else None
    except ValueError:
        return None
    if not isinstance(loaded, dict) or loaded.get("outcome") not in {"Succeeded", "Failed"}:
        return None
    return {key: value for key, value in loaded.items() if isinstance(value, _FIELDS.get(key, object))}


_FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "seconds": (int, float),
    "bytes": int,
    "digest": str,
    "path": str,
    "reason": str,
    "message": str,
}


def fingerprint(wanted: JobParams) -> str:
    """Digest what a Job is made from beside what its name tells: with more memory or time, or another image, it may end otherwise."""
    seconds = wanted.timeout.total_seconds()
    return digest({"image": wanted.image, "resources": wanted.resources, "timeout": seconds})


def worth_another_try(wanted: JobParams, facts: JobFacts, tried: str | None) -> bool:
    """Tell whether a Job that failed is to be made anew since it would be made from something else now.

    Args:
        wanted: What it would be made from.
        facts: The Job.
        tried: Fingerprint of what this resource last had it tried with. Each resource that shares the Job tries its own once.
    """
    return facts.state is JobState.FAILED and fingerprint(wanted) not in {facts.attempt, tried}


def attend(wanted: JobParams, facts: JobFacts | None, snapshot: Snapshot, config: PlanConfig) -> JobAction:
    """Say what is to be done about a Job that this resource needs."""
    namespace = snapshot.owner["metadata"]["namespace"]
    if facts is None:
        return JobAction(wanted.name, wanted)
    held = facts.suspended and not facts.queued_elsewhere
    limits = {"cluster": config.builds, "per_namespace": config.builds_per_namespace}
    start = held and may_start(wanted.name, namespace, snapshot.builds, **limits)
    return JobAction(wanted.name, wanted, start, _to_note(facts))


def _to_note(facts: JobFacts) -> str | None:
    """Give the result to keep on the Job: what its program said, or what became of it where it could say nothing."""
    if facts.recorded or not facts.ended:
        return None
    died = {"version": 1, "outcome": "Failed", "reason": facts.reason, "message": facts.message}
    result = facts.result or (died if facts.state is JobState.FAILED else None)
    return json.dumps(result, separators=(",", ":")) if result else None
