"""The engine directory of a pod, and whether it is the right one: an engine for another voice or CPU fails late, or worse, speaks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosyvoice_runtime import cpulevels
from cosyvoice_runtime.builder import manifest
from cosyvoice_runtime.builder.reasons import BuildError


class EngineError(Exception):
    """The engine cannot be used here; the message says why, and what to do."""


@dataclass(frozen=True)
class Expected:
    """What the pod is set to serve, in the words of the operator's API."""

    backend: str
    family: str
    voice: str
    provider: str


@dataclass(frozen=True)
class Engine:
    """An engine that was found to fit."""

    key: str
    folder: Path


def find(folder: Path, expected: Expected, has: frozenset[str] | None = None) -> Engine:
    """Look at the manifest of a mounted engine. Its bytes were verified before this pod's containers were started.

    Args:
        folder: Where it is mounted; it may be read-only.
        expected: What it must have been built for.
        has: Features of this CPU; left out: asked of the kernel.

    Raises:
        EngineError: It is incomplete, or was built for something else.
    """
    try:
        found = manifest.read(folder)
    except BuildError as error:
        raise EngineError(error.message) from None
    request = found.request
    target, facts = request.get("target", {}), found.document.get("facts", {})
    checks = [
        ("backend", request.get("backend"), expected.backend),
        ("family", request.get("family"), expected.family),
        ("voice", request.get("model", {}).get("voice"), expected.voice),
        ("execution provider", target.get("provider"), expected.provider),
        ("architecture", target.get("arch"), cpulevels.architecture()),
    ]
    for what, built, wanted in checks:
        # A model that is no embedded voice has none in its engine.
        if built != wanted and not (what == "voice" and built is None):
            raise EngineError(
                f"the engine {found.key} in {folder} was built for {what} {built}, but this pod serves {wanted}; "
                "mount the engine of this pod, or build it"
            )
    _check_cpu(found.key, facts, cpulevels.features() if has is None else has)
    _check_sizes(folder, found)
    return Engine(found.key, folder)


def _check_cpu(key: str, facts: dict[str, Any], has: frozenset[str]) -> None:
    needed = facts.get("cpuLevel", cpulevels.BASELINE)
    own = cpulevels.own(has)
    missing = cpulevels.LEVELS.get(needed, frozenset()) - has
    if missing or (facts.get("optimization") == "all" and cpulevels.width(needed) != cpulevels.width(own)):
        raise EngineError(
            f"the engine {key} was built for CPUs of level {needed}, and this node's is {own}; "
            "build one for the level of this node, or for `baseline`"
        )


def _check_sizes(folder: Path, found: manifest.Manifest) -> None:
    for entry in found.files:
        path = folder / entry.path
        size = path.stat().st_size if path.exists() else None
        if size != entry.size:
            raise EngineError(
                f"{path} has {size} bytes in place of {entry.size}; remove the engine {found.key} and build it again"
            )
