"""From an answer of the API server to a decision."""

from __future__ import annotations

from typing import Any

import pytest

from cosyvoice_operator.core.children import ObjectRef
from cosyvoice_operator.engine.failures import TERMINATING_RETRY, blocked_by, name_conflict, retry_for
from cosyvoice_operator.kube.errors import (
    ApiError,
    Call,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    TooManyRequestsError,
    UnavailableError,
    from_answer,
)

CALL = Call("patch", "deployments.apps", "ns", "x-cpu")
CLAIM = ObjectRef("PersistentVolumeClaim", "ns", "x-engines")
REF = ObjectRef("Deployment", "ns", "x-cpu")


def answer(status: int, message: str = "", header: str | None = None, **details: Any) -> ApiError:
    return from_answer(CALL, status, {"reason": "R", "message": message, "details": details}, header)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (409, ConflictError),
        (410, GoneError),
        (422, InvalidError),
        (429, TooManyRequestsError),
        (500, UnavailableError),
        (503, UnavailableError),
    ],
)
def test_each_status_is_an_error_of_its_own_type(status: int, kind: type[ApiError]) -> None:
    assert type(answer(status)) is kind


def test_an_unknown_status_is_still_an_api_error() -> None:
    assert type(answer(418)) is ApiError


@pytest.mark.parametrize(
    ("header", "details", "seconds"),
    [
        ("7", {}, 7.0),
        (None, {"retryAfterSeconds": 3}, 3.0),
        (None, {}, None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", {}, None),
    ],
)
def test_the_time_to_wait_comes_from_the_header_or_the_body(
    header: str | None, details: dict[str, int], seconds: float | None
) -> None:
    assert answer(429, header=header, **details).retry_after == seconds


def test_an_answer_that_is_not_from_kubernetes_is_understood_too() -> None:
    error = from_answer(CALL, 502, {"message": "<html>"}, None)
    assert isinstance(error, UnavailableError)
    assert "patch deployments.apps ns/x-cpu" in str(error)


class TestBlocked:
    def test_a_missing_permission_names_the_verb_the_resource_and_who_needs_it(self) -> None:
        blocked = blocked_by(REF, answer(403, "no RBAC"))
        assert blocked.reason == "Forbidden"
        assert "patch deployments.apps in namespace ns" in blocked.message
        assert "no RBAC" in blocked.message
        assert "ServiceAccount" in blocked.message

    def test_a_quota_is_told_as_such(self) -> None:
        blocked = blocked_by(REF, answer(403, "exceeded quota: compute"))
        assert blocked.reason == "QuotaExceeded"
        assert "exceeded quota: compute" in blocked.message

    def test_a_refused_child_shows_what_the_server_said(self) -> None:
        blocked = blocked_by(REF, answer(422, "spec.x: Required value"))
        assert blocked.reason == "ChildRefused"
        assert "spec.x: Required value" in blocked.message

    def test_a_namespace_that_goes_away_blocks_nothing(self) -> None:
        assert blocked_by(REF, answer(403, causes=[{"reason": "NamespaceTerminating"}])) is None

    @pytest.mark.parametrize("status", [404, 409, 429, 500])
    def test_what_may_pass_by_itself_blocks_nothing(self, status: int) -> None:
        assert blocked_by(REF, answer(status)) is None

    @pytest.mark.parametrize(
        ("status", "message"),
        [
            (422, "spec: Forbidden: spec is immutable after creation"),
            (403, "only dynamically provisioned pvc can be resized"),
        ],
    )
    def test_a_claim_that_cannot_be_changed_says_so(self, status: int, message: str) -> None:
        blocked = blocked_by(CLAIM, answer(status, message))
        assert blocked.reason == "ChildRefused"
        assert message in blocked.message
        assert "put engines.cache back as it was" in blocked.message

    def test_a_claim_that_may_not_be_written_is_a_matter_of_access_rules(self) -> None:
        assert blocked_by(CLAIM, answer(403, "no RBAC")).reason == "Forbidden"

    def test_an_object_in_the_way_is_named_with_its_owner(self) -> None:
        assert "is controlled by StatefulSet db" in name_conflict(REF, "StatefulSet db").message
        assert "was not made by this operator" in name_conflict(REF, None).message


class TestRetry:
    def test_the_server_says_when_to_come_back(self) -> None:
        assert retry_for(answer(429, header="9")).after == 9.0

    def test_without_a_word_from_the_server_it_is_a_second(self) -> None:
        assert retry_for(answer(429)).after == 1.0

    def test_a_namespace_that_goes_away_is_left_in_peace(self) -> None:
        assert retry_for(answer(403, causes=[{"reason": "NamespaceTerminating"}])).after == TERMINATING_RETRY

    @pytest.mark.parametrize("status", [409, 500])
    def test_other_errors_are_tried_again_with_growing_delays(self, status: int) -> None:
        assert retry_for(answer(status)).after is None

    def test_an_error_of_our_own_is_called_a_bug(self) -> None:
        assert retry_for(KeyError("x")).reason == "Bug"
