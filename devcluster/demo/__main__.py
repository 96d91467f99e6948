"""Run the demo: `python -m devcluster.demo`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from devcluster.cluster import Cluster
from devcluster.demo import report
from devcluster.demo.install import IMAGES, install
from devcluster.demo.scenario import play
from devcluster.errors import DevClusterError
from devcluster.images import load_source, pause_image
from devcluster.options import FakeGpus, Options
from devcluster.progress import ConsoleProgress, Progress


def main() -> int:
    """Run the whole demo; the exit status is 0 only when no request failed."""
    parser = argparse.ArgumentParser(prog="devcluster.demo", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("demo-out"), help="where to write the sound, the picture and the figures"
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster running, to look around")
    parsed = parser.parse_args()
    progress = ConsoleProgress(sys.stdout)
    begun = time.monotonic()
    try:
        summary = run(parsed.out, progress, keep=parsed.keep)
    except (DevClusterError, TimeoutError) as error:
        progress.note(f"[red]error:[/] {error}")
        return 1
    progress.note(json.dumps(summary, indent=2))
    progress.note(
        f"\nListen to {parsed.out}/*.wav, look at {parsed.out}/timeline.png. ({time.monotonic() - begun:.0f} s)"
    )
    progress.note(
        "Simulated: the GPUs (a resource and a label on a real kubelet). Real: Kubernetes, Triton, ONNX Runtime, the speech."
    )
    if summary["failed"]:
        progress.note(f"[red]{summary['failed']} of {summary['requests']} requests failed.[/]")
        return 1
    progress.note(f"[green]{summary['requests']} requests, none failed.[/]")
    return 0


def run(out: Path, progress: Progress, *, keep: bool = False, name: str = "demo") -> dict[str, Any]:
    """Bring a cluster up, install the operator, play the scenario, write the report; give its summary.

    Raises:
        DevClusterError: The cluster or an image could not be made.
        TimeoutError: The resource did not get where it should.
    """
    cluster = Cluster.up(Options(name=name, fake_gpus=FakeGpus(2, "NVIDIA-L4")), progress)
    try:
        images = {image: load_source(image, progress) for image in IMAGES}
        pause = pause_image(progress)
        with progress.step("Loading images into the node"):
            for image in (*images.values(), pause):
                cluster.load_image(image.archive)
        with progress.step("Installing the operator"):
            install(cluster, {image: built.reference for image, built in images.items()})
        story = asyncio.run(play(cluster, pause.reference, progress))
    finally:
        if keep:
            progress.note(f"The cluster runs on: export KUBECONFIG={cluster.kubeconfig}; devcluster down --name {name}")
        else:
            with progress.step("Taking the cluster down"):
                cluster.down()
    return report.write(out, story.utterances, story.timeline, story.marks)


if __name__ == "__main__":
    sys.exit(main())
