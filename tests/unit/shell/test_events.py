"""Events as they are written."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_operator.core.model import EventParams
from cosyvoice_operator.kube.events import NOTE_LIMIT, event_body
from tests.unit.shell.builders import owner

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


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
