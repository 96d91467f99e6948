"""What engines of the embedded voice are worth: `python -m tests.perf.engines [--rounds 12] [--out perf-out]`.

The same voice is started in a new process again and again, from its original graphs, from an optimised engine, and from one whose
weights are in 8 bits where this CPU can compute them; the ways take turns, so that whatever else the machine does hits all alike.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from cosyvoice_runtime import cpulevels
from tests.perf.runtime_report import _markdown
from tests.unit.builder.setting import KEY, Builder, document

SHORT = "Good morning, and welcome to the test."
FIRST = "This is the first answer after the load."
SENTENCES = 60
ROWS = {
    "load_seconds": "load, s",
    "first_answer_ms": "first answer, ms",
    "p50_ms": "short sentence P50, ms",
    "p95_ms": "P95, ms",
    "memory_mb": "memory, MB",
    "graphs_mb": "graphs, MB",
    "build_seconds": "build, s",
}


def turn(folder: str) -> None:
    """One start: load, warm up, and speak; prints what it took. The load includes importing the libraries, as a worker's does."""
    started = time.perf_counter()
    from cosyvoice_runtime.voice import EmbeddedVoice, embedded

    original = embedded("heart")
    graphs = original.within(Path(folder)) if folder else original
    voice = EmbeddedVoice(graphs=graphs)
    load = time.perf_counter() - started

    def speak(text: str) -> float:
        begun = time.perf_counter()
        for piece in voice.pieces(text):
            voice.synthesize(piece)
        return (time.perf_counter() - begun) * 1e3

    first = speak(FIRST)
    voice.warm_up(3)
    times = [speak(SHORT) for _ in range(SENTENCES)]
    status = Path("/proc/self/smaps_rollup").read_text()
    pss = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("Pss:"))
    size = graphs.voice.stat().st_size + graphs.words.stat().st_size
    print(json.dumps({"load": load, "first": first, "times": times, "memory": pss / 1e3, "size": size / 1e6}))


def engines(folder: Path) -> dict[str, tuple[str, float | None]]:
    """The ways: name -> where its graphs are, and the seconds of its build."""
    found: dict[str, tuple[str, float | None]] = {"original": ("", None)}
    level = cpulevels.own(cpulevels.features())
    requests = {"optimised": document(), "optimised for this CPU": document(target={"cpuLevel": level})}
    if level.endswith("-vnni"):
        requests["8 bits"] = document(profile={"precision": "INT8"}, target={"cpuLevel": level})
    for name, request in requests.items():
        place = folder / name.replace(" ", "-")
        place.mkdir()
        builder = Builder(place)
        code, result = builder.run(request)
        assert code == 0, result
        found[name] = (str(builder.engines / KEY), result["seconds"])
    return found


def measure(rounds: int) -> dict[str, dict[str, Any]]:
    """All ways in turns; gives what the report holds."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="perf-engines-") as scratch:
        ways = engines(Path(scratch))
        seen: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
        for number in range(rounds + 1):
            for name in list(ways) if number % 2 else reversed(ways):
                command = [sys.executable, "-m", "tests.perf.engines", "--turn", ways[name][0]]
                done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
                if number:  # the first round warms the page cache
                    seen[name].append(json.loads(done.stdout))
    return {name: summary(turns, ways[name][1]) for name, turns in seen.items()}


def summary(turns: list[dict[str, Any]], build: float | None) -> dict[str, Any]:
    """Medians over the starts, and percentiles over all sentences."""

    def median(key: str, digits: int) -> float:
        return round(statistics.median(one[key] for one in turns), digits)

    times = [value for one in turns for value in one["times"]]
    return {
        "load_seconds": median("load", 3),
        "first_answer_ms": median("first", 1),
        "p50_ms": round(float(np.percentile(times, 50)), 2),
        "p95_ms": round(float(np.percentile(times, 95)), 2),
        "memory_mb": median("memory", 1),
        "graphs_mb": round(turns[0]["size"], 2),
        "build_seconds": "-" if build is None else round(build, 1),
    }


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Measure engines of the embedded voice.")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path("perf-out"))
    parser.add_argument("--turn", metavar="DIRECTORY", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.turn is not None:
        turn(arguments.turn)
        return
    results = measure(arguments.rounds)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "engines.json").write_text(json.dumps(results, indent=2) + "\n")
    heads = ["graphs", *ROWS.values()]
    print(_markdown(heads, [[name, *(str(values[key]) for key in ROWS)] for name, values in results.items()]))


if __name__ == "__main__":
    main()
