"""What all models share: frozen, camelCase outside, and rules that hold here as they do in the API server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule over several fields, in the API server's language and in ours.

    Both forms stand side by side because both are used: the CRD refuses a wrong resource at once, and a file that never
    met a cluster (``cosyvoice-operator render``) is refused with the same words. The contract tests hold the two forms
    together.

    Attributes:
        cel: Expression over ``self``, true for a good object. None where the schema itself holds the rule, as the key
        of a list does. message: Says what is wrong and what to write instead. holds: The same as ``cel``, over the
        model.
    """

    cel: str | None
    message: str
    holds: Callable[[Any], bool]


def _add_rules(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Hand the rules on to the JSON schema, in the form that a CRD wants."""
    rules: tuple[Rule, ...] = getattr(model, "rules", ())
    validations = [{"rule": rule.cel, "message": rule.message} for rule in rules if rule.cel is not None]
    if validations:
        schema["x-kubernetes-validations"] = validations


class Model(BaseModel):
    """Base of all models of the custom resource.

    Unknown fields are ignored, not refused: while an upgrade is on its way an old operator reads resources of a newer
    CRD. The API server itself refuses them on ``kubectl apply``.
    """

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
        extra="ignore",
        json_schema_extra=_add_rules,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        for rule in type(self).rules:
            if not rule.holds(self):
                raise ValueError(rule.message)
        return self

    def to_json(self) -> dict[str, Any]:
        """Give the object as it stands in the resource: camelCase, without what is unset."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
