"""`make perf-runtime`: what the speech pods add to the voice itself, in one run on this machine.

Three ways to the same voice take turns, so that whatever else the machine does hits all of them: called in-process (two
processes, one thread each), the CPU pod's gateway (two workers), and the gateway in front of a real Triton (two instances).
Each repetition gives one ratio of throughputs; their median is reported, with the lowest and the highest.

Run it as `python -m tests.perf.runtime [--repetitions 7] [--quick] [--backends cpu,triton] [--out perf-out]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from devcluster.images import load_source
from devcluster.progress import ConsoleProgress
from tests.e2e.runtime.processes import PROJECT, Gateway, TritonServer, gateway, namespaces_work, unpack
from tests.perf.runtime_inprocess import InProcess
from tests.perf.runtime_report import write_report

CONCURRENCIES = (1, 4, 16)
# About 2 s each.
SHORT = (
    "Good morning, and welcome to the test.",
    "The train to Boston leaves at seven thirty.",
    "Please wait a moment while I look it up.",
    "Your order number is four hundred and two.",
    "I could not find a table for five people.",
    "Turn left at the next light, then go straight.",
    "It will be sunny, with a light breeze today.",
    "Thank you for calling, and have a good day.",
)
# About 20 s.
LONG = (
    "Good morning, my friends, and welcome to the test. On the 3rd of March 2024, 1,250 people paid $9.99 each to hear it read at "
    "7:30 pm. The quick brown fox jumps over the lazy dog. She sells sea shells by the sea shore, and the shells she sells are sea "
    "shells for sure."
)
WORDS = (
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "seven",
    "zebras",
    "watch",
    "Aldebaran",
    "ridge",
    "Xyloburg",
    "7:30 pm",
    "$9.99",
)
MEMORY_REQUESTS = 1_000
MEMORY_WARM = 200


@dataclass
class Series:
    """Measurements of one way to the voice at one concurrency with one kind of text."""

    rates: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    total: list[float] = field(default_factory=list)
    errors: int = 0

    def add(self, result: dict[str, Any]) -> None:
        """One repetition."""
        rows = result["rows"]
        self.rates.append(sum(row[2] for row in rows) / result["wall"])
        self.first += [row[0] * 1e3 for row in rows]
        self.total += [row[1] * 1e3 for row in rows]
        self.errors += len(result["errors"])

    def summary(self, yardstick: Series) -> dict[str, Any]:
        """What the report holds; times in ms."""
        ratios = sorted(mine / theirs for mine, theirs in zip(self.rates, yardstick.rates, strict=True))
        return {
            "throughput_ratio": round(statistics.median(ratios), 3),
            "throughput_ratio_range": [round(ratios[0], 3), round(ratios[-1], 3)],
            "audio_seconds_per_second": round(statistics.median(self.rates), 1),
            "first_audio_p50_ms": percentile(self.first, 50),
            "first_audio_p95_ms": percentile(self.first, 95),
            "total_p50_ms": percentile(self.total, 50),
            "total_p95_ms": percentile(self.total, 95),
            "requests": len(self.total),
            "errors": self.errors,
        }


def percentile(values: Sequence[float], share: float) -> float:
    """Rounded to a tenth."""
    return round(float(np.percentile(values, share)), 1)


class LoadClient:
    """The client's process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls) -> LoadClient:
        """Start it."""
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.perf.runtime_load",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=1 << 24,
                cwd=PROJECT,
            )
        )

    async def drive(self, port: int, concurrency: int, texts: Sequence[str]) -> dict[str, Any]:
        """Speak all texts, so many at a time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(
            json.dumps({"port": port, "concurrency": concurrency, "texts": texts}).encode() + b"\n"
        )
        result: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return result

    async def stop(self) -> None:
        """End it."""
        self._process.terminate()
        await self._process.wait()


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    repetitions: int
    requests: dict[tuple[str, int], int]

    def texts(self, kind: str, concurrency: int) -> list[str]:
        """The texts of one repetition."""
        count = self.requests[kind, concurrency]
        return [SHORT[number % len(SHORT)] for number in range(count)] if kind == "short" else [LONG] * count


def make_plan(repetitions: int, *, quick: bool) -> Plan:
    """About five minutes in all, or half a minute."""
    part = 4 if quick else 1
    short = {1: 24, 4: 96, 16: 160}
    long = {1: 4, 4: 16, 16: 32}
    requests = {("short", n): max(n, count // part) for n, count in short.items()}
    requests |= {("long", n): max(n, count // part) for n, count in long.items()}
    return Plan(repetitions, requests)


async def compare(servers: dict[str, Gateway], plan: Plan, client: LoadClient) -> dict[str, dict[str, Any]]:
    """The ways take turns; gives a summary by way, concurrency and kind of text."""
    yardstick = await asyncio.to_thread(InProcess)
    try:
        results: dict[str, dict[str, Any]] = {name: {} for name in ("in-process", *servers)}
        for concurrency in CONCURRENCIES:
            for kind in ("short", "long"):
                series = {name: Series() for name in results}
                texts = plan.texts(kind, concurrency)
                for repetition in range(plan.repetitions + 1):
                    for name, one in series.items():
                        if name == "in-process":
                            measured = await asyncio.to_thread(yardstick.drive, concurrency, texts)
                        else:
                            measured = await client.drive(servers[name].port, concurrency, texts)
                        if repetition:  # the first one warms caches, clocks and arenas
                            one.add(measured)
                for name, one in series.items():
                    results[name].setdefault(str(concurrency), {})[kind] = one.summary(series["in-process"])
                line = ", ".join(
                    f"{name} {results[name][str(concurrency)][kind]['throughput_ratio']:.2f}" for name in servers
                )
                print(f"  {kind} text, {concurrency} at once: {line} of the in-process throughput", flush=True)
        return results
    finally:
        yardstick.close()


def memory(processes: Sequence[psutil.Process]) -> float:
    """Resident megabytes of processes; pages that several share are counted once."""
    return sum(process.memory_full_info().pss for process in processes) / 1e6


async def memory_slope(server: Gateway, others: Sequence[psutil.Process], client: LoadClient) -> dict[str, float]:
    """Growth in MB over 1,000 requests of every length, fitted to what comes after a warm-up."""
    rng = random.Random(7)

    def text() -> str:
        sentences = [
            " ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 25))).capitalize()
            for _ in range(rng.randint(1, 4))
        ]
        return ". ".join(sentences) + "."

    processes = [psutil.Process(server.pid), *server.workers(), *others]
    await client.drive(server.port, 4, [text() for _ in range(MEMORY_WARM)])
    points = [memory(processes)]
    step = MEMORY_REQUESTS // 20
    for _ in range(20):
        await client.drive(server.port, 4, [text() for _ in range(step)])
        points.append(memory(processes))
    slope = float(np.polyfit(np.arange(len(points)) * step, points, 1)[0]) * 1000
    return {
        "rss_slope_mb_per_1000": round(slope, 1),
        "rss_mb": round(points[-1], 1),
        "rss_min_mb": round(min(points), 1),
        "rss_max_mb": round(max(points), 1),
    }


async def starts(folder: Path, settings: dict[str, Any], count: int, image_triton: Path | None) -> dict[str, float]:
    """Medians over several starts of the whole pod: load seconds, and the first answer after it is ready."""
    loads, firsts, readies = [], [], []
    for number in range(count):
        async with AsyncExitStack() as stack:
            if image_triton is not None:
                server = TritonServer(image_triton, folder / f"triton-start-{number}.log")
                stack.callback(server.kill)
                server.start()
                await server.ready()
                settings = server.settings
            one = await stack.enter_async_context(gateway(folder, **settings))
            begun = asyncio.get_running_loop().time()
            answer = await one.speak("This is the first answer after the load.")
            firsts.append((asyncio.get_running_loop().time() - begun) * 1e3)
            assert answer.status_code == 200
            loads.append(float((await one.status())["loadSeconds"]))
            readies.append(one.ready_seconds)
    return {
        "load_seconds": round(statistics.median(loads), 2),
        "first_answer_ms": round(statistics.median(firsts), 1),
        "gateway_start_to_ready_seconds": round(statistics.median(readies), 2),
    }


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """The whole run."""
    progress = ConsoleProgress()
    backends = arguments.backends.split(",")
    if "triton" in backends and not namespaces_work():
        print("Triton is left out: this machine gives no mount namespaces (run as root)", file=sys.stderr)
        backends.remove("triton")
    names = {"cpu": ["cosyvoice-runtime-cpu"], "triton": ["cosyvoice-runtime-gateway", "cosyvoice-triton-demo"]}
    images = {name: [load_source(image, progress) for image in names[name]] for name in backends}
    sizes = {name: round(sum(image.archive.stat().st_size for image in many) / 1e6, 1) for name, many in images.items()}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perf-runtime-")))
        root = unpack(images["triton"][1].archive, folder / "root") if "triton" in backends else None
        facts: dict[str, dict[str, Any]] = {}
        for name in backends:
            print(f"Starting {name} {arguments.starts} times", flush=True)
            started = await starts(folder, {}, arguments.starts, root if name == "triton" else None)
            facts[name] = {"image_mb": sizes[name], **started}
        servers: dict[str, Gateway] = {}
        others: dict[str, list[psutil.Process]] = {"cpu": [], "triton": []}
        for name in backends:
            settings: dict[str, Any] = {}
            if name == "triton":
                assert root is not None
                triton = TritonServer(root, folder / "triton.log")
                stack.callback(triton.kill)
                triton.start()
                await triton.ready()
                settings = triton.settings
                assert triton.process is not None
                main = psutil.Process(triton.process.pid)
                others[name] = [main, *triton.stubs()]
            servers[name] = await stack.enter_async_context(gateway(folder, log_level="info", **settings))
        client = await LoadClient.start()
        stack.push_async_callback(client.stop)
        print("Comparing", flush=True)
        compared = await compare(servers, make_plan(arguments.repetitions, quick=arguments.quick), client)
        for name in backends:
            if not arguments.quick:
                print(f"Memory of {name} over {MEMORY_REQUESTS} requests", flush=True)
                facts[name] |= await memory_slope(servers[name], others[name], client)
    return {"compared": compared, "facts": facts}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Measure the speech pods.")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--backends", default="cpu,triton")
    parser.add_argument("--quick", action="store_true", help="a fourth of the requests and no memory run")
    parser.add_argument("--out", type=Path, default=Path("perf-out"))
    arguments = parser.parse_args()
    write_report(asyncio.run(measure(arguments)), arguments.out)


if __name__ == "__main__":
    main()
