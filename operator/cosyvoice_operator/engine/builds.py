"""Jobs and their pods, which no single resource owns: who is to look when one changes, and which Job's turn it is.

Everything here costs what one Job costs, not what all of them do: a change of the owners is news for those who came or went only, and
when a build makes room it is the next in turn that are looked at, not all that wait.
"""

from __future__ import annotations

from cosyvoice_operator.core.jobs import age, ticket, turns
from cosyvoice_operator.core.model import BuildTicket, Json
from cosyvoice_operator.core.naming import ENGINE_LABEL, JOB_NAME_LABEL, MODEL_LABEL

Place = tuple[str, str]
"""Namespace and name, of a Job or of a resource that needs one."""

_OWNER = "CosyVoiceDeployment"
_COMPONENT = "app.kubernetes.io/component"
_BUILDS = {"engine": ENGINE_LABEL, "model": MODEL_LABEL}


class Builds:
    """The Jobs of all namespaces. Each change tells which resources are to be looked at."""

    def __init__(self, cluster: int = 8, per_namespace: int = 2) -> None:
        """Make an empty index.

        Args:
            cluster: Builds and fetches that may run at once.
            per_namespace: The same for one namespace.
        """
        self._limits = (cluster, per_namespace)
        self._jobs: dict[str, dict[str, Json]] = {}
        self._pods: dict[str, dict[str, Json]] = {}
        self._tickets: dict[Place, BuildTicket] = {}
        self._starting: set[Place] = set()
        self._aside: set[Place] = set()
        self._view: dict[str, tuple[tuple[Json, ...], tuple[Json, ...]]] = {}
        self._ordered: tuple[BuildTicket, ...] | None = ()

    def put_job(self, job: Json) -> frozenset[Place]:
        """Take in a Job."""
        place = _place(job)
        known = self._jobs.setdefault(place[0], {}).get(place[1])
        self._jobs[place[0]][place[1]] = job
        return self._changed(place, known, job)

    def drop_job(self, namespace: str, name: str) -> frozenset[Place]:
        """Take in that a Job is gone."""
        known = _take(self._jobs, namespace, name)
        return self._changed((namespace, name), known, None) if known else frozenset()

    def put_pod(self, pod: Json) -> frozenset[Place]:
        """Take in a pod of a Job."""
        namespace, name = _place(pod)
        self._pods.setdefault(namespace, {})[name] = pod
        return self._pod_changed(namespace, pod)

    def drop_pod(self, namespace: str, name: str) -> frozenset[Place]:
        """Take in that a pod of a Job is gone."""
        known = _take(self._pods, namespace, name)
        return self._pod_changed(namespace, known) if known else frozenset()

    def of(self, namespace: str) -> tuple[tuple[Json, ...], tuple[Json, ...]]:
        """All Jobs of a namespace, and their pods. Those that an earlier Job of the same name left behind are none of them."""
        view = self._view.get(namespace)
        if view is None:
            jobs = self._jobs.get(namespace, {})
            uids = {job["metadata"]["uid"] for job in jobs.values()}
            pods = (pod for pod in self._pods.get(namespace, {}).values() if _job_uid(pod) in uids)
            view = self._view[namespace] = (tuple(jobs.values()), tuple(pods))
        return view

    def set_aside(self, resource: Place, *, aside: bool) -> frozenset[Place]:
        """Say whether a resource starts no Job, since it is paused or its spec can't be served: others mustn't wait behind its Jobs."""
        if aside is (resource in self._aside):
            return frozenset()
        self._ordered = None
        if not aside:
            self._aside.discard(resource)
            return frozenset({resource})
        self._aside.add(resource)
        return self._owners_of_turns()

    def tickets(self) -> tuple[BuildTicket, ...]:
        """All builds that have not ended and that somebody wants started, the oldest first."""
        if self._ordered is None:
            wanted = (known for known in self._tickets.values() if known.running or self._is_wanted(known))
            self._ordered = tuple(sorted(wanted, key=age))
        return self._ordered

    def count(self, *, running: bool) -> int:
        """Builds that run, or that wait."""
        return sum(known.running is running for known in self._tickets.values())

    def take_turn(self, namespace: str, name: str) -> bool:
        """Ask to start a Job, and hold its place until it is heard of as started, or given back.

        Between a plan and its writes other Jobs may have been made or started; this is what keeps the limits.
        """
        place = (namespace, name)
        if place in self._starting or all((t.namespace, t.name) != place for t in self._turns()):
            return False
        self._starting.add(place)
        return True

    def give_back(self, namespace: str, name: str) -> None:
        """Give up a turn: the Job could not be started."""
        self._starting.discard((namespace, name))

    def _is_wanted(self, known: BuildTicket) -> bool:
        return bool(self._owners(known.namespace, known.name) - self._aside)

    def _owners_of_turns(self) -> frozenset[Place]:
        return frozenset[Place]().union(*(self._owners(turn.namespace, turn.name) for turn in self._turns()))

    def _turns(self) -> list[BuildTicket]:
        return turns(self.tickets(), self._starting, *self._limits)

    def _changed(self, place: Place, known: Json | None, job: Json | None) -> frozenset[Place]:
        self._view.pop(place[0], None)
        before, after = self._tickets.pop(place, None), _ticket(job)
        if after:
            self._tickets[place] = after
        if after is None or after.running:
            self._starting.discard(place)
        if before != after or self._aside:
            self._ordered = None
        touched = _touched(known, job)
        # It has ended, or was taken back, or the last that wanted it started is no longer there.
        makes_room = after is None or (before and before.running and not after.running) or not self._is_wanted(after)
        return touched | self._owners_of_turns() if before and touched and makes_room else touched

    def _pod_changed(self, namespace: str, pod: Json) -> frozenset[Place]:
        self._view.pop(namespace, None)
        return self._owners(namespace, pod["metadata"]["labels"][JOB_NAME_LABEL])

    def _owners(self, namespace: str, name: str) -> frozenset[Place]:
        return _owners(self._jobs.get(namespace, {}).get(name))


def _ticket(job: Json | None) -> BuildTicket | None:
    labels = (job or {"metadata": {}})["metadata"].get("labels") or {}
    return ticket(job) if job and _BUILDS.get(labels.get(_COMPONENT, "")) in labels else None


def _touched(known: Json | None, job: Json | None) -> frozenset[Place]:
    before, after = _owners(known), _owners(job)
    if known and job and _without_owners(known) == _without_owners(job):
        return before ^ after
    return before | after


def _without_owners(job: Json) -> Json:
    return {**job, "metadata": {**job["metadata"], "ownerReferences": None}}


def _owners(job: Json | None) -> frozenset[Place]:
    if job is None:
        return frozenset()
    meta = job["metadata"]
    references = meta.get("ownerReferences") or ()
    return frozenset((meta["namespace"], ref["name"]) for ref in references if ref["kind"] == _OWNER)


def _job_uid(pod: Json) -> str | None:
    references = pod["metadata"].get("ownerReferences") or ()
    return next((ref["uid"] for ref in references if ref.get("controller")), None)


def _place(obj: Json) -> Place:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def _take(index: dict[str, dict[str, Json]], namespace: str, name: str) -> Json | None:
    group = index.get(namespace, {})
    known = group.pop(name, None)
    if not group:
        index.pop(namespace, None)
    return known
