"""From pydantic's JSON schema to the structural schema of a CRD, which is a much smaller language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from cosyvoice_operator.api.texts import PATTERN_HINT

Schema = dict[str, Any]

_KEPT = (
    "type",
    "format",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
    "x-kubernetes-int-or-string",
    "x-kubernetes-validations",
)
"""Keys that mean the same in both languages. Titles say nothing; defaults would be written into users' specs."""

_NULL = {"type": "null"}


def structural_schema(model: type[BaseModel]) -> Schema:
    """Translate a model. References are inlined, docstrings become descriptions.

    Raises:
        ValueError: The model uses something that a structural schema can't say.
    """
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return _translate(schema, schema.get("$defs", {}))


def _translate(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    schema = _resolved(schema, definitions)
    translated: Schema = {}
    if "description" in schema:
        translated["description"] = " ".join(schema["description"].split("\n\n")[0].split())
    translated |= {key: schema[key] for key in _KEPT if key in schema}
    if rules := translated.get("x-kubernetes-validations"):
        translated["x-kubernetes-validations"] = [{"rule": r["rule"], "message": r["message"]} for r in rules]
    if "const" in schema:
        translated["enum"] = [schema["const"]]
    if translated.get("type") == "integer":
        translated.setdefault("format", "int32")
    if "properties" in schema:
        translated["properties"] = {
            name: _translate(value, definitions) for name, value in schema["properties"].items()
        }
    elif isinstance(schema.get("additionalProperties"), Mapping):
        translated["additionalProperties"] = _translate(schema["additionalProperties"], definitions)
    if translated.get("type") == "array":
        translated["items"] = _translate(schema["items"], definitions)
        translated |= _list_type(schema)
    _hint_instead_of_pattern(translated, schema)
    if "type" not in translated and "x-kubernetes-int-or-string" not in translated:
        raise ValueError(f"a structural schema can't say {dict(schema)}")
    return translated


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """Follow references and drop the null of an optional field; what stands beside a reference goes first."""
    if "$ref" in schema:
        target = definitions[schema["$ref"].removeprefix("#/$defs/")]
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return _resolved({**target, **beside}, definitions)
    if "anyOf" in schema:
        choices = [choice for choice in schema["anyOf"] if choice != _NULL]
        if len(choices) != 1:
            raise ValueError(f"a structural schema can't say {schema['anyOf']}: one type and null at most")
        beside = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
        return _resolved({**choices[0], **beside}, definitions)
    return dict(schema)


def _list_type(schema: Mapping[str, Any]) -> Schema:
    """Say how server-side apply merges the list."""
    if key := schema.get("x-list-key"):
        return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
    return {"x-kubernetes-list-type": "set" if schema.get("x-list-set") else "atomic"}


def _hint_instead_of_pattern(translated: Schema, schema: Mapping[str, Any]) -> None:
    """Turn a pattern into a rule with words: "should match '^([0-9]{1,6}...'" tells nobody what to write."""
    if hint := schema.get(PATTERN_HINT):
        pattern = translated.pop("pattern")
        translated["x-kubernetes-validations"] = [{"rule": f"self.matches(r'{pattern}')", "message": hint}]
