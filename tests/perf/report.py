"""Turns measurements into a JSON file, a table and a plot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

COLUMNS = {
    "n": "resources",
    "seconds_all_children": "all children, s",
    "bare_loop_seconds": "bare loop, s",
    "bare_loop_ratio": "of its rate",
    "change_p50_ms": "change p50, ms",
    "change_p99_ms": "p99, ms",
    "writes_per_resource": "writes each",
    "writes_at_rest": "at rest",
    "peak_rss_mb": "memory, MB",
    "cpu_seconds": "CPU, s",
}


def write_report(results: list[dict[str, Any]], out: Path) -> None:
    """Write ``control-plane.json`` and ``control-plane.png`` to ``out``, and print the table."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "control-plane.json").write_text(json.dumps(results, indent=2) + "\n")
    print(table(results))
    _plot(results, out / "control-plane.png")
    print(f"written to {out}/control-plane.json and control-plane.png")


def table(results: list[dict[str, Any]]) -> str:
    """Give the results as a Markdown table."""
    rows = [list(COLUMNS.values()), *([str(result[key]) for key in COLUMNS] for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = [
        "| " + " | ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|")
    return "\n".join(lines)


def _plot(results: list[dict[str, Any]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (times, latencies, memory) = plt.subplots(1, 3, figsize=(12, 4))
    names = [str(result["n"]) for result in results]
    spots = range(len(results))
    times.bar([spot - 0.2 for spot in spots], [r["bare_loop_seconds"] for r in results], 0.4, label="bare loop")
    times.bar([spot + 0.2 for spot in spots], [r["seconds_all_children"] for r in results], 0.4, label="operator")
    times.set(title="Until all children exist", ylabel="seconds", xlabel="resources")
    times.legend()
    latencies.bar([spot - 0.2 for spot in spots], [r["change_p50_ms"] for r in results], 0.4, label="p50")
    latencies.bar([spot + 0.2 for spot in spots], [r["change_p99_ms"] for r in results], 0.4, label="p99")
    latencies.set(title="From a change to its child written", ylabel="milliseconds", xlabel="resources present")
    latencies.legend()
    memory.bar(spots, [r["peak_rss_mb"] for r in results], 0.5)
    memory.set(title="Highest resident memory", ylabel="MB", xlabel="resources")
    for axes in (times, latencies, memory):
        axes.set_xticks(list(spots), names)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
