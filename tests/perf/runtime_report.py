"""Turns the measurements of the speech pods into `runtime.json`, tables and a plot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TITLES = {
    "in-process": "in-process",
    "cpu": "CPU pod (gateway, ONNX Runtime)",
    "triton": "Triton pod (gateway + Triton)",
}
FACTS = {
    "image_mb": "image, MB",
    "load_seconds": "load, s",
    "first_answer_ms": "first answer, ms",
    "gateway_start_to_ready_seconds": "gateway start to ready, s",
    "rss_mb": "memory, MB",
    "rss_slope_mb_per_1000": "growth over 1,000 requests, MB",
}


def document(measured: dict[str, Any]) -> dict[str, Any]:
    """The JSON: by backend its facts and, by concurrency, the figures for the 2 s text with those for the 20 s text inside."""
    result: dict[str, Any] = {}
    for name, by_concurrency in measured["compared"].items():
        concurrencies = {
            number: {**kinds["short"], "long_text": kinds["long"]} for number, kinds in by_concurrency.items()
        }
        result[name] = {**measured["facts"].get(name, {}), "concurrency": concurrencies}
    return result


def write_report(measured: dict[str, Any], out: Path) -> None:
    """Write `runtime.json`, `runtime.md` and `runtime.png` to `out`, and print the tables."""
    out.mkdir(parents=True, exist_ok=True)
    results = document(measured)
    (out / "runtime.json").write_text(json.dumps(results, indent=2) + "\n")
    tables = f"{speed_table(results)}\n\n{facts_table(results)}\n"
    (out / "runtime.md").write_text(tables)
    print(tables)
    _plot(results, out / "runtime.png")
    print(f"written to {out}/runtime.json, runtime.md and runtime.png")


def speed_table(results: dict[str, Any]) -> str:
    """Throughput and latency by text, concurrency and way."""
    heads = [
        "text",
        "at once",
        "way",
        "of in-process (quartiles)",
        "audio s/s",
        "CPU ms per audio s",
        "first audio p50, ms",
        "p95",
        "total p50, ms",
        "p95",
        "errors",
    ]
    rows = []
    for kind, label in (("short", "2 s"), ("long", "20 s")):
        for number in next(iter(results.values()))["concurrency"]:
            for name, backend in results.items():
                figures = backend["concurrency"][number]
                figures = figures if kind == "short" else figures["long_text"]
                low, high = figures["throughput_ratio_quartiles"]
                ratio = "1" if name == "in-process" else f"{figures['throughput_ratio']:.2f} ({low:.2f}–{high:.2f})"
                keys = (
                    "audio_seconds_per_second",
                    "cpu_ms_per_audio_second",
                    "first_audio_p50_ms",
                    "first_audio_p95_ms",
                    "total_p50_ms",
                    "total_p95_ms",
                    "errors",
                )
                rows.append([label, number, TITLES[name], ratio, *(str(figures[key]) for key in keys)])
    return _markdown(heads, rows)


def facts_table(results: dict[str, Any]) -> str:
    """Sizes, starts and memory."""
    rows = [
        [TITLES[name], *(str(backend.get(key, "-")) for key in FACTS)]
        for name, backend in results.items()
        if name != "in-process"
    ]
    return _markdown(["pod", *FACTS.values()], rows)


def _markdown(heads: list[str], rows: list[list[str]]) -> str:
    everything = [heads, *rows]
    widths = [max(len(row[column]) for row in everything) for column in range(len(heads))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in everything
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _plot(results: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(14, 4.2))
    numbers = list(next(iter(results.values()))["concurrency"])
    width = 0.8 / len(results)
    for position, (name, backend) in enumerate(results.items()):
        spots = [spot + (position - (len(results) - 1) / 2) * width for spot in range(len(numbers))]
        rows = [backend["concurrency"][number] for number in numbers]
        axes[0].bar(spots, [row["audio_seconds_per_second"] for row in rows], width, label=TITLES[name])
        axes[1].bar(spots, [row["first_audio_p50_ms"] for row in rows], width)
        axes[1].plot(spots, [row["first_audio_p95_ms"] for row in rows], "k_", markersize=12)
        long = [row["long_text"] for row in rows]
        axes[2].bar(spots, [row["first_audio_p50_ms"] for row in long], width)
        axes[2].plot(spots, [row["first_audio_p95_ms"] for row in long], "k_", markersize=12)
    axes[0].set(title="Throughput, 2 s text", ylabel="seconds of sound per second")
    axes[1].set(title="First audio, 2 s text (bar p50, line p95)", ylabel="milliseconds")
    axes[2].set(title="First audio, 20 s text (bar p50, line p95)", ylabel="milliseconds")
    for one in axes:
        one.set_xticks(range(len(numbers)), numbers)
        one.set_xlabel("requests at once")
    figure.legend(loc="lower center", ncols=len(results))
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path, dpi=120)
