"""What the operator would make of a file: the same pure plan and templates, without a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from cosyvoice_operator.core.errors import Invalid
from cosyvoice_operator.core.gpu import NodeFacts, merge_slices, parse_node, parse_slice
from cosyvoice_operator.core.model import Json, PlanConfig, Snapshot
from cosyvoice_operator.core.naming import ENGINE_LABEL, GROUP
from cosyvoice_operator.core.plan import make_plan
from cosyvoice_operator.render import render
from cosyvoice_operator.settings import Settings

_ORDER = {"Job": 1, "Deployment": 2}
"""Jobs need the claim of the cache, and Deployments what Jobs make."""


class OfflineError(Exception):
    """A file can't be used. The message names it, the object in it, and what is wrong."""


def render_files(resources: Path, nodes: Path | None) -> str:
    """Render the children of every CosyVoiceDeployment in a file, as YAML documents in the order in which they would be applied.

    Args:
        resources: File with CosyVoiceDeployments; other kinds in it are ignored.
        nodes: File with Nodes, and with ResourceSlices if there are any; None for a cluster without nodes, where only what needs no GPU
            gets a pool.

    Raises:
        OfflineError: A file isn't readable, or a resource is refused.
    """
    settings = Settings()
    facts = _nodes(nodes, settings) if nodes else ()
    owners = list(read_objects(resources, "CosyVoiceDeployment"))
    if not owners:
        raise OfflineError(f"{resources}: there is no CosyVoiceDeployment in it")
    config = settings.plan_config()
    children = [child for owner in owners for child in _children(resources, owner, facts, config)]
    return yaml.safe_dump_all(children, sort_keys=False, allow_unicode=True, width=120)


def _nodes(file: Path, settings: Settings) -> tuple[NodeFacts, ...]:
    nodes = (parse_node(node, settings.gpu_rules()) for node in read_objects(file, "Node"))
    return merge_slices(nodes, map(parse_slice, read_objects(file, "ResourceSlice")))


def _children(file: Path, owner: Json, nodes: tuple[NodeFacts, ...], config: PlanConfig) -> Iterable[Json]:
    meta = {"namespace": "default", "uid": "00000000-0000-0000-0000-000000000000", "generation": 1, **owner["metadata"]}
    snapshot = Snapshot(owner={**owner, "metadata": meta}, children=(), pods=(), nodes=nodes, reports={})
    jobs: dict[str, Json] = {}
    while True:
        try:
            plan = make_plan(snapshot, config, datetime.now(UTC))
        except Invalid as error:
            raise OfflineError(f"{file}: CosyVoiceDeployment {meta['name']}: {error}") from error
        more = {action.name: render(action.wanted) for action in plan.jobs if action.wanted and action.name not in jobs}
        if not more:
            children = [render(params) for params in plan.children]
            return sorted([*children, *jobs.values()], key=lambda child: _ORDER.get(child["kind"], 0))
        # Pods wait for what these make, so what comes after them is what is planned once they have ended.
        jobs |= more
        snapshot = replace(snapshot, jobs=tuple(map(_ended, jobs.values())))


def _ended(job: Json) -> Json:
    """Suppose that a build has ended well. Of a fetch nobody can know the digest of what it finds, and so what is built from it."""
    moment = "2026-01-01T00:00:00Z"
    built = ENGINE_LABEL in job["metadata"]["labels"]
    conditions = [{"type": "Complete", "status": "True", "lastTransitionTime": moment}] if built else []
    return {**job, "metadata": {**job["metadata"], "creationTimestamp": moment}, "status": {"conditions": conditions}}


def read_objects(file: Path, kind: str) -> Iterable[Json]:
    """Read the objects of one kind in a file, on their own or in lists. What says no kind is a Node.

    Raises:
        OfflineError: The file isn't readable, or an object has no name.
    """
    for position, document in enumerate(_documents(file), 1):
        items = document.get("items") or () if str(document.get("kind", "")).endswith("List") else (document,)
        for item in items:
            if item.get("kind", "Node") != kind:
                continue
            if not (item.get("metadata") or {}).get("name"):
                raise OfflineError(f"{file}: document {position}: a {kind} without metadata.name")
            if kind == "CosyVoiceDeployment" and not str(item.get("apiVersion", "")).startswith(f"{GROUP}/"):
                raise OfflineError(f"{file}: {kind} {item['metadata']['name']}: apiVersion must begin with {GROUP}/")
            yield item


def _documents(file: Path) -> Iterable[dict[str, Any]]:
    try:
        documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise OfflineError(f"{file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise OfflineError(f"{file}: not YAML: {error}") from error
    for position, document in enumerate(documents, 1):
        if document is None:
            continue
        if not isinstance(document, dict):
            raise OfflineError(f"{file}: document {position} is not an object")
        yield document
