"""What is written to a Job that exists, and what isn't."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cosyvoice_operator.core.children import JobParams, Owner
from cosyvoice_operator.core.job_patch import is_unneeded, job_patch, owner_reference
from cosyvoice_operator.core.model import JobAction
from tests.unit.shell.builders import Json, job, owner

WANTED = JobParams(
    owner=Owner("x", "ns", "owner-uid"),
    name="engine-1",
    labels={"app.kubernetes.io/component": "engine"},
    selector={},
    image="builder:1",
    args=("build",),
    env=(),
    resources={},
    claim_name="cache",
    model=None,
    service_account="default",
    terms=(),
    node_selector={},
    tolerations=(),
    pull_secrets=(),
    timeout=timedelta(hours=1),
)
RESULT = '{"outcome":"Succeeded"}'
ME = owner_reference(owner())


def live(*uids: str, **more: object) -> Json:
    """A Job that the resources with these uids own."""
    made = job(**more)
    made["metadata"]["ownerReferences"] = [ME | {"name": uid.removesuffix("-uid"), "uid": uid} for uid in uids]
    return made


def test_an_owner_neither_controls_the_job_nor_holds_up_its_own_deletion() -> None:
    assert ME == {
        "apiVersion": "tts.cosyvoice.io/v1alpha1",
        "kind": "CosyVoiceDeployment",
        "name": "x",
        "uid": "owner-uid",
        "controller": False,
        "blockOwnerDeletion": False,
    }


def test_a_job_that_is_as_it_should_be_is_left_alone() -> None:
    assert job_patch(JobAction("engine-1", WANTED), live("owner-uid"), ME) is None


def test_whoever_needs_it_adds_itself_to_the_owners() -> None:
    patch = job_patch(JobAction("engine-1", WANTED), live("other-uid"), ME)
    assert [ref["uid"] for ref in patch["metadata"]["ownerReferences"]] == ["other-uid", "owner-uid"]


def test_whoever_gives_it_up_takes_itself_out_of_the_owners() -> None:
    patch = job_patch(JobAction("engine-1", None), live("owner-uid", "other-uid"), ME)
    assert [ref["uid"] for ref in patch["metadata"]["ownerReferences"]] == ["other-uid"]


def test_one_that_i_never_owned_is_not_touched_when_i_do_not_need_it() -> None:
    action = JobAction("engine-1", None)
    assert job_patch(action, live("other-uid"), ME) is None
    assert not is_unneeded(action, live("other-uid"), ME)


def test_the_last_that_gives_it_up_deletes_it() -> None:
    action = JobAction("engine-1", None)
    assert is_unneeded(action, live("owner-uid"), ME)
    assert not is_unneeded(action, live("owner-uid", "other-uid"), ME)


def test_one_that_is_to_be_made_anew_is_deleted_whoever_owns_it() -> None:
    assert is_unneeded(JobAction("engine-1", WANTED, delete=True), live("owner-uid", "other-uid"), ME)


def test_it_is_started_when_it_may_and_is_held() -> None:
    action = JobAction("engine-1", WANTED, start=True)
    assert job_patch(action, live("owner-uid"), ME) == {"spec": {"suspend": False}}
    assert job_patch(action, live("owner-uid", suspend=False), ME) is None


def test_one_that_is_given_up_is_not_started() -> None:
    patch = job_patch(JobAction("engine-1", None, start=True), live("owner-uid", "other-uid"), ME)
    assert "spec" not in patch


def test_a_result_is_noted_once() -> None:
    action = JobAction("engine-1", WANTED, result=RESULT)
    noted = live("owner-uid")
    noted["metadata"]["annotations"] = {"tts.cosyvoice.io/result": RESULT}
    assert job_patch(action, live("owner-uid"), ME) == {
        "metadata": {"annotations": {"tts.cosyvoice.io/result": RESULT}}
    }
    assert job_patch(action, noted, ME) is None


def test_all_that_is_to_change_goes_into_one_patch() -> None:
    patch = job_patch(JobAction("engine-1", WANTED, start=True, result=RESULT), live("other-uid"), ME)
    assert set(patch["metadata"]) == {"ownerReferences", "annotations"}
    assert patch["spec"] == {"suspend": False}


@pytest.mark.parametrize("wanted", [WANTED, None])
def test_the_patch_leads_to_a_job_that_needs_no_patch(wanted: JobParams | None) -> None:
    action = JobAction("engine-1", wanted, start=True, result=RESULT)
    job = live("other-uid", "owner-uid")
    patch = job_patch(action, job, ME) or {}
    job["metadata"] |= patch.get("metadata", {})
    job["spec"] |= patch.get("spec", {})
    assert job_patch(action, job, ME) is None
