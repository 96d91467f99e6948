"""The story: speech on GPUs, another tenant takes the GPUs, speech on CPUs, the GPUs come back."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from devcluster.cluster import Cluster
from devcluster.demo.speaker import Speaker, Utterance
from devcluster.demo.watcher import Moment, Watcher
from devcluster.progress import Progress

NAMESPACE, NAME = "tts", "hello"
HERE = Path(__file__).parent


@dataclass
class Story:
    """What happened: all requests, the resource over time, and the moments that matter (Unix time)."""

    utterances: list[Utterance]
    timeline: list[Moment]
    marks: dict[str, float] = field(default_factory=dict)


async def play(cluster: Cluster, pause_image: str, progress: Progress) -> Story:
    """Apply the resource, speak without a break, take the GPUs away and give them back.

    Raises:
        TimeoutError: The resource did not get where it should; the message has its conditions.
    """
    _apply(cluster, HERE / "speech.yaml", NAMESPACE)
    watcher = Watcher(cluster.api, NAMESPACE, NAME)
    async with watcher.watching():
        with progress.step("Waiting for speech on the GPU tier"):
            await watcher.until(_serves_on("gpu"), "both units ready on GPUs", 180)
        speaker = Speaker(f"http://{_service_ip(cluster)}")
        story = Story(speaker.utterances, watcher.timeline)
        async with speaker.speaking():
            await _shortage(cluster, watcher, story, pause_image, progress)
    return story


async def _shortage(cluster: Cluster, watcher: Watcher, story: Story, pause_image: str, progress: Progress) -> None:
    marks = story.marks
    with progress.step("Speaking on GPUs"):
        await asyncio.sleep(6)
    with progress.step("Another tenant takes a GPU; the CPU tier steps in"):
        tenant = (HERE / "tenant.yaml").read_text().replace("PAUSE_IMAGE", pause_image)
        cluster.kubectl("apply", "-f", "-", stdin=tenant)
        marks["gpu_lost"] = time.time()
        await _delete_gpu_pod(cluster)
        await watcher.until(lambda m: m.ready_units < m.units, "the loss is seen", 30)
        marks["promise_kept_again"] = (
            await watcher.until(lambda m: m.ready_units >= m.units, "CPU replaces the unit", 90)
        ).at
    with progress.step("The second GPU goes too; everything is on CPU"):
        marks["second_gpu_lost"] = time.time()
        await _delete_gpu_pod(cluster)
        marks["all_on_cpu"] = (await watcher.until(_serves_on("cpu"), "both units on CPU", 90)).at
        await asyncio.sleep(5)
    with progress.step("The GPUs come back; so does the first tier"):
        marks["gpus_free_again"] = time.time()
        await asyncio.to_thread(
            cluster.kubectl, "delete", "-n", "other-tenant", "deployment", "training", "--wait=false"
        )
        back = _serves_on("gpu")
        marks["back_on_gpu"] = (
            await watcher.until(
                lambda m: back(m) and m.conditions.get("FallbackActive") == "False", "both units on GPUs again", 120
            )
        ).at
        await asyncio.sleep(4)


def _serves_on(tier: str) -> Callable[[Moment], bool]:
    return lambda moment: moment.ready_units >= moment.units > 0 and moment.tier == tier


def _apply(cluster: Cluster, file: Path, namespace: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    space = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}})
    cluster.kubectl("apply", "-f", "-", stdin=space)
    cluster.kubectl("apply", "-n", namespace, "-f", str(file))


def _service_ip(cluster: Cluster) -> str:
    return cluster.kubectl("get", "service", "-n", NAMESPACE, NAME, "-o", "jsonpath={.spec.clusterIP}")


async def _delete_gpu_pod(cluster: Cluster) -> None:
    """Delete one running pod of the GPU tier; it gets its normal grace period, and its successor finds the GPU taken."""
    selector = f"tts.cosyvoice.io/deployment={NAME},tts.cosyvoice.io/tier=gpu"
    names = cluster.kubectl(
        "get",
        "pods",
        "-n",
        NAMESPACE,
        "-l",
        selector,
        "--field-selector=status.phase=Running",
        "-o",
        "jsonpath={.items[*].metadata.name}",
    ).split()
    await asyncio.to_thread(cluster.kubectl, "delete", "pod", "-n", NAMESPACE, names[0], "--wait=false")
