"""Whether a write is needed: the steady state makes none, and every drift makes one."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_operator.core.diff import needs_apply, status_patch

DESIRED = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "hello", "labels": {"a": "1"}},
    "spec": {"selector": {"app": "x"}, "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
}
OWNED = {
    "f:metadata": {"f:labels": {"f:a": {}}},
    "f:spec": {
        "f:selector": {},
        "f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}}},
    },
}


def live(owned: dict | None = None) -> dict:
    """Make the object as the API server holds it: with defaults, other managers' fields, and ours."""
    made = copy.deepcopy(DESIRED)
    made["metadata"] |= {"uid": "u", "resourceVersion": "5"}
    made["spec"] |= {"clusterIP": "10.0.0.9"}
    made["spec"]["ports"][0]["nodePort"] = 30000
    made["metadata"]["managedFields"] = [
        {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:type": {}}}},
        {"manager": "us", "operation": "Apply", "fieldsV1": owned or OWNED},
    ]
    return made


def test_defaults_and_other_managers_fields_are_no_difference() -> None:
    assert not needs_apply(DESIRED, live(), "us")


def test_a_missing_object_is_applied() -> None:
    assert needs_apply(DESIRED, None, "us")


def test_a_changed_value_is_applied_again() -> None:
    drifted = live()
    drifted["spec"]["ports"][0]["port"] = 81
    assert needs_apply(DESIRED, drifted, "us")


def test_an_added_list_item_is_applied_again() -> None:
    drifted = live()
    drifted["spec"]["ports"].append({"name": "more", "port": 81})
    assert needs_apply(DESIRED, drifted, "us")


@pytest.mark.parametrize(
    "stale",
    [
        {**OWNED, "f:spec": {**OWNED["f:spec"], "f:type": {}}},
        {**OWNED, "f:spec": {"f:ports": {'k:{"port":90,"protocol":"TCP"}': {".": {}}}}},
        {"f:metadata": {"f:labels": {"f:a": {}, "f:gone": {}}}},
        {"f:metadata": {"f:finalizers": {'v:"x"': {}}}},
    ],
)
def test_a_field_that_an_earlier_version_owned_is_given_up(stale: dict) -> None:
    assert needs_apply(DESIRED, live(stale), "us")


def test_an_object_that_we_never_applied_is_applied() -> None:
    assert needs_apply(DESIRED, live(), "somebody-else")


json_objects = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans() | st.lists(st.integers(), max_size=3),
    lambda inner: st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=10,
).filter(lambda value: isinstance(value, dict))


def merge(target: object, patch: object) -> object:
    """RFC 7386, as the API server does it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


@given(json_objects, json_objects)
def test_a_status_patch_turns_one_status_into_the_other(before: dict, after: dict) -> None:
    assert merge(before, status_patch(before, after)) == after
    assert status_patch(after, after) == {}
