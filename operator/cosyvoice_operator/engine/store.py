"""What is known of the cluster: the last version seen of each object that concerns us, under the resource that it belongs to.

It is fed by watches, by the answers of our own writes and by resyncs, in any order. What is older than what is stored is dropped, so a
reconcile reads its own writes, and a slow watch never takes it back in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from cosyvoice_operator.core.children import ChildParams, ObjectRef
from cosyvoice_operator.core.errors import Blocked
from cosyvoice_operator.core.gpu import NodeFacts, NodeRule, SliceFacts, merge_slices, parse_node, parse_slice
from cosyvoice_operator.core.model import Json, ProgressReport, RuntimeReport, Snapshot
from cosyvoice_operator.core.naming import DEPLOYMENT_LABEL, JOB_NAME_LABEL
from cosyvoice_operator.engine.builds import Builds
from cosyvoice_operator.engine.trim import trim_child, trim_job, trim_owner, trim_pod

_T = TypeVar("_T")

Key = tuple[str, str]
"""Namespace and name of a CosyVoiceDeployment."""

Ident = tuple[str, str, str]
"""Kind, namespace and name of any object."""

OWNER, NODE, SLICE, POD, JOB = "CosyVoiceDeployment", "Node", "ResourceSlice", "Pod", "Job"


@dataclass(slots=True)
class Entry:
    """One stored object.

    Attributes:
        obj: What is kept of it; see :mod:`cosyvoice_operator.engine.trim`.
        uid: Tells it from an earlier object of the same name.
        version: Its resource version.
        key: The resource it belongs to; None for what concerns them all, and for what several share (Jobs, and their pods).
        settled: Parameters that it is known to satisfy as it is, so that a reconcile about something else needn't compare again.
    """

    obj: Json
    uid: str
    version: int
    key: Key | None
    settled: ChildParams | None = None


def ident(kind: str, obj: Json) -> Ident:
    """Say where an object is."""
    meta = obj["metadata"]
    return kind, meta.get("namespace", ""), meta["name"]


def is_controlled_by(obj: Json, uid: str) -> bool:
    """Tell whether the object's controller is the one with this uid."""
    return any(ref.get("controller") and ref.get("uid") == uid for ref in obj["metadata"].get("ownerReferences") or ())


class Store:
    """Everything known, by kind. Only the event loop's thread touches it."""

    def __init__(self, gpu_rules: tuple[NodeRule, ...] = (), builds: Builds | None = None) -> None:
        """Make an empty store.

        Args:
            gpu_rules: The GPU types of nodes that no label tells.
            builds: Keeps the Jobs.
        """
        self.builds = builds or Builds()
        self._gpu_rules = gpu_rules
        self._entries: dict[Ident, Entry] = {}
        self._gone: dict[Ident, int] = {}  # versions at which objects were deleted, until the next resync
        self._children: dict[Key, dict[ObjectRef, Entry]] = {}
        self._pods: dict[Key, dict[str, Entry]] = {}
        self._nodes: dict[str, NodeFacts] = {}
        self._slices: dict[str, SliceFacts] = {}
        self._node_facts: tuple[NodeFacts, ...] | None = ()
        self._reports: dict[str, tuple[str, RuntimeReport]] = {}  # by pod uid
        self._progress: dict[str, ProgressReport] = {}  # by pod uid
        self.blocked: dict[Key, tuple[Blocked, ...]] = {}

    def update(self, kind: str, obj: Json) -> frozenset[Key] | None:
        """Take in an object.

        Returns:
            Resources to look at again; None for all of them (a node changed). Nothing when it is old, or changed in nothing that matters.
        """
        where = ident(kind, obj)
        version = int(obj["metadata"]["resourceVersion"])
        known = self._entries.get(where)
        if version <= self._gone.get(where, 0) or (known is not None and version <= known.version):
            return frozenset()
        if kind in {NODE, SLICE}:
            # Neither is kept itself: a node is the largest object of all, with an image list of its own.
            self._entries[where] = Entry({}, obj["metadata"]["uid"], version, None)
            return self._update_node(obj) if kind == NODE else self._update_slice(obj)
        entry = self._entry(kind, obj, version, known.obj if known else {})
        if known is not None and known.key != entry.key:
            # Its label was changed by hand: it leaves one resource and may join another.
            affected = self._unlink(where, known)
            return affected | self._link(where, entry)
        if known is None:
            return self._link(where, entry)
        same = known.uid == entry.uid and known.obj == entry.obj
        if same or (known.uid == entry.uid and _differs_in_status_only(known.obj, entry.obj)):
            entry.settled = known.settled
        touched = self._link(where, entry)
        return frozenset() if same else touched

    def confirm(self, kind: str, obj: Json) -> frozenset[Key] | None:
        """Take in an object that was read just now, whatever a watch has said; see :meth:`update` for what it returns.

        To a watch with a label selector an object that lost the label is deleted, at the very version that it then has.
        """
        where = ident(kind, obj)
        if self._gone.get(where, 0) <= int(obj["metadata"]["resourceVersion"]):
            self._gone.pop(where, None)
        return self.update(kind, obj)

    def remove(self, kind: str, obj: Json) -> frozenset[Key] | None:
        """Take in that an object was deleted; see :meth:`update` for what it returns."""
        where = ident(kind, obj)
        version = int(obj["metadata"]["resourceVersion"])
        known = self._entries.get(where)
        self._gone[where] = max(version, self._gone.get(where, 0))
        if known is None or (known.version > version and known.uid != obj["metadata"]["uid"]):
            return frozenset()
        return self._drop(where, known)

    def retain(self, kind: str, listed: Iterable[Ident], version: int) -> frozenset[Key] | None:
        """Drop objects of a kind that a complete list at ``version`` didn't hold; see :meth:`update` for what it returns."""
        seen = set(listed)
        ghosts = [
            (where, entry)
            for where, entry in self._entries.items()
            if where[0] == kind and where not in seen and entry.version <= version
        ]
        self._gone = {where: at for where, at in self._gone.items() if where[0] != kind or at > version}
        affected: frozenset[Key] | None = frozenset()
        for where, entry in ghosts:
            more = self._drop(where, entry)
            affected = None if affected is None or more is None else affected | more
        return affected

    def forget_object(self, ref: ObjectRef) -> frozenset[Key] | None:
        """Forget a child that the server says isn't there; see :meth:`update` for what it returns."""
        where = (ref.kind, ref.namespace, ref.name)
        entry = self._entries.get(where)
        return self._drop(where, entry) if entry else frozenset()

    def keys(self) -> list[Key]:
        """All resources known."""
        return [(namespace, name) for kind, namespace, name in self._entries if kind == OWNER]

    def owner(self, key: Key) -> Json | None:
        """The raw resource; None when there is none."""
        entry = self._entries.get((OWNER, *key))
        return entry.obj if entry else None

    def child(self, ref: ObjectRef) -> Entry | None:
        """One child, whoever controls it."""
        return self._entries.get((ref.kind, ref.namespace, ref.name))

    def children(self, key: Key) -> Mapping[ObjectRef, Entry]:
        """All children that carry the label of ``key``."""
        return self._children.get(key, {})

    def settle(self, ref: ObjectRef, params: ChildParams, version: int) -> None:
        """Note that a child satisfies ``params`` in this version, unless a later one is known by now: that may be somebody's edit."""
        entry = self.child(ref)
        if entry and entry.version <= version:
            entry.settled = params

    def report(self, pod_uid: str) -> RuntimeReport | None:
        """The last report of a pod."""
        known = self._reports.get(pod_uid)
        return known[1] if known else None

    def set_report(self, report_key: str, report: RuntimeReport) -> bool:
        """Keep what a runtime pod said, and tell whether that is news. ``report_key`` is the pod's uid, a slash and its restarts."""
        uid = report_key.partition("/")[0]
        news = self._reports.get(uid) != (report_key, report)
        self._reports[uid] = (report_key, report)
        return news

    def set_progress(self, pod_uid: str, report: ProgressReport) -> bool:
        """Keep what the pod of a Job said, and tell whether that is news."""
        news = self._progress.get(pod_uid) != report
        self._progress[pod_uid] = report
        return news

    def snapshot(self, key: Key) -> Snapshot | None:
        """Everything known of one resource; None when the resource itself is gone."""
        owner = self.owner(key)
        if owner is None:
            return None
        pods = tuple(entry for _, entry in sorted(self._pods.get(key, {}).items()))
        reports = (self._reports[pod.uid] for pod in pods if pod.uid in self._reports)
        jobs, job_pods = self.builds.of(key[0])
        return Snapshot(
            owner=owner,
            children=tuple(entry.obj for entry in self.children(key).values()),
            pods=tuple(pod.obj for pod in pods),
            nodes=self._all_nodes(),
            reports=dict(reports),
            blocked=self.blocked.get(key, ()),
            jobs=jobs,
            job_pods=job_pods,
            builds=self.builds.tickets(),
            progress=self._progress,
        )

    def sizes(self) -> dict[str, int]:
        """How many objects of each kind are stored."""
        sizes: dict[str, int] = {}
        for kind, _, _ in self._entries:
            sizes[kind] = sizes.get(kind, 0) + 1
        return sizes

    def _all_nodes(self) -> tuple[NodeFacts, ...]:
        if self._node_facts is None:
            nodes = (facts for _, facts in sorted(self._nodes.items()))
            self._node_facts = merge_slices(nodes, (facts for _, facts in sorted(self._slices.items())))
        return self._node_facts

    def _update_node(self, obj: Json) -> frozenset[Key] | None:
        facts = parse_node(obj, self._gpu_rules)
        known = self._nodes.get(facts.name)
        if known == facts:
            return frozenset()
        self._nodes[facts.name] = facts
        self._node_facts = None
        # Only GPUs are planned with: nodes without any come and go by the hundred, and change no plan.
        counts = (
            facts.offers or (known and known.offers) or any(held.node == facts.name for held in self._slices.values())
        )
        return None if counts else frozenset()

    def _update_slice(self, obj: Json) -> frozenset[Key] | None:
        facts = parse_slice(obj)
        name = obj["metadata"]["name"]
        # Other drivers' slices are as many, and change no plan either.
        if not facts.node or self._slices.get(name) == facts:
            return frozenset()
        self._slices[name] = facts
        self._node_facts = None
        return None

    def _entry(self, kind: str, obj: Json, version: int, known: Json) -> Entry:
        meta = obj["metadata"]
        if kind == OWNER:
            return Entry(trim_owner(obj, known), meta["uid"], version, (meta["namespace"], meta["name"]))
        name = (meta.get("labels") or {}).get(DEPLOYMENT_LABEL)
        if kind == JOB and not name:
            return Entry(trim_job(obj, known), meta["uid"], version, None)
        trimmed = trim_pod(obj, known) if kind == POD else trim_child(obj, kind, known)
        key = (meta["namespace"], name) if name and not _of_job(trimmed) else None
        return Entry(trimmed, meta["uid"], version, key)

    def _link(self, where: Ident, entry: Entry) -> frozenset[Key]:
        self._entries[where] = entry
        kind, namespace, name = where
        if kind == JOB and entry.key is None:
            return self.builds.put_job(entry.obj)
        if kind == POD and _of_job(entry.obj):
            return self.builds.put_pod(entry.obj)
        if entry.key and kind == POD:
            self._pods.setdefault(entry.key, {})[name] = entry
        elif entry.key and kind != OWNER:
            self._children.setdefault(entry.key, {})[ObjectRef(kind, namespace, name)] = entry
        return _keys(entry)

    def _unlink(self, where: Ident, entry: Entry) -> frozenset[Key]:
        kind, namespace, name = where
        if kind == JOB and entry.key is None:
            return self.builds.drop_job(namespace, name)
        if kind == POD and _of_job(entry.obj):
            return self.builds.drop_pod(namespace, name)
        if entry.key and kind == POD:
            _take(self._pods, entry.key, name)
        elif entry.key and kind != OWNER:
            _take(self._children, entry.key, ObjectRef(kind, namespace, name))
        return _keys(entry)

    def _drop(self, where: Ident, entry: Entry) -> frozenset[Key] | None:
        del self._entries[where]
        if where[0] == SLICE and self._slices.pop(where[2], None) is None:
            return frozenset()
        if where[0] in {NODE, SLICE}:
            if where[0] == NODE:
                self._nodes.pop(where[2], None)
            self._node_facts = None
            return None
        if where[0] == POD:
            self._reports.pop(entry.uid, None)
            self._progress.pop(entry.uid, None)
        if where[0] == OWNER and entry.key:
            self.blocked.pop(entry.key, None)
        return self._unlink(where, entry)


def _of_job(obj: Json) -> bool:
    return JOB_NAME_LABEL in (obj["metadata"].get("labels") or {})


def _keys(entry: Entry) -> frozenset[Key]:
    return frozenset({entry.key}) if entry.key else frozenset()


def _take(index: dict[Key, dict[_T, Entry]], key: Key, item: _T) -> None:
    group = index.get(key, {})
    group.pop(item, None)
    if not group:
        index.pop(key, None)


def _differs_in_status_only(old: Json, new: Json) -> bool:
    return {**old, "status": None} == {**new, "status": None}
