"""Bodies of requests: merge patches and Events."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_operator.core.model import EventParams
from cosyvoice_operator.kube.events import NOTE_LIMIT, event_body
from cosyvoice_operator.kube.mergepatch import merge_patch
from tests.unit.shell.builders import owner

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

leaves = st.one_of(st.booleans(), st.integers(), st.text(max_size=3), st.lists(st.integers(), max_size=3))
objects = st.recursive(leaves, lambda below: st.dictionaries(st.sampled_from("abcd"), below, max_size=4), max_leaves=12)
documents = st.dictionaries(st.sampled_from("abcd"), objects, max_size=4)


def apply_patch(target: Any, patch: Any) -> Any:
    """RFC 7386, section 2, as it stands there."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_patch(result.get(key), value)
    return result


class TestMergePatch:
    @given(live=documents, desired=documents)
    def test_it_turns_any_object_into_any_other(self, live: dict[str, Any], desired: dict[str, Any]) -> None:
        assert apply_patch(live, merge_patch(live, desired)) == desired

    @given(live=documents)
    def test_it_is_empty_when_nothing_is_to_change(self, live: dict[str, Any]) -> None:
        assert merge_patch(live, live) == {}

    def test_what_is_to_go_deep_inside_is_named(self) -> None:
        assert merge_patch({"serving": {"tier": "gpu", "units": 1}}, {"serving": {"units": 1}}) == {
            "serving": {"tier": None}
        }


def event(**changes: str) -> EventParams:
    values = {"type": "Normal", "reason": "FellBack", "message": "m", "action": "Move", "key": "k"} | changes
    return EventParams(**values)


class TestEvent:
    def test_the_same_transition_has_the_same_name(self) -> None:
        first, again = (event_body(owner(version=v), event(), "me", NOW)["metadata"]["name"] for v in (1, 2))
        assert first == again

    def test_another_transition_or_another_resource_has_another_name(self) -> None:
        names = {
            event_body(owner(), event(), "me", NOW)["metadata"]["name"],
            event_body(owner(), event(key="other"), "me", NOW)["metadata"]["name"],
            event_body(owner(uid="another"), event(), "me", NOW)["metadata"]["name"],
        }
        assert len(names) == 3

    def test_it_regards_the_resource(self) -> None:
        regarding = event_body(owner(), event(), "me", NOW)["regarding"]
        assert (regarding["kind"], regarding["namespace"], regarding["name"]) == ("CosyVoiceDeployment", "ns", "x")

    @given(st.text(max_size=3000))
    def test_a_note_is_never_longer_than_the_api_takes(self, text: str) -> None:
        assert len(event_body(owner(), event(message=text), "me", NOW)["note"].encode()) <= NOTE_LIMIT
