"""Fields that our applies own, as the API server records them."""

from __future__ import annotations

from typing import Any

import pytest

from cosyvoice_operator.kube.ownership import owns

DESIRED: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "x", "namespace": "ns", "labels": {"a": "1"}, "ownerReferences": [{"uid": "u", "kind": "K"}]},
    "spec": {"selector": {"app": "x"}, "ports": [{"port": 80, "name": "http"}]},
}
FIELDS: dict[str, Any] = {
    "f:metadata": {"f:labels": {"f:a": {}}, "f:ownerReferences": {'k:{"uid":"u"}': {}}},
    "f:spec": {
        "f:selector": {},
        "f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}, "f:name": {}}},
    },
}


def live(fields: dict[str, Any], **entry: str) -> dict[str, Any]:
    recorded = {"manager": "me", "operation": "Apply", "fieldsV1": fields} | entry
    return {"metadata": {"managedFields": [recorded]}}


def without(*path: str, fields: dict[str, Any] = FIELDS) -> dict[str, Any]:
    """The fields without one; the server drops what has become empty above it."""
    first, *rest = path
    below = without(*rest, fields=fields[first]) if rest else {}
    return {key: value for key, value in fields.items() if key != first} | ({first: below} if below else {})


def test_an_object_as_we_applied_it_is_ours() -> None:
    assert owns(DESIRED, live(FIELDS), "me")


@pytest.mark.parametrize(
    "lost",
    [
        ("f:spec", "f:selector"),
        ("f:metadata", "f:labels", "f:a"),
        ("f:metadata", "f:ownerReferences"),
        ("f:spec", "f:ports", 'k:{"port":80,"protocol":"TCP"}'),
        ("f:spec", "f:ports", 'k:{"port":80,"protocol":"TCP"}', "f:name"),
    ],
)
def test_a_field_that_someone_else_changed_is_no_longer_ours(lost: tuple[str, ...]) -> None:
    assert not owns(DESIRED, live(without(*lost)), "me")


@pytest.mark.parametrize("entry", [{"manager": "other"}, {"operation": "Update"}, {"subresource": "status"}])
def test_what_others_own_or_we_own_otherwise_is_not_ours(entry: dict[str, str]) -> None:
    assert not owns(DESIRED, live(FIELDS, **entry), "me")
