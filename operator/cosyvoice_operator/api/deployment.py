"""The resource itself: CosyVoiceDeployment, the root of the CRD."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from cosyvoice_operator.api.base import Model, Rule
from cosyvoice_operator.api.spec import CosyVoiceDeploymentSpec
from cosyvoice_operator.api.status import CosyVoiceDeploymentStatus

NAME_LIMIT = 40
"""Longest name; with a tier's name and a GPU type every child still fits into 63 characters, shortened by a digest at
most."""

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def _name(resource: CosyVoiceDeployment) -> str:
    return str(resource.metadata.get("name", ""))


class CosyVoiceDeployment(Model):
    """Speech from a CosyVoice model, kept up across GPU types and CPU."""

    metadata: Mapping[str, Any]
    """Name, namespace, labels."""
    spec: CosyVoiceDeploymentSpec
    """What to serve, how much of it, on what, and how to fail over."""
    status: CosyVoiceDeploymentStatus | None = None
    """What really serves, on what, and why."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"self.metadata.name.size() <= {NAME_LIMIT}",
            message=f"metadata.name is too long: use at most {NAME_LIMIT} characters, so that the names of all "
            f"children fit into 63",
            holds=lambda self: len(_name(self)) <= NAME_LIMIT,
        ),
        Rule(
            cel=f"self.metadata.name.matches('^{_NAME.pattern}$')",
            message="metadata.name becomes the name of a Service: start with a letter and use only lower-case "
            "letters, digits and '-'",
            holds=lambda self: _NAME.fullmatch(_name(self)) is not None,
        ),
    )

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """Read a raw resource.

        Raises:
            pydantic.ValidationError: It breaks the schema or a rule.
        """
        return cls.model_validate(raw)
