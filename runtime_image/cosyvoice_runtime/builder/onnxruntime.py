"""Engines for ONNX Runtime: every graph of a model, optimised ahead of time and, where asked, in another precision.

One graph is loaded at a time, so that the memory that is needed is that of the largest one.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from cosyvoice_runtime import cpulevels
from cosyvoice_runtime.builder import accuracy, embedded, graphs, probes
from cosyvoice_runtime.builder.frame import Outcome
from cosyvoice_runtime.builder.probes import Feeds, InputInfo
from cosyvoice_runtime.builder.reasons import BuildError, Reason
from cosyvoice_runtime.builder.request import BuildRequest, Precision
from cosyvoice_runtime.builder.result import Accuracy
from cosyvoice_runtime.builder.work import Job

DEFAULT_PRECISION: Precision = "FP32"
"""The graphs' own precision. For the embedded voice no other one is better: docs/engines.md has the figures."""

_PROVIDERS = {"CPU": "CPUExecutionProvider", "CUDA": "CUDAExecutionProvider"}
# An optimised copy, a converted one on the way to it, and room to breathe.
_SPACE = 2.2


@dataclass(frozen=True)
class Source:
    """One graph: where it is, its name in the engine, and what it is run on for the comparison."""

    path: Path
    name: str
    feeds: Callable[[Sequence[InputInfo]], list[Feeds]]


def check(job: Job) -> None:
    """See that the request makes sense, all files are there, and the engine will fit on the volume."""
    request = job.request
    precision = request.profile.precision or DEFAULT_PRECISION
    _check_precision(request, precision)
    _check_level(request)
    found = _paths(job)
    if precision == "FP16" and request.family == "CosyVoice3":
        for path in found:
            if "estimator" in path.name:
                raise BuildError(
                    Reason.ACCURACY_LOST,
                    f"{path.name} of CosyVoice3 gives NaN in FP16 (CosyVoice issue 1930); build the engine in FP32",
                )
    needed = int(sum(graphs.check(path) for path in found) * _SPACE)
    free = shutil.disk_usage(job.folder).free
    if free < needed:
        raise BuildError(
            Reason.DISK_FULL,
            f"the cache has {free >> 20} MiB free, this engine needs up to {(needed >> 20) + 1} MiB; "
            "make the volume larger, or remove engines that nothing uses",
        )


def build(job: Job) -> Outcome:
    """Convert, optimise and compare each graph, then listen to the whole where it can speak."""
    request = job.request
    precision = request.profile.precision or DEFAULT_PRECISION
    sources = _sources(job)
    found = []
    for number, source in enumerate(sources):
        job.stage("optimising graphs", number, len(sources))
        found.append(_build_one(job, source, precision))
    if request.model.path is None:
        job.stage("listening to the engine")
        voice = request.model.voice or ""
        originals = embedded.graphs(voice)
        found.append(embedded.compare_sound(voice, originals, originals.within(job.folder)))
    facts = {"cpuLevel": _needed_level(request, precision), "optimization": "all" if _full(request) else "extended"}
    return Outcome({"onnxruntime": graphs.VERSION, "numpy": np.__version__}, tuple(found), None, facts)


def _build_one(job: Job, source: Source, precision: Precision) -> Accuracy:
    request, target = job.request, job.folder / source.name
    provider = _PROVIDERS[request.target.provider]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=job.folder, prefix=".converting-") as scratch:
        converted = _converted(source.path, Path(scratch), precision, request)
        graphs.optimise(converted, target, provider, full=_full(request))
    original = graphs.run(source.path, provider, source.feeds)
    compared = accuracy.compare(source.name, original, graphs.run(target, provider, source.feeds))
    return accuracy.demand(compared, precision)


def _paths(job: Job) -> list[Path]:
    """The graphs of the model, the embedded voice's or every `.onnx` under its directory."""
    if job.model is None:
        of_voice = embedded.graphs(job.request.model.voice)
        return [of_voice.voice, of_voice.words]
    found = sorted(job.model.rglob("*.onnx"))
    if not found:
        raise BuildError(Reason.MISSING_FILE, f"{job.model} holds no .onnx file; fetch the ONNX export of this family")
    return found


def _sources(job: Job) -> list[Source]:
    paths = _paths(job)
    if job.model is None:
        voice = job.request.model.voice or ""
        feeds = embedded.probes(voice, embedded.graphs(voice))
        return [Source(path, path.name, feeds[path.name]) for path in paths]
    sources = []
    for path in paths:
        name = path.relative_to(job.model).as_posix()
        sizes = probes.dimensions(job.model, name)
        sources.append(Source(path, name, partial(_generic, name, sizes)))
    return sources


def _generic(name: str, sizes: dict[str, int], inputs: Sequence[InputInfo]) -> list[Feeds]:
    return probes.feeds(name, inputs, sizes)


def _converted(source: Path, scratch: Path, precision: Precision, request: BuildRequest) -> Path:
    target = scratch / source.name
    if precision == "INT8":
        graphs.quantise(source, target, exact=_exact(request))
    elif precision == "FP16":
        graphs.halve(source, target)
    else:
        return source
    return target


def _check_precision(request: BuildRequest, precision: Precision) -> None:
    provider = request.target.provider
    allowed = {"CPU": ("FP32", "INT8"), "CUDA": ("FP32", "FP16")}[provider]
    if precision not in allowed:
        raise BuildError(
            Reason.INTERNAL,
            f"ONNX Runtime on {provider} is built in {' or '.join(allowed)}, not {precision}; change precision",
        )
    if request.target.arch != cpulevels.architecture():
        raise BuildError(
            Reason.VERSION_MISMATCH,
            f"the engine is for {request.target.arch}, this node is {cpulevels.architecture()}; build it on a node of its own kind",
        )


def _check_level(request: BuildRequest) -> None:
    level = request.target.cpu_level
    if level not in cpulevels.LEVELS:
        raise BuildError(
            Reason.VERSION_MISMATCH, f"cpuLevel {level} is not known; choose one of {', '.join(cpulevels.LEVELS)}"
        )


def _full(request: BuildRequest) -> bool:
    """Whether optimisations that fit one kind of CPU alone can be written: the level asks for it, and this CPU is of its kind."""
    level = request.target.cpu_level
    own = cpulevels.own(cpulevels.features())
    return level != cpulevels.BASELINE and cpulevels.width(level) == cpulevels.width(own)


def _exact(request: BuildRequest) -> bool:
    """Whether CPUs of that level add 8-bit products without saturation."""
    return request.target.arch == "arm64" or request.target.cpu_level.endswith("-vnni")


def _needed_level(request: BuildRequest, precision: Precision) -> str:
    return (
        request.target.cpu_level if _full(request) or (precision == "INT8" and _exact(request)) else cpulevels.BASELINE
    )
