"""Parameters -> complete child objects, through strict templates: a name that a template misses is an error, never an empty string."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from cosyvoice_operator.core.children import (
    ChildParams,
    ClaimParams,
    DeploymentParams,
    DisruptionBudgetParams,
    JobParams,
    ServiceAccountParams,
    ServiceParams,
)
from cosyvoice_operator.core.jobs import fingerprint
from cosyvoice_operator.core.naming import GROUP, REVISION_LABEL

_TEMPLATES: dict[type[ChildParams], str] = {
    ServiceAccountParams: "serviceaccount.yaml.j2",
    ServiceParams: "service.yaml.j2",
    DisruptionBudgetParams: "poddisruptionbudget.yaml.j2",
    DeploymentParams: "deployment.yaml.j2",
    JobParams: "job.yaml.j2",
    ClaimParams: "persistentvolumeclaim.yaml.j2",
}

# libyaml parses about ten times faster than the pure Python loader, and is in every wheel of PyYAML.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def render(child: ChildParams) -> dict[str, Any]:
    """Build the child object, with labels and the controller ownerReference.

    Raises:
        jinja2.UndefinedError: A template uses a parameter that does not exist.
    """
    text = _template(_TEMPLATES[type(child)])(p=child, group=GROUP)
    built: dict[str, Any] = yaml.load(text, Loader=_LOADER)  # noqa: S506 - a safe loader, chosen above
    if isinstance(child, DeploymentParams):
        _stamp(built["spec"]["template"])
    return built


def _stamp(template: dict[str, Any]) -> None:
    """Label the pods with the version of the template; Kubernetes' own hash can only be read from ReplicaSets, which nobody else needs."""
    canonical = json.dumps(template, sort_keys=True, separators=(",", ":"))
    template["metadata"]["labels"][REVISION_LABEL] = hashlib.sha256(canonical.encode()).hexdigest()[:10]


@cache
def _template(name: str) -> Callable[..., str]:
    environment = Environment(
        loader=PackageLoader(__package__),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - YAML, where each value goes through tojson; there is no HTML
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Every value is written as JSON, which is YAML: no quoting rule is left to a template.
    environment.filters["seconds"] = lambda span: int(span.total_seconds())
    environment.filters["attempt"] = fingerprint
    return environment.get_template(name).render
