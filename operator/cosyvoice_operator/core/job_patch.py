"""What is to be written to a Job that exists. Several resources share it, so nothing is applied to it: each changes its own part."""

from __future__ import annotations

from cosyvoice_operator.core.model import JobAction, Json
from cosyvoice_operator.core.naming import RESULT_ANNOTATION


def owner_reference(owner: Json) -> Json:
    """Give the entry of a resource among a Job's owners: one of several, so it neither controls it nor holds up its own deletion."""
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": False,
        "blockOwnerDeletion": False,
    }


def is_unneeded(action: JobAction, live: Json, reference: Json) -> bool:
    """Tell whether the Job is to be deleted: the plan says so, or the only resource that needed it gives it up."""
    return action.delete or (action.wanted is None and owner_uids(live) == {reference["uid"]})


def job_patch(action: JobAction, live: Json, reference: Json) -> Json | None:
    """Give the merge patch that brings a Job to where the plan wants it; None when nothing is to change.

    Args:
        action: What is wanted of it; not for one that is to be deleted.
        live: The Job.
        reference: The resource's entry among the owners.
    """
    references = list(live["metadata"].get("ownerReferences") or ())
    others = [ref for ref in references if ref["uid"] != reference["uid"]]
    mine = [ref for ref in references if ref["uid"] == reference["uid"]]
    metadata: Json = {}
    if action.wanted and not mine:
        metadata["ownerReferences"] = [*others, reference]
    elif action.wanted is None and mine:
        metadata["ownerReferences"] = others
    if action.result is not None and action.result != (live["metadata"].get("annotations") or {}).get(
        RESULT_ANNOTATION
    ):
        metadata["annotations"] = {RESULT_ANNOTATION: action.result}
    patch: Json = {"metadata": metadata} if metadata else {}
    if action.wanted and action.start and live["spec"].get("suspend"):
        patch["spec"] = {"suspend": False}
    return patch or None


def owner_uids(job: Json) -> set[str]:
    """Uids of all that need a Job."""
    return {ref["uid"] for ref in job["metadata"].get("ownerReferences") or ()}
