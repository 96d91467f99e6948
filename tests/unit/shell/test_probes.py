"""Asking runtime pods: over real HTTP to a gateway that this test plays, and the schedule behind it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from cosyvoice_operator.core.model import ProbeTarget, ProgressReport, RuntimeReport
from cosyvoice_operator.engine.probes import Prober
from cosyvoice_operator.engine.store import Key, Store
from cosyvoice_operator.inference.client import ProbeError, RuntimeClient, parse_progress, parse_report
from cosyvoice_operator.telemetry.metrics import Metrics
from tests.unit.shell.builders import owner, pod

KEY = ("ns", "x")
STATUS: dict[str, Any] = {
    "ready": True,
    "family": "Demo",
    "model": "heart",
    "backend": "ONNXRuntime",
    "executionProvider": "CPU",
    "providers": ["CPUExecutionProvider"],
    "loadSeconds": 1.5,
    "engineKey": None,
    "uptimeSeconds": 3.0,
}


class Gateway:
    """A gateway whose answers the test decides."""

    def __init__(self) -> None:
        self.answer: Any = STATUS
        self.code = 200
        self.delay = 0.0
        self.asked = 0
        self.news = asyncio.Event()

    async def status(self, _: web.Request) -> web.Response:
        self.asked += 1
        self.news.set()
        await asyncio.sleep(self.delay)
        if isinstance(self.answer, str):
            return web.Response(text=self.answer, status=self.code)
        return web.json_response(self.answer, status=self.code)


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    gateway = Gateway()
    app = web.Application()
    app.router.add_get("/status", gateway.status)
    app.router.add_get("/progress", gateway.status)
    async with TestServer(app) as server:
        gateway.url = str(server.make_url("/status"))
        yield gateway


@pytest.fixture
async def client() -> AsyncIterator[RuntimeClient]:
    async with RuntimeClient(timeout=0.3, connections=4) as client:
        yield client


class TestClient:
    async def test_a_report_is_read(self, gateway: Gateway, client: RuntimeClient) -> None:
        assert await client.fetch(gateway.url) == RuntimeReport(
            ready=True, family="Demo", backend="ONNXRuntime", provider="CPU", load_seconds=1.5, engine_key=None
        )

    async def test_a_pod_that_takes_too_long_gives_none(self, gateway: Gateway, client: RuntimeClient) -> None:
        gateway.delay = 5
        with pytest.raises(ProbeError, match="gave no answer"):
            await client.fetch(gateway.url)

    async def test_a_pod_that_nothing_listens_in_gives_none(self, client: RuntimeClient) -> None:
        with pytest.raises(ProbeError, match="gave no answer"):
            await client.fetch("http://127.0.0.1:1/status")

    async def test_an_error_of_the_gateway_is_told_with_its_code(self, gateway: Gateway, client: RuntimeClient) -> None:
        gateway.code = 503
        with pytest.raises(ProbeError, match="answered 503"):
            await client.fetch(gateway.url)

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"not json",
            b"[]",
            b"null",
            b'{"ready": true}',
            b'{"ready": true, "family": "Demo", "backend": "x", "executionProvider": "CPU", "loadSeconds": "soon"}',
            b"\xff\xfe",
        ],
    )
    def test_what_is_no_report_is_refused(self, body: bytes) -> None:
        with pytest.raises(ProbeError, match="not a runtime report"):
            parse_report(body)


class TestProgress:
    @pytest.mark.parametrize(
        ("told", "text"),
        [
            ({"phase": "checking"}, "checking"),
            ({"phase": "optimising", "done": 1, "total": 4, "unit": "steps"}, "optimising, 25 %"),
            (
                {
                    "phase": "downloading",
                    "done": 1_300_000_000,
                    "total": 3_100_000_000,
                    "unit": "bytes",
                    "perSecond": 44_800_000.0,
                    "secondsLeft": 41.3,
                },
                "downloading, 41 % of 3.1 GB, 45 MB/s, about 40 s left",
            ),
            (
                {"phase": "downloading", "done": 0, "total": 412_345, "unit": "bytes", "secondsLeft": 1000.0},
                "downloading, 0 % of 410 kB, about 17 min left",
            ),
        ],
    )
    def test_it_is_told_in_words_that_change_seldom(self, told: dict[str, Any], text: str) -> None:
        assert parse_progress(json.dumps(told).encode()) == ProgressReport(text)

    @pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"phase": "x", "total": "many"}'])
    def test_what_is_none_is_refused(self, body: bytes) -> None:
        with pytest.raises(ProbeError, match="not a progress report"):
            parse_progress(body)

    async def test_the_pod_of_a_job_is_asked_again_and_again(
        self, bench: Bench, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cosyvoice_operator.engine.probes.PROGRESS_EVERY", 0.01)
        gateway.answer = {"phase": "one"}
        target = ProbeTarget("pod-uid", gateway.url.replace("/status", "/progress"), progress=True)
        bench.prober.want(KEY, (target,))
        assert await asyncio.wait_for(bench.changed.get(), 2) == KEY
        assert bench.store.snapshot(KEY).progress == {"pod-uid": ProgressReport("one")}
        gateway.answer = {"phase": "two"}
        assert await asyncio.wait_for(bench.changed.get(), 2) == KEY
        assert bench.store.snapshot(KEY).progress == {"pod-uid": ProgressReport("two")}
        bench.prober.want(KEY, ())
        gateway.news.clear()
        await asyncio.sleep(0.05)
        asked = gateway.asked
        await asyncio.sleep(0.1)
        assert gateway.asked == asked, "it isn't asked any more"


class Bench:
    """A prober over a real client, with a resource and a pod."""

    def __init__(self, client: RuntimeClient, url: str) -> None:
        self.store = Store()
        self.store.update("CosyVoiceDeployment", owner())
        self.store.update("Pod", pod())
        self.changed: asyncio.Queue[Key] = asyncio.Queue()
        self.metrics = Metrics()
        loop = asyncio.get_running_loop()
        self.prober = Prober(client, self.store, self.changed.put_nowait, self.metrics, loop.time)
        self.targets = (ProbeTarget("pod-uid/0", url),)

    def results(self, result: str) -> float:
        return (
            self.metrics.registry.get_sample_value("cosyvoice_operator_runtime_probes_total", {"result": result}) or 0
        )


@pytest.fixture
async def bench(client: RuntimeClient, gateway: Gateway) -> AsyncIterator[Bench]:
    bench = Bench(client, gateway.url)
    workers = [asyncio.create_task(bench.prober.work()) for _ in range(2)]
    yield bench
    bench.prober.close()
    await asyncio.gather(*workers)


class TestProber:
    async def test_a_report_reaches_the_store_and_its_resource_is_looked_at(self, bench: Bench) -> None:
        bench.prober.want(KEY, bench.targets)
        assert await asyncio.wait_for(bench.changed.get(), 2) == KEY
        assert bench.store.snapshot(KEY).reports["pod-uid/0"].load_seconds == 1.5

    async def test_the_load_time_is_counted_once(self, bench: Bench) -> None:
        bench.prober.want(KEY, bench.targets)
        await asyncio.wait_for(bench.changed.get(), 2)
        labels = {"family": "Demo", "backend": "ONNXRuntime"}
        value = bench.metrics.registry.get_sample_value("cosyvoice_operator_model_load_seconds_count", labels)
        assert value == 1

    async def test_a_pod_that_fails_is_asked_again_until_it_answers(self, bench: Bench, gateway: Gateway) -> None:
        gateway.code = 503
        bench.prober.want(KEY, bench.targets)
        await asyncio.wait_for(gateway.news.wait(), 2)
        gateway.code = 200
        assert await asyncio.wait_for(bench.changed.get(), 5) == KEY
        assert bench.results("failed") == 1

    async def test_asking_for_the_same_pod_again_while_it_is_being_asked_asks_it_once(
        self, bench: Bench, gateway: Gateway
    ) -> None:
        gateway.delay = 0.1
        for _ in range(5):
            bench.prober.want(KEY, bench.targets)
        await asyncio.wait_for(bench.changed.get(), 2)
        assert gateway.asked == 1

    async def test_a_pod_that_is_no_longer_wanted_leaves_nothing_behind(self, bench: Bench, gateway: Gateway) -> None:
        gateway.delay = 0.1
        bench.prober.want(KEY, bench.targets)
        await asyncio.wait_for(gateway.news.wait(), 2)
        bench.prober.want(KEY, ())
        await asyncio.sleep(0.2)
        assert bench.store.snapshot(KEY).reports == {}
        assert bench.changed.empty()
