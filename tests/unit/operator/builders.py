"""Builders of raw Kubernetes objects, so that a test says only what matters to it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cosyvoice_operator.api.defaults import Images
from cosyvoice_operator.core.children import DeploymentParams
from cosyvoice_operator.core.clock import format_time
from cosyvoice_operator.core.errors import Blocked
from cosyvoice_operator.core.gpu import parse_node
from cosyvoice_operator.core.jobs import ticket
from cosyvoice_operator.core.model import JobAction, Json, Plan, PlanConfig, ProgressReport, RuntimeReport, Snapshot
from cosyvoice_operator.core.naming import JOB_NAME_LABEL, POOL_LABEL, RESULT_ANNOTATION, REVISION_LABEL
from cosyvoice_operator.core.plan import make_plan
from cosyvoice_operator.render import render

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
CONFIG = PlanConfig(Images(cpu="cpu:1", gateway="gateway:1", triton="triton:1"))
NO_GPU_LEFT = (
    "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) didn't match Pod's node affinity/selector. "
)
GPU_THEN_CPU = [
    {"name": "gpu", "backend": "Triton", "gpu": {"products": ["NVIDIA-L4"]}, "executionProvider": "CPU"},
    {"name": "cpu", "backend": "ONNXRuntime"},
]


def resource(name: str = "hello", **spec: Any) -> Json:
    """Make a CosyVoiceDeployment of family Demo; keyword arguments go into its spec."""
    base = {"model": {"family": "Demo", "source": {"embedded": {"voice": "heart"}}}}
    return {
        "apiVersion": "tts.cosyvoice.io/v1alpha1",
        "kind": "CosyVoiceDeployment",
        "metadata": {"name": name, "namespace": "tts", "uid": f"uid-{name}", "generation": 1},
        "spec": {**base, **spec},
    }


def node(name: str, product: str | None = None, gpus: int = 0, *, ready: bool = True, cordoned: bool = False) -> Json:
    """Make a Node, with GPUs or without."""
    amounts = {"cpu": "8", **({"nvidia.com/gpu": str(gpus)} if product else {})}
    return {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product} if product else {}},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {
            "allocatable": amounts,
            "capacity": dict(amounts),
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def pod(pool: str, name: str, **changes: Any) -> Json:
    """Make a pod of a pool that is waiting to be looked at by the scheduler; the other functions move it on."""
    return {
        "metadata": {
            "name": name,
            "namespace": "tts",
            "uid": f"uid-{name}",
            "creationTimestamp": format_time(NOW),
            "labels": {
                "tts.cosyvoice.io/deployment": "hello",
                "tts.cosyvoice.io/pool": pool,
            },
            **changes,
        },
        "spec": {},
        "status": {"phase": "Pending"},
    }


def pending(pool: str, name: str, message: str = NO_GPU_LEFT) -> Json:
    """Make a pod that no node fits."""
    made = pod(pool, name)
    made["status"]["conditions"] = [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": format_time(NOW),
        }
    ]
    return made


def running(pool: str, name: str, *, ready: datetime | None = None, started: datetime = NOW, restarts: int = 0) -> Json:
    """Make a pod that runs on a node, ready since ``ready`` or not."""
    made = pod(pool, name)
    made["spec"]["nodeName"] = "node-1"
    made["status"] = {
        "phase": "Running",
        "podIP": "10.244.0.9",
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": format_time(started)},
            {
                "type": "Ready",
                "status": "True" if ready else "False",
                "lastTransitionTime": format_time(ready or started),
            },
        ],
        "containerStatuses": [
            {
                "name": "gateway",
                "image": "cpu:1",
                "restartCount": restarts,
                "state": {"running": {"startedAt": format_time(started)}},
            }
        ],
    }
    return made


def stuck(pool: str, name: str, reason: str, message: str = "", *, restarts: int = 0) -> Json:
    """Make a pod whose gateway container waits for ``reason``."""
    made = running(pool, name, restarts=restarts)
    made["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": reason, "message": message}}
    return made


def job_pod(job: str, state: Json, **changes: Any) -> Json:
    """Make the pod of a Job, with its container in ``state``."""
    made = pod("", f"{job}-x", **changes)
    made["metadata"]["labels"] = {JOB_NAME_LABEL: job}
    made["spec"]["nodeName"] = "node-1"
    made["status"]["containerStatuses"] = [{"name": "work", "image": "builder:1", "state": state}]
    return made


def report(**changes: Any) -> RuntimeReport:
    """Make what a healthy CPU runtime says of itself."""
    base = RuntimeReport(
        ready=True, family="Demo", backend="ONNXRuntime", provider="CPU", load_seconds=0.4, engine_key=None
    )
    return replace(base, **changes)


@dataclass
class World:
    """One resource and what is around it; `plan` plans, and writes status and children back as the operator would."""

    owner: Json
    nodes: list[Json] = field(default_factory=list)
    pods: list[Json] = field(default_factory=list)
    children: dict[tuple[str, str], Json] = field(default_factory=dict)
    reports: dict[str, RuntimeReport] = field(default_factory=dict)
    blocked: tuple[Blocked, ...] = ()
    jobs: dict[str, Json] = field(default_factory=dict)
    job_pods: list[Json] = field(default_factory=list)
    progress: dict[str, ProgressReport] = field(default_factory=dict)
    now: datetime = NOW

    def snapshot(self) -> Snapshot:
        self._stamp_pods()
        return Snapshot(
            owner=self.owner,
            children=tuple(self.children.values()),
            pods=tuple(self.pods),
            nodes=tuple(parse_node(raw) for raw in self.nodes),
            reports=self.reports,
            blocked=self.blocked,
            jobs=tuple(self.jobs.values()),
            job_pods=tuple(self.job_pods),
            progress=self.progress,
            builds=tuple(filter(None, map(ticket, self.jobs.values()))),
        )

    def plan(self, after: timedelta = timedelta(0)) -> Plan:
        """Let time pass, plan, and apply the plan: Deployments are settled at once."""
        self.now += after
        made = make_plan(self.snapshot(), CONFIG, self.now)
        for child in made.children:
            built = render(child)
            known = self.children.get((built["kind"], built["metadata"]["name"]))
            if known and isinstance(child, DeploymentParams) and child.hold:
                built["spec"]["template"] = known["spec"]["template"]
            if built["kind"] == "Deployment":
                count = built["spec"]["replicas"]
                built["metadata"]["generation"] = 1
                built["status"] = {"observedGeneration": 1, "updatedReplicas": count, "replicas": count}
            self.children[built["kind"], built["metadata"]["name"]] = built
        for action in made.jobs:
            self._carry_out(action)
        self.owner["status"] = made.status
        return made

    def _carry_out(self, action: JobAction) -> None:
        job = self.jobs.get(action.name)
        if action.delete or action.wanted is None:
            self.jobs.pop(action.name, None)
        elif job is None:
            job = render(action.wanted)
            job["metadata"] |= {
                "creationTimestamp": format_time(self.now),
                "ownerReferences": [{"uid": self.owner["metadata"]["uid"], "controller": False}],
            }
            self.jobs[action.name] = job
        elif action.start:
            job["spec"]["suspend"] = False
        if job and action.result:
            job["metadata"].setdefault("annotations", {})[RESULT_ANNOTATION] = action.result

    def finish(self, name: str, **result: Any) -> None:
        """Let a Job end as its program says: its pod leaves ``result``."""
        outcome = {"version": 1, "outcome": "Succeeded", **result}
        kind = "Complete" if outcome["outcome"] == "Succeeded" else "Failed"
        condition = {"type": kind, "status": "True", "reason": "", "lastTransitionTime": format_time(self.now)}
        self.jobs[name]["status"] = {"conditions": [condition]}
        self.job_pods.append(job_pod(name, {"terminated": {"exitCode": 0, "message": json.dumps(outcome)}}))

    def _stamp_pods(self) -> None:
        """Say of pods that are new here that they were made from their Deployment's template as it is now."""
        for made in self.pods:
            deployment = self.children.get(("Deployment", made["metadata"]["labels"][POOL_LABEL]))
            if deployment:
                labels = deployment["spec"]["template"]["metadata"]["labels"]
                made["metadata"]["labels"].setdefault(REVISION_LABEL, labels[REVISION_LABEL])

    def replicas(self) -> dict[str, int]:
        """Give the replicas of each Deployment."""
        return {
            name: child["spec"]["replicas"] for (kind, name), child in self.children.items() if kind == "Deployment"
        }

    def condition(self, name: str) -> Json:
        """Give one condition of the status."""
        return next(c for c in self.owner["status"]["conditions"] if c["type"] == name)

    def pool(self, name: str) -> Json:
        """Give one pool of the status."""
        return next(p for p in self.owner["status"]["pools"] if p["name"] == name)


QUICK = {"after": "10s", "recoverAfter": "20s", "minimumDwell": "30s"}
L4 = node("node-1", "NVIDIA-L4", 2)


def gpu_world(replicas: int = 2) -> World:
    """A resource on a GPU tier with a CPU tier below, in a cluster with L4 cards; nothing has been planned yet."""
    return World(resource(replicas=replicas, tiers=GPU_THEN_CPU, failover=QUICK), nodes=[L4])


def serving_on_gpu() -> World:
    """The same, long ready on two GPU pods."""
    world = gpu_world()
    world.plan()
    world.pods = [running("hello-gpu-l4", f"g{n}", ready=NOW) for n in range(2)]
    world.plan(60 * SECOND)
    assert world.condition("Ready")["status"] == "True"
    return world
