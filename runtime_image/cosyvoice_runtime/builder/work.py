"""The process that builds: runs one library after the other on a request, and tells the frame how far it is.

Started by the frame as `python -m cosyvoice_runtime.builder.work DIRECTORY PART...`.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from cosyvoice_runtime import logs
from cosyvoice_runtime.builder import reasons, request
from cosyvoice_runtime.builder.frame import Outcome, Reporter
from cosyvoice_runtime.builder.reasons import BuildError, Reason
from cosyvoice_runtime.builder.request import BuildRequest
from cosyvoice_runtime.builder.surroundings import REQUEST, Surroundings

_MODULES = {"onnxruntime": "onnxruntime", "tensorrt": "tensorrt", "tensorrt-llm": "tensorrt_llm"}
PARTS = tuple(_MODULES)
_PR_SET_PDEATHSIG = 1
_FULL = 64 << 10
"""Bytes free on a volume that nobody can write to any more; some file systems keep the last pages."""


class TellStage(Protocol):
    """Tells what is being done: the phase, and how many of how many steps are done, where they can be counted."""

    def __call__(self, phase: str, done: int | None = None, total: int | None = None) -> None:
        """Tell it."""


@dataclass(frozen=True)
class Job:
    """One request with everything that a part needs to fulfil it."""

    request: BuildRequest
    folder: Path
    """Where the files of the engine go."""
    model: Path | None
    """The model's directory; None for one that is inside the image."""
    scratch: Path
    """A directory that outlives builds: timing caches."""
    stage: TellStage


class Part(Protocol):
    """One library."""

    def check(self, job: Job) -> None:
        """Look at the input files, and raise BuildError for what is missing or cannot be done, before anything is begun."""

    def build(self, job: Job) -> Outcome:
        """Write the files, load the result, and compare it with its source."""


def parts(wanted: BuildRequest) -> tuple[str, ...]:
    """The libraries that a request needs, in the order they are run."""
    if wanted.backend == "ONNXRuntime" or wanted.family == "Demo":
        return ("onnxruntime",)
    return ("tensorrt", "tensorrt-llm")


def command(folder: Path, names: Sequence[str]) -> list[str]:
    """The command line of this module."""
    return [sys.executable, "-m", "cosyvoice_runtime.builder.work", str(folder), *names]


def run(job: Job, names: Sequence[str], load: Callable[[str], Part]) -> Outcome:
    """Check all parts before the first is run: a file that the last one misses should not cost the time of the first."""
    chosen = [load(name) for name in names]
    for part in chosen:
        part.check(job)
    done = [part.build(job) for part in chosen]
    return Outcome(
        versions={name: version for one in done for name, version in one.versions.items()},
        accuracy=tuple(accuracy for one in done for accuracy in one.accuracy),
        driver=next((one.driver for one in done if one.driver), None),
        facts={name: fact for one in done for name, fact in one.facts.items()},
    )


def load_part(name: str) -> Part:
    """Import a part. Only here, so that an image needs no library but those of its own parts."""
    try:
        return cast("Part", importlib.import_module(f"cosyvoice_runtime.builder.{_MODULES[name]}"))
    except ImportError as error:
        raise BuildError(
            Reason.INTERNAL, f"this image cannot build with {name}: {error}; take the builder image of that backend"
        ) from None


def explain(error: BuildError, folder: Path) -> BuildError:
    """A library that cannot write often says something else, or nothing until it reads what it wrote: a full volume explains all."""
    if error.reason is Reason.DISK_FULL or shutil.disk_usage(folder).free > _FULL:
        return error
    return BuildError(
        Reason.DISK_FULL,
        f"the volume of the cache is full; make it larger, or remove engines that nothing uses ({error.message})",
    )


def main(arguments: Sequence[str]) -> int:
    """Entry point."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # never outlive the frame, which would answer for it
    logs.configure("warning")
    folder, *names = arguments
    reporter = Reporter.from_environment()
    doing = "starting"

    def stage(phase: str, done: int | None = None, total: int | None = None) -> None:
        nonlocal doing
        doing = phase
        reporter.stage(phase, done, total)

    try:
        wanted = request.parse(os.environ[REQUEST])
        cache = Surroundings.read().cache
        job = Job(wanted, Path(folder), wanted.model_dir(cache), cache / "timing", stage)
        reporter.outcome(run(job, names, load_part))
    except Exception as error:  # noqa: BLE001 - every failure has a reason of the closed list
        reporter.failure(explain(reasons.from_exception(error, doing), Path(folder)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
