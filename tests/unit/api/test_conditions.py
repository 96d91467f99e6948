"""Reasons are a closed list: each is described, and each is used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import cosyvoice_operator
from cosyvoice_operator.api.conditions import ConditionType, Reason
from cosyvoice_operator.crdgen.reference import api_reference

PACKAGE = Path(cosyvoice_operator.__file__).parent
SOURCES = {path: path.read_text() for folder in ("core", "engine") for path in (PACKAGE / folder).glob("*.py")}


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_used(reason: Reason) -> None:
    used = re.compile(rf'\bReason\.{reason.name}\b|"{reason.value}"')

    assert any(used.search(source) for source in SOURCES.values())


@pytest.mark.parametrize("member", [*Reason, *ConditionType])
def test_a_name_is_in_camel_case_and_described(member: Reason | ConditionType) -> None:
    assert re.fullmatch(r"([A-Z]+[a-z]+)+", member.value)
    assert re.search(rf"\| `{member.value}` \| .+\. \|", api_reference())


def test_what_blocks_a_child_has_a_listed_reason() -> None:
    reasons = set(_first_arguments("Blocked"))

    assert reasons
    assert reasons <= set(Reason)


def _first_arguments(name: str) -> Iterator[str]:
    """Literal first arguments of all calls of a class."""
    calls = (node for source in SOURCES.values() for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    for call in calls:
        if isinstance(call.func, ast.Name) and call.func.id == name and isinstance(call.args[0], ast.Constant):
            yield str(call.args[0].value)
