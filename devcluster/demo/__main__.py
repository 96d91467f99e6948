"""Run the demo: `python -m devcluster.demo`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from devcluster import current
from devcluster.demo import report
from devcluster.demo.install import install
from devcluster.demo.scenario import clean_up, play
from devcluster.demo.target import Target, own_machine, users_cluster
from devcluster.errors import DevClusterError
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
        with _target(progress, keep=parsed.keep) as target:
            with progress.step("Installing the operator"):
                install(target)
            story = asyncio.run(play(target, progress))
    except (DevClusterError, TimeoutError) as error:
        progress.note(f"error: {error}")
        return 1
    summary = report.write(parsed.out, story.utterances, story.timeline, story.marks)
    progress.note(json.dumps(summary, indent=2))
    progress.note(
        f"\nListen to {parsed.out}/*.wav, look at {parsed.out}/timeline.png. ({time.monotonic() - begun:.0f} s)"
    )
    progress.note(f"Simulated: {summary['simulated']}. Real: Kubernetes, Triton, ONNX Runtime, the speech.")
    if summary["failed"]:
        progress.note(f"{summary['failed']} of {summary['requests']} requests failed.")
        return 1
    progress.note(f"{summary['requests']} requests, none failed.")
    return 0


def _target(progress: Progress, *, keep: bool) -> contextlib.AbstractContextManager[Target]:
    if current.wanted():
        return _cleaned_up(progress)
    return own_machine("demo", progress, keep=keep)


@contextlib.contextmanager
def _cleaned_up(progress: Progress) -> Iterator[Target]:
    """Give the user's own cluster, and leave nothing of the story in it."""
    with users_cluster() as target:
        try:
            yield target
        finally:
            with progress.step("Removing the demo's namespaces; the operator stays"):
                clean_up(target)


if __name__ == "__main__":
    sys.exit(main())
