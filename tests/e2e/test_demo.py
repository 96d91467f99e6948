"""The main job: speech that goes on while another tenant takes the GPUs, and returns to them."""

from __future__ import annotations

import asyncio
import json
import wave
from pathlib import Path

from devcluster.demo import report
from devcluster.demo.scenario import clean_up, play
from devcluster.demo.speaker import sound_fault
from devcluster.demo.target import OwnMachine
from devcluster.progress import ConsoleProgress


def test_speech_survives_the_loss_of_every_gpu_and_returns_to_them_without_a_failed_request(
    target: OwnMachine, tmp_path: Path
) -> None:
    try:
        story = asyncio.run(play(target, ConsoleProgress()))
    finally:
        clean_up(target)
    assert len(story.utterances) > 50
    assert [utterance.error for utterance in story.utterances if utterance.error] == []
    assert {utterance.tier for utterance in story.utterances} == {"gpu", "cpu"}
    for utterance in story.utterances:
        assert sound_fault(utterance.text, utterance.wav) is None

    summary = report.write(tmp_path, story.utterances, story.timeline, story.marks)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert {file.name.split("-")[0] for file in tmp_path.glob("*.wav")} == {"before", "during", "after"}
    with wave.open(str(next(tmp_path.glob("during-*.wav")))) as reader:
        assert (reader.getframerate(), reader.getnchannels()) == (24_000, 1)
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")
    loads = [load["seconds"] for load in summary["model_load"].values()]
    assert all(seconds > 0 for seconds in loads)

    # A move never takes a ready unit away: below the promise only from the moment a GPU was lost until CPU had replaced it.
    between = (story.marks["gpu_lost"], story.marks["promise_kept_again"])
    fallen = [
        moment for moment in story.timeline if moment.ready_units < moment.units and moment.at > story.timeline[0].at
    ]
    started = next(moment.at for moment in story.timeline if moment.ready_units >= moment.units > 0)
    late = [
        m
        for m in fallen
        if m.at > started and not between[0] - 1 <= m.at <= between[1] + 1 and m.at < story.marks["second_gpu_lost"]
    ]
    assert late == []
    assert all(moment.ready_units >= 1 for moment in story.timeline if moment.at > started), "one unit always spoke"
