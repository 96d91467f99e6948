"""What goes wrong in pods, and whether a user can read it and act on it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from devcluster.demo.speaker import Speaker
from devcluster.demo.target import OwnMachine
from tests.cluster import eventually
from tests.e2e.seen import condition, events, is_true

Apply = Callable[..., None]
# Refused at once and on this machine: nothing listens there.
NO_SUCH_IMAGE = "127.0.0.1:9/none/none:1"


def left_over(target: OwnMachine, namespace: str) -> list[str]:
    """Name what is left of `hello`."""
    kinds = "cvd,deployments,replicasets,pods,services,poddisruptionbudgets,serviceaccounts"
    label = "tts.cosyvoice.io/deployment=hello"
    return target.kubectl("get", kinds, "-n", namespace, "-l", label, "-o", "name").split()


def test_an_image_that_does_not_exist_is_named_and_the_next_edit_heals_it(
    target: OwnMachine, namespace: str, speech: Apply
) -> None:
    speech(runtime={"image": NO_SUCH_IMAGE})
    stalled = eventually(is_true(target, namespace, "Stalled"), "Stalled", within=60)
    assert stalled["reason"] == "Misconfigured"
    assert NO_SUCH_IMAGE in stalled["message"]
    assert "Correct the image" in stalled["message"]
    eventually(lambda: "Stalled" in events(target, namespace), "an event tells it too")
    speech()
    eventually(is_true(target, namespace, "Ready"), "Ready after the correction", within=90)
    assert condition(target, namespace, "Stalled")["status"] == "False"


def test_a_bad_image_never_takes_the_place_of_a_good_one(target: OwnMachine, namespace: str, speech: Apply) -> None:
    speech()
    eventually(is_true(target, namespace, "Ready"), "Ready", within=90)
    speech(runtime={"image": NO_SUCH_IMAGE})
    eventually(is_true(target, namespace, "Stalled"), "Stalled", within=60)
    assert condition(target, namespace, "Ready")["status"] == "True", "the old pod serves on"


def test_a_model_that_does_not_load_is_told_with_the_command_to_look(
    target: OwnMachine, namespace: str, speech: Apply
) -> None:
    speech(model={"family": "Demo", "source": {"embedded": {"voice": "no-such-voice"}}})
    stalled = eventually(is_true(target, namespace, "Stalled"), "Stalled", within=120)
    assert stalled["reason"] == "LoadFailed"
    assert "kubectl logs" in stalled["message"]
    name = stalled["message"].split("kubectl logs ")[1].split()[0].strip("`")
    logs = target.kubectl("logs", "-n", namespace, name, "--tail=50")
    assert "no-such-voice" in logs


@pytest.mark.parametrize("cascade", ["background", "foreground"])
@pytest.mark.parametrize("state", ["starting", "ready", "stalled"])
def test_a_resource_deleted_in_any_state_leaves_nothing(
    target: OwnMachine, namespace: str, speech: Apply, state: str, cascade: str
) -> None:
    speech(**({"runtime": {"image": NO_SUCH_IMAGE}} if state == "stalled" else {}))
    if state != "starting":
        eventually(is_true(target, namespace, state.capitalize()), state, within=90)
    target.kubectl("delete", "cvd", "hello", "-n", namespace, f"--cascade={cascade}", "--timeout=90s")
    eventually(lambda: not left_over(target, namespace), "nothing is left", within=90)


def test_an_edit_rolls_out_without_a_failed_request(target: OwnMachine, namespace: str, speech: Apply) -> None:
    speech()
    eventually(is_true(target, namespace, "Ready"), "Ready", within=90)
    speaker = Speaker(target.service_url(namespace, "hello"))

    async def edit_while_speaking() -> None:
        async with speaker.speaking():
            await asyncio.sleep(1)
            await asyncio.to_thread(speech, runtime={"env": [{"name": "EDITED", "value": "1"}]})
            await asyncio.to_thread(eventually, rolled_out, "the new version serves alone", within=90)
            await asyncio.sleep(1)

    def rolled_out() -> bool:
        pods = json.loads(target.kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"]
        return len(pods) == 1 and any(e["name"] == "EDITED" for e in pods[0]["spec"]["containers"][0]["env"])

    asyncio.run(edit_while_speaking())
    assert [utterance.error for utterance in speaker.utterances if utterance.error] == []


def test_the_operator_changes_nothing_of_the_resource_but_its_status(
    target: OwnMachine, namespace: str, speech: Apply
) -> None:
    speech()
    eventually(is_true(target, namespace, "Ready"), "Ready", within=90)
    resource = json.loads(target.kubectl("get", "cvd", "hello", "-n", namespace, "-o", "json", "--show-managed-fields"))
    others = [entry for entry in resource["metadata"]["managedFields"] if not entry["manager"].startswith("kubectl")]
    assert [entry.get("subresource") for entry in others] == ["status"]
    assert "finalizers" not in resource["metadata"]
