"""What the demo leaves behind: sound, a picture, and figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from devcluster.demo.speaker import Utterance, save
from devcluster.demo.watcher import Moment

mpl.use("Agg")
import matplotlib.pyplot as plt

_COLOURS = {"gpu": "#2c7fb8", "cpu": "#f28e2b"}


def summarise(
    utterances: Sequence[Utterance], timeline: Sequence[Moment], marks: Mapping[str, float]
) -> dict[str, Any]:
    """Give the figures: requests, failures, latencies by tier, load times and the seconds of each move."""
    good = [utterance for utterance in utterances if utterance.error is None]
    tiers = sorted({utterance.tier for utterance in good})
    loads = {
        pool["name"]: pool["modelLoad"]
        for moment in timeline
        for pool in moment.status.get("pools", ())
        if pool.get("modelLoad")
    }
    return {
        "requests": len(utterances),
        "failed": len(utterances) - len(good),
        "errors": sorted({utterance.error for utterance in utterances if utterance.error}),
        "tiers": {tier: _latencies([utterance for utterance in good if utterance.tier == tier]) for tier in tiers},
        "model_load": loads,
        "seconds_below_promise_at_failover": _span(marks, "gpu_lost", "promise_kept_again"),
        "seconds_to_cpu_only": _span(marks, "second_gpu_lost", "all_on_cpu"),
        "seconds_to_return": _span(marks, "gpus_free_again", "back_on_gpu"),
        "marks": {name: round(at - min(marks.values()), 2) for name, at in marks.items()},
        "simulated": "GPUs (extended resource and node label on a real kubelet); the GPU tier's Triton computes on CPU",
    }


def _latencies(utterances: Sequence[Utterance]) -> dict[str, float | int]:
    first = [u.first_audio for u in utterances if u.first_audio is not None]
    return {
        "requests": len(utterances),
        "first_audio_p50_ms": round(float(np.percentile(first, 50)) * 1000, 1),
        "first_audio_p95_ms": round(float(np.percentile(first, 95)) * 1000, 1),
        "total_p50_ms": round(float(np.percentile([u.total for u in utterances], 50)) * 1000, 1),
        "total_p95_ms": round(float(np.percentile([u.total for u in utterances], 95)) * 1000, 1),
    }


def _span(marks: Mapping[str, float], start: str, end: str) -> float | None:
    return round(marks[end] - marks[start], 2) if start in marks and end in marks else None


def write(
    out: Path, utterances: Sequence[Utterance], timeline: Sequence[Moment], marks: Mapping[str, float]
) -> dict[str, Any]:
    """Write the WAV files, ``timeline.png`` and ``summary.json`` into ``out``; give the summary."""
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("*.wav"):
        old.unlink()
    phases = (
        ("before", 0.0, marks["gpu_lost"]),
        ("during", marks["all_on_cpu"], marks["gpus_free_again"]),
        ("after", marks["back_on_gpu"], 1e12),
    )
    for phase, start, end in phases:
        chosen = [u for u in utterances if u.error is None and start <= u.started < end][:3]
        for number, utterance in enumerate(chosen, 1):
            save(utterance, out / f"{phase}-{number}-{utterance.tier}.wav")
    summary = summarise(utterances, timeline, marks)
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    draw(out / "timeline.png", utterances, timeline, marks)
    return summary


def draw(path: Path, utterances: Sequence[Utterance], timeline: Sequence[Moment], marks: Mapping[str, float]) -> None:
    """Draw ready pods by tier above, and every request's time to first audio below."""
    zero = timeline[0].at
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(11, 6), height_ratios=(1, 1.2))
    seconds = [moment.at - zero for moment in timeline]
    tiers = list(dict.fromkeys(tier for moment in timeline for tier in moment.ready_by_tier))
    above.stackplot(
        seconds,
        [[moment.ready_by_tier.get(tier, 0) for moment in timeline] for tier in tiers],
        labels=[f"{tier} pods ready" for tier in tiers],
        colors=[_COLOURS.get(tier) for tier in tiers],
        step="post",
        alpha=0.8,
    )
    above.step(
        seconds,
        [moment.units for moment in timeline],
        where="post",
        color="black",
        linestyle="--",
        label="promised units",
    )
    above.set_ylabel("pods")
    above.legend(loc="upper right", ncols=3)
    for tier in sorted({utterance.tier for utterance in utterances}):
        mine = [u for u in utterances if u.tier == tier and u.error is None and u.first_audio is not None]
        below.scatter(
            [u.started - zero for u in mine],
            [(u.first_audio or 0) * 1000 for u in mine],
            s=9,
            color=_COLOURS.get(tier),
            label=f"answered by {tier}",
        )
    failed = [u.started - zero for u in utterances if u.error]
    below.scatter(failed, [0] * len(failed), marker="x", color="red", label=f"failed: {len(failed)}")
    below.set_ylabel("first audio, ms")
    below.set_xlabel("seconds")
    below.legend(loc="upper right", ncols=3)
    above.set_ylim(0, above.get_ylim()[1] * 1.35)  # room for the legend above the curves
    below.set_ylim(0, below.get_ylim()[1] * 1.2)
    for number, (name, at) in enumerate(marks.items()):
        for axis in (above, below):
            axis.axvline(at - zero, color="grey", linewidth=0.7)
        # Two rows, since some moments lie close together.
        above.annotate(
            name.replace("_", " "),
            (at - zero, 1.02 + 0.09 * (number % 2)),
            xycoords=("data", "axes fraction"),
            fontsize=8,
            ha="center",
        )
    figure.suptitle("Speech through a GPU shortage (GPUs simulated, everything else real)", y=0.99)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
