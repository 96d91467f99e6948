"""The story: speech on GPUs, another tenant takes the GPUs, speech on CPUs, the GPUs come back."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from devcluster.demo.speaker import Speaker, Utterance
from devcluster.demo.target import GPU_PRODUCT, PAUSE, Target
from devcluster.demo.watcher import Moment, Watcher
from devcluster.paths import PROJECT
from devcluster.progress import Progress

NAMESPACE, NAME = "tts", "speech"
RESOURCE = PROJECT / "manifests" / "samples" / "gpu-with-cpu-fallback.yaml"
TENANT = Path(__file__).parent / "tenant.yaml"


@dataclass
class Story:
    """What happened: all requests, the resource over time, and the moments that matter (Unix time)."""

    utterances: list[Utterance]
    timeline: list[Moment]
    marks: dict[str, float] = field(default_factory=dict)


async def play(target: Target, progress: Progress) -> Story:
    """Apply the resource, speak without a break, take the GPUs away and give them back.

    Raises:
        TimeoutError: The resource did not get where it should; the message has its conditions.
    """
    _apply(target, RESOURCE.read_text().replace(GPU_PRODUCT, target.product))
    watcher = Watcher(target, NAMESPACE, NAME)
    async with watcher.watching():
        with progress.step("Waiting for speech on the GPU tier"):
            await watcher.until(_serves_on("gpu"), "both units ready on GPUs", 180)
        speaker = Speaker(target.service_url(NAMESPACE, NAME))
        story = Story(speaker.utterances, watcher.timeline)
        async with speaker.speaking():
            await _shortage(target, watcher, story, progress)
    return story


async def _shortage(target: Target, watcher: Watcher, story: Story, progress: Progress) -> None:
    marks = story.marks
    with progress.step("Speaking on GPUs"):
        await asyncio.sleep(6)
    with progress.step("Another tenant takes a GPU; the CPU tier steps in"):
        await asyncio.to_thread(target.kubectl, "apply", "-f", "-", stdin=_tenant(target))
        marks["gpu_lost"] = time.time()
        await _delete_gpu_pod(target)
        await watcher.until(lambda m: m.ready_units < m.units, "the loss is seen", 30)
        marks["promise_kept_again"] = (
            await watcher.until(lambda m: m.ready_units >= m.units, "CPU replaces the unit", 90)
        ).at
    with progress.step("The second GPU goes too; everything is on CPU"):
        marks["second_gpu_lost"] = time.time()
        await _delete_gpu_pod(target)
        marks["all_on_cpu"] = (await watcher.until(_serves_on("cpu"), "both units on CPU", 90)).at
        await asyncio.sleep(5)
    with progress.step("The GPUs come back; so does the first tier"):
        marks["gpus_free_again"] = time.time()
        await asyncio.to_thread(
            target.kubectl, "delete", "-n", "other-tenant", "deployment", "training", "--wait=false"
        )
        back = _serves_on("gpu")
        marks["back_on_gpu"] = (
            await watcher.until(
                lambda m: back(m) and m.conditions.get("FallbackActive") == "False", "both units on GPUs again", 120
            )
        ).at
        await asyncio.sleep(4)


def clean_up(target: Target) -> None:
    """Remove what the story has left: its two namespaces and the other tenant's priority class. The operator stays."""
    target.kubectl("delete", "namespace", NAMESPACE, "other-tenant", "--ignore-not-found", "--timeout=120s")
    target.kubectl("delete", "priorityclass", "other-tenant", "--ignore-not-found")


def _serves_on(tier: str) -> Callable[[Moment], bool]:
    return lambda moment: moment.ready_units >= moment.units > 0 and moment.tier == tier


def _apply(target: Target, resource: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    target.kubectl("apply", "-f", "-", stdin=json.dumps(space))
    target.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=resource)


def _tenant(target: Target) -> str:
    """Give the other tenant's objects, with a pod for every GPU of the type that there is."""
    nodes = target.get("/api/v1/nodes")["items"]
    mine = [node for node in nodes if node["metadata"]["labels"].get("nvidia.com/gpu.product") == target.product]
    gpus = sum(int(node["status"]["allocatable"].get("nvidia.com/gpu", 0)) for node in mine)
    text = TENANT.read_text().replace("PAUSE_IMAGE", target.images[PAUSE])
    return text.replace("replicas: 2", f"replicas: {gpus}")


async def _delete_gpu_pod(target: Target) -> None:
    """Delete one running pod of the GPU tier; it gets its normal grace period, and its successor finds the GPU taken."""
    selector = f"tts.cosyvoice.io/deployment={NAME},tts.cosyvoice.io/tier=gpu"
    query = urllib.parse.urlencode({"labelSelector": selector, "fieldSelector": "status.phase=Running"})
    pods = (await asyncio.to_thread(target.get, f"/api/v1/namespaces/{NAMESPACE}/pods?{query}"))["items"]
    # One that was deleted before still runs while it drains.
    staying = [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    await asyncio.to_thread(target.kubectl, "delete", "pod", "-n", NAMESPACE, staying[0], "--wait=false")
