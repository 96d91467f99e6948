"""What state a pool is in, and why: from evidence in pods and nodes, never by guessing.

Each policy looks at one kind of evidence and gives a finding or nothing; :data:`POLICIES` is their order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from cosyvoice_operator.core.gpu import Supply
from cosyvoice_operator.core.pods import PodFacts, Waiting


class PoolState(StrEnum):
    """States of a pool, as they stand in ``status.pools[].state``."""

    IDLE = "Idle"
    """Nothing is asked of it: the pools above serve."""
    STARTING = "Starting"
    """Its pods have a node, or are about to get one, and aren't all ready yet."""
    SERVING = "Serving"
    """All pods that it was asked for are ready."""
    WAITING_FOR_ENGINE = "WaitingForEngine"
    """Its engine isn't built yet; the pools after it serve."""
    EXHAUSTED = "Exhausted"
    """No node has room for a pod, though nodes of the right kind exist."""
    NO_SUCH_GPU = "NoSuchGPU"
    """No usable node has this GPU type."""
    MISCONFIGURED = "Misconfigured"
    """Pods can't start or be placed until a person changes something; never a reason to fall back."""
    UNSUPPORTED_GPU = "UnsupportedGPU"
    """Its GPU type is too small or too old for the model, or nothing tells what it is; the pools after it serve."""
    LOAD_FAILED = "LoadFailed"
    """Containers run, but the model does not load, or does not compute where it should."""


SHORTAGES = frozenset({PoolState.EXHAUSTED, PoolState.NO_SUCH_GPU, PoolState.LOAD_FAILED})
"""States in which the pools below take over after ``failover.after``."""

TRIMMED = frozenset({PoolState.EXHAUSTED, PoolState.NO_SUCH_GPU})
"""Shortages that leave pods waiting for a node."""


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """All that the policies look at.

    Attributes:
        name: The pool's name, for messages.
        gpu_type: Normalised GPU product; None on a CPU pool.
        resource: What a pod of this pool needs of a node: the GPU resource, or ``cpu``.
        supply: Nodes of the GPU type; None on a CPU pool.
        pods: This pool's pods.
        revision: What the Deployment makes pods from now; empty before it is made.
        engine_wait: Why it has no engine to serve from; empty when it has one, or needs none.
        desired: Pods that were asked for.
        load_timeout: ``runtime.loadTimeout``.
        expected_provider: ``executionProvider`` of the tier.
        provider: What the runtime last reported; None before its first report.
        previous: The state of the last plan; None for a new pool.
        now: The time of this plan.
        refusal: Why the API server lets the ReplicaSet make no pod; empty while it does.
        unsupported: Why the GPU type can't serve; empty when it can.
    """

    name: str
    gpu_type: str | None
    resource: str
    supply: Supply | None
    pods: tuple[PodFacts, ...]
    desired: int
    load_timeout: timedelta
    expected_provider: str
    provider: str | None
    previous: PoolState | None
    now: datetime
    refusal: str = ""
    unsupported: str = ""
    revision: str = ""
    engine_wait: str = ""

    @property
    def live(self) -> tuple[PodFacts, ...]:
        """Pods that serve or may come to serve."""
        return tuple(pod for pod in self.pods if not pod.leaving)

    @property
    def newest(self) -> tuple[PodFacts, ...]:
        """Live pods of the revision that is being rolled out.

        What keeps their forerunners from serving may be just what the edit corrected, and they stay until these are ready.
        """
        return tuple(pod for pod in self.live if pod.revision == self.revision)

    @property
    def missing(self) -> int:
        """Pods that were asked for and have no node."""
        return self.desired - sum(pod.scheduled for pod in self.live)

    @property
    def provider_mismatch(self) -> bool:
        """The runtime computes elsewhere than the tier says."""
        return self.provider is not None and self.provider != self.expected_provider


@dataclass(frozen=True, slots=True)
class Finding:
    """A state with its reason (CamelCase) and a message that names the object, the number and the next step."""

    state: PoolState
    reason: str
    message: str


def classify(facts: PoolFacts) -> Finding:
    """Give the first finding in the order of :data:`POLICIES`."""
    return next(finding for policy in POLICIES if (finding := policy(facts)) is not None)


def idle(facts: PoolFacts) -> Finding | None:
    """Nothing is asked of this pool."""
    if facts.desired or facts.live:
        return None
    return Finding(PoolState.IDLE, "NotNeeded", f"Pool {facts.name} is not needed: the tiers above it serve.")


def unsupported_gpu(facts: PoolFacts) -> Finding | None:
    """No pod of this GPU type would come to serve, however long one waits."""
    if not facts.unsupported:
        return None
    which = f"pool {facts.name}" if facts.gpu_type else f"pool {facts.name}, which takes every GPU type"
    message = (
        f"No GPU serves {which}. {facts.unsupported} `cosyvoice-operator gpus` lists all types and what they can serve."
    )
    return Finding(PoolState.UNSUPPORTED_GPU, "UnsupportedGPU", message)


def no_such_gpu(facts: PoolFacts) -> Finding | None:
    """Pods lack a node, and no usable node has their GPU type."""
    if facts.supply is None or facts.supply.usable or facts.missing <= 0:
        return None
    if facts.supply.nodes:
        message = (
            f"{facts.supply.nodes} node(s) have GPU type {facts.gpu_type}, but each is cordoned, not Ready, under pressure, or has no "
            f"allocatable {facts.resource}. Check the nodes and the device plugin."
        )
        return Finding(PoolState.NO_SUCH_GPU, "NoUsableNode", message)
    which = f"GPU type {facts.gpu_type} with {facts.resource}" if facts.gpu_type else f"a GPU ({facts.resource})"
    message = f"No node has {which}. Add such a node, or change gpu of the tier; `cosyvoice-operator gpus` lists what is there."
    return Finding(PoolState.NO_SUCH_GPU, "NoSuchGPU", message)


def waiting_for_engine(facts: PoolFacts) -> Finding | None:
    """There is nothing that pods could serve from."""
    if not facts.engine_wait:
        return None
    return Finding(
        PoolState.WAITING_FOR_ENGINE, "NoEngine", f"Pool {facts.name} has no engine yet. {facts.engine_wait}"
    )


def refused(facts: PoolFacts) -> Finding | None:
    """Pods aren't even made: a quota is used up, or an admission rule, a priority class or the like stands against them."""
    if not facts.refusal or len(facts.live) >= facts.desired:
        return None
    # The name of the pod is a new one with each try; status must not change with it.
    cause = _brief(re.sub(r'^pods "[^"]*" is forbidden: ', "", facts.refusal)).rstrip(".")
    what = f"{facts.desired - len(facts.live)} of {facts.desired} pod(s) of pool {facts.name} can't be made: {cause}."
    if "exceeded quota" in cause:
        return Finding(
            PoolState.EXHAUSTED, "QuotaExceeded", f"{what} Raise the quota of the namespace, or ask for less."
        )
    return Finding(PoolState.MISCONFIGURED, "PodsRefused", f"{what} Correct what the message names.")


def exhausted(facts: PoolFacts) -> Finding | None:
    """The scheduler says that nodes of the right kind have no room for what a pod needs."""
    waiting = [pod for pod in facts.live if pod.pending and _insufficient(pod.unschedulable or "", facts)]
    if waiting:
        message = (
            f"{len(waiting)} of {facts.desired} pod(s) of pool {facts.name} found no free {facts.resource}: "
            f"{_brief(waiting[0].unschedulable or '')}"
        )
        return Finding(PoolState.EXHAUSTED, f"Insufficient{_camel(facts.resource)}", message)
    # A pod that was withdrawn or replaced has not been looked at by the scheduler yet: the shortage isn't over for that.
    if facts.previous is PoolState.EXHAUSTED and facts.missing > 0 and not any(p.pending for p in facts.live):
        message = f"{facts.missing} of {facts.desired} pod(s) of pool {facts.name} wait for a node with free {facts.resource}."
        return Finding(PoolState.EXHAUSTED, f"Insufficient{_camel(facts.resource)}", message)
    return None


def misconfigured(facts: PoolFacts) -> Finding | None:
    """A pod can't be started, or placed, for a reason that more capacity would not cure."""
    for pod in facts.newest:
        if pod.waiting and pod.waiting.reason in _CONTAINER_REASONS:
            return _container_finding(pod, pod.waiting)
    for pod in facts.newest:
        if pod.pending:
            message = f"Pod {pod.name} can't be placed on any node: {_brief(pod.unschedulable or '')}"
            return Finding(PoolState.MISCONFIGURED, "Unschedulable", message)
    return None


def load_failed(facts: PoolFacts) -> Finding | None:
    """Containers run, but crash, stay unready beyond the load timeout, or compute on the wrong execution provider."""
    for pod in facts.newest:
        if pod.waiting and pod.waiting.reason == "CrashLoopBackOff":
            message = (
                f"Container {pod.waiting.container} of pod {pod.name} keeps crashing ({pod.restarts} restarts)"
                f"{_quoted(pod.waiting.last_words)}. See `kubectl logs {pod.name} -c {pod.waiting.container} --previous`."
            )
            return Finding(PoolState.LOAD_FAILED, "CrashLoop", message)
    for pod in facts.newest:
        # Between two crashes the container runs for a moment: a failure lasts until the pod is ready.
        if facts.previous is PoolState.LOAD_FAILED and pod.starting and pod.restarts:
            message = f"Pod {pod.name} is not ready after {pod.restarts} restart(s). See `kubectl logs {pod.name} --previous`."
            return Finding(PoolState.LOAD_FAILED, "CrashLoop", message)
        if pod.starting and pod.loading_since and facts.now - pod.loading_since > facts.load_timeout:
            message = (
                f"Pod {pod.name} is not ready after {int(facts.load_timeout.total_seconds())} s (runtime.loadTimeout). "
                f"See `kubectl logs {pod.name} --all-containers`."
            )
            return Finding(PoolState.LOAD_FAILED, "LoadTimeout", message)
    if facts.provider_mismatch:
        message = (
            f"Pool {facts.name} should compute on {facts.expected_provider}, but its runtime reports {facts.provider}. "
            f"Check the driver and the image, or set executionProvider: {facts.provider} on the tier if that is meant."
        )
        return Finding(PoolState.LOAD_FAILED, "ProviderMismatch", message)
    return None


def settled(facts: PoolFacts) -> Finding:
    """Nothing is wrong: ready, or on the way."""
    ready = sum(pod.ready_since is not None for pod in facts.live)
    if ready >= facts.desired:
        return Finding(PoolState.SERVING, "AllReady", f"All {facts.desired} pod(s) of pool {facts.name} are ready.")
    return Finding(
        PoolState.STARTING,
        "PodsStarting",
        f"{ready} of {facts.desired} pod(s) of pool {facts.name} are ready; the others start.",
    )


POLICIES: tuple[Callable[[PoolFacts], Finding | None], ...] = (
    idle,
    unsupported_gpu,
    no_such_gpu,
    waiting_for_engine,
    refused,
    exhausted,
    misconfigured,
    load_failed,
    settled,
)

_IMAGE_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
)
_CONTAINER_REASONS = _IMAGE_REASONS | {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}


def _insufficient(message: str, facts: PoolFacts) -> bool:
    """Read the scheduler's text: ``0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) ...``.

    A GPU pool is exhausted only by its own GPU resource: short memory beside a free GPU is a matter of the pod's requests.
    """
    named = set(re.findall(r"Insufficient ([A-Za-z0-9./_-]*[A-Za-z0-9])", message))
    return facts.resource in named if facts.supply is not None else bool(named)


def _container_finding(pod: PodFacts, waiting: Waiting) -> Finding:
    """Tell what a person must correct.

    The kubelet alternates between ErrImagePull and ImagePullBackOff, which says the same with a prefix: both give one text here, so that
    status is not rewritten every few seconds.
    """
    what = f"Container {waiting.container} of pod {pod.name}"
    cause = _brief(waiting.message.rpartition("ErrImagePull: ")[-1]).rstrip(".")
    if waiting.reason in _IMAGE_REASONS:
        message = f"{what} can't get its image {waiting.image}: {cause}. Correct the image, or add a pull secret."
        return Finding(PoolState.MISCONFIGURED, "ImagePull", message)
    return Finding(
        PoolState.MISCONFIGURED, waiting.reason, f"{what} can't start: {cause}. Correct what the message names."
    )


def _quoted(last_words: str) -> str:
    """Give the last line that a container left: the one that says why it ended."""
    lines = [line.strip() for line in last_words.splitlines() if line.strip()]
    return f": {_brief(lines[-1]).rstrip('.')}" if lines else ""


def _brief(message: str) -> str:
    """Drop the scheduler's second sentence, on preemption: it repeats the node count and says nothing a person can act on."""
    text = message.split(" preemption:", maxsplit=1)[0].strip()
    return text if len(text) <= 400 else text[:397] + "..."


def _camel(resource: str) -> str:
    return "GPU" if "/" in resource else resource.capitalize()
