"""The API reference: every field, rule and reason of the resource, for people."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from cosyvoice_operator import api
from cosyvoice_operator.api.conditions import ConditionType, Reason
from cosyvoice_operator.core.classify import PoolState
from cosyvoice_operator.crdgen.crd import COLUMNS, WIDE_COLUMNS, custom_resource_definition

_INTRODUCTION = """\
# API reference

`{api_version}`, kind `{kind}` (`kubectl get {short}`). `kubectl explain {short}.spec` prints the same texts.

The API server checks every rule below when a resource is applied. Defaults are not written into the resource: the
operator applies them, and `status.effective` shows the result. What is said of a default stands after "Left out:".

Durations are written as hours, minutes and seconds (`90s`, `2m`, `1h30m`), quantities as in a pod (`500m`, `1.5Gi`).

The smallest resource:

```yaml
apiVersion: {api_version}
kind: {kind}
metadata:
  name: hello
spec:
  model:
    family: Demo
    source:
      embedded:
        voice: heart
```
"""


def api_reference() -> str:
    """Write the reference as Markdown."""
    schema = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    lines = [_INTRODUCTION.format(api_version=api.API_VERSION, kind=api.KIND, short=api.SHORT_NAME)]
    lines += ["## The resource", "", *_rules(schema)]
    for part in ("spec", "status"):
        lines += _object(part, schema["properties"][part])
    lines += ["## Columns", "", "| Column | Shows |", "|---|---|"]
    lines += [f"| {name} | {description} |" for name, _, _, description in COLUMNS]
    lines += [f"| {name} (`-o wide`) | {description} |" for name, _, _, description in WIDE_COLUMNS]
    lines += ["", "## Conditions", "", *_members(ConditionType, "Type")]
    lines += ["## Reasons of conditions", "", *_members(Reason, "Reason")]
    lines += ["## States of pools", "", *_members(PoolState, "State")]
    return "\n".join(lines).rstrip() + "\n"


def _object(path: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """Describe one object and, after it, the objects in it."""
    yield from (f"## `{path}`", "", schema.get("description", ""), "")
    yield from ("| Field | Type | Meaning |", "|---|---|---|")
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        needed = ", required" if name in required else ""
        yield f"| `{name}` | {_type(field)}{needed} | {_cell(field.get('description', ''))} |"
    yield ""
    yield from _rules(schema)
    for name, field in schema["properties"].items():
        if "properties" in field:
            yield from _object(f"{path}.{name}", field)
        elif "properties" in field.get("items", {}):
            yield from _object(f"{path}.{name}[]", field["items"])


def _rules(schema: Mapping[str, Any]) -> Iterator[str]:
    rules = [rule["message"] for rule in schema.get("x-kubernetes-validations", ())]
    if rules:
        yield from ("Refused, in these words:", "", *(f"- {message}" for message in rules), "")


def _type(field: Mapping[str, Any]) -> str:
    """Say in a few words what may be written."""
    if "x-kubernetes-int-or-string" in field:
        return "quantity"
    if "additionalProperties" in field:
        return f"map of {_type(field['additionalProperties'])}"
    if "enum" in field:
        return "one of " + ", ".join(f"`{value}`" for value in field["enum"])
    match field["type"]:
        case "array":
            words = f"list of {_type(field['items'])}{_bounds('', field, 'Items')}"
        case "integer":
            words = f"integer{_range(field.get('minimum'), field.get('maximum'))}"
        case "string":
            words = f"string{_bounds(' characters', field, 'Length')}"
        case other:
            words = str(other)
    return words


def _bounds(unit: str, field: Mapping[str, Any], kind: str) -> str:
    longest = field.get(f"max{kind}")
    return "" if longest is None else f", at most {longest}{unit}"


def _range(low: int | None, high: int | None) -> str:
    if low is None:
        return ""
    return f", {low} or more" if high is None else f", {low} to {high}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _members(enum: type[StrEnum], title: str) -> Iterable[str]:
    documented = _member_docs(enum)
    yield from (f"| {title} | Meaning |", "|---|---|")
    for member in enum:
        yield f"| `{member.value}` | {_cell(documented[member.name]).replace('``', '`')} |"
    yield ""


def _member_docs(enum: type[StrEnum]) -> dict[str, str]:
    """Read the doc comment under each member; Python keeps them in the source only."""
    body = ast.parse(inspect.getsource(enum)).body[0]
    if not isinstance(body, ast.ClassDef):
        raise TypeError(f"{enum} is not a class")
    docs = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        if isinstance(statement, ast.Assign) and isinstance(following, ast.Expr):
            target, text = statement.targets[0], following.value
            if isinstance(target, ast.Name) and isinstance(text, ast.Constant):
                docs[target.id] = " ".join(str(text.value).split())
    return docs
