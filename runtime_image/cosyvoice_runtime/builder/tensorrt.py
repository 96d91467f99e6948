"""Engines for TensorRT: the graphs of a family that the language model does not contain, one plan each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cosyvoice_runtime.builder import accuracy, families, graphs, probes
from cosyvoice_runtime.builder.families import MODEL, MODEL_MOUNT, Plan, Range
from cosyvoice_runtime.builder.frame import Outcome
from cosyvoice_runtime.builder.reasons import BuildError, Reason
from cosyvoice_runtime.builder.request import Target
from cosyvoice_runtime.builder.work import Job

_DRIVER = Path("/proc/driver/nvidia/version")


def check(job: Job) -> None:
    """See that every graph is there, and that the GPU of this node is the one that is asked for."""
    for plan in _wanted(job):
        path = _model(job) / plan.source
        try:
            graphs.check(path)
        except BuildError as error:
            raise BuildError(error.reason, f"{error.message}{f' ({plan.hint})' if plan.hint else ''}") from None
    from cosyvoice_runtime.builder import tensorrt_library as library  # noqa: PLC0415 - only its own image has it

    check_gpu(job.request.target, library.gpu())


def build(job: Job) -> Outcome:
    """Build the plans one after the other; load each, and compare it with its source."""
    from cosyvoice_runtime.builder import tensorrt_library as library  # noqa: PLC0415

    found = []
    for plan in _wanted(job):
        target = job.folder / MODEL / plan.target
        target.parent.mkdir(parents=True, exist_ok=True)
        timing = timing_cache(job.scratch, library.VERSION, job.request.target)
        source = _model(job) / plan.source
        serialized, built = library.build(source, plan, timing, job.stage)
        target.write_bytes(serialized)
        job.stage(f"comparing {target.name}")
        feeds = probes.feeds(plan.source, known_inputs(graphs.inputs(source), built), {})
        original = graphs.run(source, "CPUExecutionProvider", partial(_given, feeds))
        compared = accuracy.compare(target.name, original, library.run(serialized, feeds))
        found.append(accuracy.demand(compared, built.precision))
    link(_model(job), job.folder / MODEL)
    return Outcome({"tensorrt": library.VERSION, "cuda": library.cuda_version()}, tuple(found), driver_version())


def link(model: Path, folder: Path) -> None:
    """Let a directory look like the model's, with files of its own: links to where serving pods have all else."""
    for path in sorted(model.rglob("*")):
        mine = folder / path.relative_to(model)
        if path.is_dir():
            # Only a directory that holds something of ours is one of ours; any other is a link as a whole.
            if not mine.is_dir() and mine.parent.is_dir() and not _linked(mine.parent, folder):
                mine.symlink_to(MODEL_MOUNT / path.relative_to(model))
        elif mine.parent.is_dir() and not mine.exists() and not _linked(mine.parent, folder):
            mine.symlink_to(MODEL_MOUNT / path.relative_to(model))


def _linked(path: Path, root: Path) -> bool:
    return any(one.is_symlink() for one in (path, *path.parents) if one.is_relative_to(root))


def known_inputs(inputs: Sequence[probes.InputInfo], plan: Plan) -> list[probes.Input]:
    """The inputs of a graph with sizes within the ranges of a plan: where an axis does not vary there, the one that it has."""
    return [probes.Input(one.name, _sizes(one.shape, plan.shapes.get(one.name)), one.type) for one in inputs]


def _sizes(shape: Sequence[int | str | None], known: Range | None) -> list[int | str | None]:
    if known is None:
        return list(shape)
    ends = zip(known.least, known.usual, known.greatest, strict=True)
    return [usual if least == greatest else min(probes.DEFAULT_SIZE, greatest) for least, usual, greatest in ends]


def check_gpu(target: Target, here: tuple[str, str] | None) -> None:
    """Compare the GPU of this node with the wanted one.

    Args:
        target: What the engine is for.
        here: Name and compute capability of the GPU; None when there is none.

    Raises:
        BuildError: UnsupportedGPU.
    """
    if here is None:
        raise BuildError(
            Reason.UNSUPPORTED_GPU,
            "no GPU is visible in this container; it must run on a GPU node, with the GPU among its limits",
        )
    name, capability = here
    if target.compute_capability and capability != target.compute_capability:
        raise BuildError(
            Reason.UNSUPPORTED_GPU,
            f"the engine is for {target.gpu_type} with compute capability {target.compute_capability}, but this node has "
            f"{name} with {capability}; the Job must run on that GPU type",
        )


def timing_cache(folder: Path, version: str, target: Target) -> Path:
    """A cache of kernel times that is used again by builds with this TensorRT on this GPU type, and by no others."""
    name = "-".join((version, target.gpu_type or "gpu", target.compute_capability or "any", target.arch))
    return folder / f"tensorrt-{re.sub(r'[^A-Za-z0-9.-]', '_', name)}.cache"


def driver_version(path: Path = _DRIVER) -> str | None:
    """The node's NVIDIA driver; it is no part of the key, but a change of it is worth knowing."""
    try:
        found = re.search(r"Kernel Module\S*\s+(?:for \S+\s+)?(\d+\.\d+(?:\.\d+)?)", path.read_text())
    except OSError:
        return None
    return found[1] if found else None


def _model(job: Job) -> Path:
    if job.model is None:
        raise BuildError(Reason.INTERNAL, "model.path is not set; TensorRT engines are built from files")
    return job.model


def _given(feeds: list[probes.Feeds], _: Sequence[probes.InputInfo]) -> list[probes.Feeds]:
    return feeds


def _wanted(job: Job) -> Sequence[Plan]:
    found = families.plans(job.request.family, job.request.profile)
    return [plan for plan in found if not plan.optional or (_model(job) / plan.source).exists()]
