"""`make perf-runtime`: what the speech pods add to the voice itself, in one run on this machine.

Three ways to the same voice take turns, so that whatever else the machine does hits all of them: called in-process (two
processes, one thread each), the CPU pod's gateway (two workers), and the gateway in front of a real Triton (two instances).
The ratio of throughputs is that of all turns together; beside it stand the quartiles of the ratios of single turns.

Run it as `python -m tests.perf.runtime [--repetitions 15] [--quick] [--backends cpu,triton] [--out perf-out]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
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
IMAGES = {"cpu": ["cosyvoice-runtime-cpu"], "triton": ["cosyvoice-runtime-gateway", "cosyvoice-triton-demo"]}
MEMORY_REQUESTS = 1_000
MEMORY_WARM = 300


@dataclass
class Series:
    """Measurements of one way to the voice at one concurrency with one kind of text."""

    rates: list[float] = field(default_factory=list)
    wall: float = 0.0
    first: list[float] = field(default_factory=list)
    total: list[float] = field(default_factory=list)
    cpu: float = 0.0
    sound: float = 0.0
    errors: int = 0

    def add(self, result: dict[str, Any], cpu: float) -> None:
        """One repetition, and the CPU seconds that the processes of this way took for it."""
        rows = result["rows"]
        self.cpu += cpu
        self.wall += result["wall"]
        self.sound += sum(row[2] for row in rows)
        self.rates.append(sum(row[2] for row in rows) / result["wall"])
        self.first += [row[0] * 1e3 for row in rows]
        self.total += [row[1] * 1e3 for row in rows]
        self.errors += len(result["errors"])

    @property
    def rate(self) -> float:
        """Seconds of sound per second, over all repetitions."""
        return self.sound / self.wall

    def summary(self, yardstick: Series) -> dict[str, Any]:
        """What the report holds; times in ms."""
        ratios = [mine / theirs for mine, theirs in zip(self.rates, yardstick.rates, strict=True)]
        return {
            "throughput_ratio": round(self.rate / yardstick.rate, 3),
            "throughput_ratio_quartiles": [percentile(ratios, 25, 3), percentile(ratios, 75, 3)],
            "audio_seconds_per_second": round(self.rate, 1),
            "cpu_ms_per_audio_second": round(self.cpu / self.sound * 1e3, 2),
            "first_audio_p50_ms": percentile(self.first, 50),
            "first_audio_p95_ms": percentile(self.first, 95),
            "total_p50_ms": percentile(self.total, 50),
            "total_p95_ms": percentile(self.total, 95),
            "requests": len(self.total),
            "errors": self.errors,
        }


def percentile(values: Sequence[float], share: float, digits: int = 1) -> float:
    """A rounded percentile."""
    return round(float(np.percentile(values, share)), digits)


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
    """Short turns and many of them, so that what else the machine does hits every way alike."""
    part = 4 if quick else 1
    short = {1: 16, 4: 48, 16: 64}
    long = {1: 2, 4: 8, 16: 32}
    requests = {("short", n): max(n, count // part) for n, count in short.items()}
    requests |= {("long", n): max(n, count // part) for n, count in long.items()}
    return Plan(repetitions, requests)


@dataclass(frozen=True)
class Pod:
    """One way through a server, with all processes of its pod."""

    gateway: Gateway
    processes: tuple[psutil.Process, ...]


def cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    """CPU time that processes have taken so far: it says what a way costs, whatever else the machine does."""
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))


async def compare(servers: dict[str, Pod], plan: Plan, client: LoadClient) -> dict[str, dict[str, Any]]:
    """The ways take turns; gives a summary by way, concurrency and kind of text."""
    yardstick = await asyncio.to_thread(InProcess)
    try:
        results: dict[str, dict[str, Any]] = {name: {} for name in ("in-process", *servers)}
        for concurrency in CONCURRENCIES:
            for kind in ("short", "long"):
                series = {name: Series() for name in results}
                texts = plan.texts(kind, concurrency)
                for repetition in range(plan.repetitions + 1):
                    turns = list(series.items())
                    for name, one in turns if repetition % 2 else reversed(turns):
                        processes = yardstick.processes() if name == "in-process" else servers[name].processes
                        before = cpu_seconds(processes)
                        if name == "in-process":
                            measured = await asyncio.to_thread(yardstick.drive, concurrency, texts)
                        else:
                            measured = await client.drive(servers[name].gateway.port, concurrency, texts)
                        if repetition:  # the first one warms caches, clocks and arenas
                            one.add(measured, cpu_seconds(processes) - before)
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


async def memory_slope(pod: Pod, client: LoadClient) -> dict[str, float]:
    """Growth in MB over 1,000 requests of every length, fitted to what comes after a warm-up."""
    rng = random.Random(7)

    def text() -> str:
        sentences = [
            " ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 25))).capitalize()
            for _ in range(rng.randint(1, 4))
        ]
        return ". ".join(sentences) + "."

    await client.drive(pod.gateway.port, 4, [text() for _ in range(MEMORY_WARM)])
    points = [memory(pod.processes)]
    step = MEMORY_REQUESTS // 20
    for _ in range(20):
        await client.drive(pod.gateway.port, 4, [text() for _ in range(step)])
        points.append(memory(pod.processes))
    slope = float(np.polyfit(np.arange(len(points)) * step, points, 1)[0]) * 1000
    return {
        "rss_slope_mb_per_1000": round(slope, 1),
        "rss_mb": round(points[-1], 1),
        "rss_min_mb": round(min(points), 1),
        "rss_max_mb": round(max(points), 1),
    }


async def start_pod(name: str, folder: Path, root: Path | None, stack: AsyncExitStack) -> Pod:
    """Start a pod's processes, to run until the stack is closed."""
    if name == "cpu":
        server = await stack.enter_async_context(gateway(folder))
        return Pod(server, (psutil.Process(server.pid), *server.workers()))
    assert root is not None
    triton = TritonServer(root, folder / f"triton-{name}.log")
    stack.callback(triton.kill)
    triton.start()
    await triton.ready()
    server = await stack.enter_async_context(gateway(folder, **triton.settings))
    assert triton.process is not None
    return Pod(server, (psutil.Process(server.pid), psutil.Process(triton.process.pid), *triton.stubs()))


async def starts(name: str, folder: Path, root: Path | None, count: int) -> dict[str, float]:
    """Medians over several starts of the pod: load seconds, and the first answer after it is ready."""
    loads, firsts, readies = [], [], []
    for _ in range(count):
        async with AsyncExitStack() as stack:
            one = (await start_pod(name, folder, root, stack)).gateway
            begun = time.perf_counter()
            answer = await one.speak("This is the first answer after the load.")
            firsts.append((time.perf_counter() - begun) * 1e3)
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
    backends = arguments.backends.split(",")
    if "triton" in backends and not namespaces_work():
        print("Triton is left out: this machine gives no mount namespaces (run as root)", file=sys.stderr)
        backends.remove("triton")
    progress = ConsoleProgress()
    images = {name: [load_source(image, progress) for image in IMAGES[name]] for name in backends}
    facts: dict[str, dict[str, Any]] = {
        name: {"image_mb": round(sum(image.archive.stat().st_size for image in many) / 1e6, 1)}
        for name, many in images.items()
    }
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perf-runtime-")))
        root = unpack(images["triton"][-1].archive, folder / "root") if "triton" in backends else None
        for name in backends:
            print(f"Starting {name} {arguments.starts} times", flush=True)
            facts[name] |= await starts(name, folder, root, arguments.starts)
        pods = {name: await start_pod(name, folder, root, stack) for name in backends}
        client = await LoadClient.start()
        stack.push_async_callback(client.stop)
        print("Comparing; the ways take turns", flush=True)
        compared = await compare(pods, make_plan(arguments.repetitions, quick=arguments.quick), client)
        for name in () if arguments.quick else backends:
            print(f"Memory of {name} over {MEMORY_REQUESTS} requests", flush=True)
            facts[name] |= await memory_slope(pods[name], client)
    return {"compared": compared, "facts": facts}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Measure the speech pods.")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--backends", default="cpu,triton")
    parser.add_argument("--quick", action="store_true", help="a fourth of the requests and no memory run")
    parser.add_argument("--out", type=Path, default=Path("perf-out"))
    arguments = parser.parse_args()
    write_report(asyncio.run(measure(arguments)), arguments.out)


if __name__ == "__main__":
    main()
