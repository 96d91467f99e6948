"""What happens to listeners when processes die, hang, or are told to stop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path

import httpx
import psutil

from tests.e2e.runtime.processes import PROJECT, Gateway, eventually, gateway
from tests.e2e.runtime.sound import LONG, SHORT, assert_speech


async def speak_all(server: Gateway, count: int, at_once: int, text: str) -> list[httpx.Response]:
    """So many answers, so many at a time."""
    gate = asyncio.Semaphore(at_once)

    async def one() -> httpx.Response:
        async with gate:
            return await server.speak(text)

    return await asyncio.gather(*(one() for _ in range(count)))


async def idle(server: Gateway) -> bool:
    """Whether no request and no sentence is left in the gateway."""
    metrics = (await server.client.get("/metrics")).text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in metrics if not line.startswith("#"))
    return float(values["cosyvoice_streams"]) == 0 and float(values["cosyvoice_queued_sentences"]) == 0


async def test_a_worker_that_is_killed_under_load_costs_no_request(tmp_path: Path) -> None:
    async with gateway(tmp_path) as server:
        victims = server.workers()
        load = asyncio.create_task(speak_all(server, 60, 8, SHORT))
        await asyncio.sleep(0.5)
        victims[0].kill()
        answers = await load

        assert {answer.status_code for answer in answers} == {200}
        for answer in answers:
            assert_speech(answer.content, SHORT)

        async def replaced() -> bool:
            pids = {worker.pid for worker in server.workers()}
            return len(pids) == 2 and victims[0].pid not in pids

        await eventually(replaced, 30, "the worker is replaced")
        assert (await server.client.get("/readyz")).status_code == 200


async def test_all_workers_killed_at_once_cost_no_request_either(tmp_path: Path) -> None:
    async with gateway(tmp_path) as server:
        load = asyncio.create_task(speak_all(server, 30, 8, LONG))
        await asyncio.sleep(0.5)
        for worker in server.workers():
            worker.kill()
        answers = await load

        assert {answer.status_code for answer in answers} == {200}
        for answer in answers:
            assert_speech(answer.content, LONG)


async def test_a_worker_that_hangs_is_found_by_the_self_synthesis_and_replaced(tmp_path: Path) -> None:
    async with gateway(tmp_path, self_synthesis_interval=1, self_synthesis_timeout=3) as server:
        hung = server.workers()[0]
        hung.suspend()

        async def gone() -> bool:
            return hung.pid not in {worker.pid for worker in server.workers()} and len(server.workers()) == 2

        await eventually(gone, 60, "the hung worker is replaced")
        await server.until("/readyz")
        assert_speech((await server.speak(SHORT)).content, SHORT)


async def test_a_stop_signal_cuts_no_stream(tmp_path: Path) -> None:
    async with gateway(tmp_path, drain_seconds=80) as server:
        started = asyncio.Event()
        heard = 0

        async def listen() -> bytes:
            nonlocal heard
            async with server.client.stream("POST", "/v1/audio/speech", json={"input": LONG * 3}) as answer:
                assert answer.status_code == 200
                heard += 1
                if heard == 8:
                    started.set()
                # Not aiter_bytes: a body that ends early raises here.
                return b"".join([part async for part in answer.aiter_raw()])

        streams = [asyncio.create_task(listen()) for _ in range(8)]
        await started.wait()
        server.process.send_signal(signal.SIGTERM)

        async def not_ready() -> bool:
            return (await server.client.get("/readyz")).status_code == 503

        await eventually(not_ready, 5, "the gateway is no longer ready")
        late = await server.speak("Still here.")
        bodies = await asyncio.gather(*streams)
        code = await server.stop()

    assert late.status_code == 200
    assert late.headers["connection"] == "close"
    for body in bodies:
        assert_speech(body, LONG * 3)
    assert code == 0


async def test_workers_outlive_a_signal_to_the_whole_group_and_not_their_gateway(tmp_path: Path) -> None:
    async with gateway(tmp_path) as server:
        workers = server.workers()
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        assert (await server.speak(SHORT)).status_code == 200

        os.kill(server.pid, signal.SIGKILL)

        _, alive = await asyncio.to_thread(psutil.wait_procs, workers, 10)
        assert alive == []


async def test_a_client_that_hangs_up_frees_the_workers(tmp_path: Path) -> None:
    async with gateway(tmp_path) as server:
        async with server.client.stream("POST", "/v1/audio/speech", json={"input": LONG * 14}) as answer:
            async for _ in answer.aiter_raw():
                break

        await eventually(lambda: idle(server), 1.0, "the workers are free a second after the client has gone")
        busy = [sum(worker.cpu_times()[:2]) for worker in server.workers()]
        await asyncio.sleep(0.5)
        assert sum(sum(worker.cpu_times()[:2]) for worker in server.workers()) - sum(busy) < 0.2
        assert any(entry.get("error") == "client_gone" for entry in server.entries())


async def test_a_client_that_stops_reading_loses_its_place(tmp_path: Path) -> None:
    async with gateway(tmp_path, slow_reader_timeout=1) as server:
        # With a small window the kernel takes little of the sound on the client's behalf.
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", server.port))
            body = json.dumps({"input": LONG * 18}).encode()
            client.sendall(
                b"POST /v1/audio/speech HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )

            await eventually(lambda: idle(server), 30, "the stream is freed")
            assert any(entry.get("error") == "client_gone" for entry in server.entries())


async def test_a_client_that_hangs_up_before_any_sound_is_forgotten(tmp_path: Path) -> None:
    async with gateway(tmp_path, workers=1) as server:
        waiting = [asyncio.create_task(server.speak(LONG * 4)) for _ in range(6)]
        await asyncio.sleep(0.05)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

        await eventually(lambda: idle(server), 2.0, "nothing is left of clients that have gone")
        assert (await server.speak(SHORT)).status_code == 200


async def test_a_voice_that_does_not_load_ends_the_process_with_the_reason(tmp_path: Path) -> None:
    async with gateway(tmp_path, wait=False, voice="emma") as server:
        await server.until("/healthz")
        refused = await server.speak(SHORT)
        status = await server.status()
        async with asyncio.timeout(60):
            code = await server.process.wait()

    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert status["ready"] is False
    assert code == 1
    last = server.entries()[-1]["message"]
    assert "emma" in last
    assert "heart" in last


async def test_workers_that_cannot_speak_in_time_fail_the_liveness(tmp_path: Path) -> None:
    async with gateway(
        tmp_path, self_synthesis_interval=0.5, self_synthesis_timeout=0.001, load_timeout=1, wait=False
    ) as server:
        await server.until("/healthz")

        async def dead() -> bool:
            return (await server.client.get("/healthz")).status_code == 503

        await eventually(dead, 60, "the liveness fails")
        assert (await server.status())["selfSynthesis"]["ok"] is False


async def test_a_provider_other_than_the_wanted_one_is_not_ready_and_says_so(tmp_path: Path) -> None:
    async with gateway(tmp_path, wait=False, execution_provider="CUDA") as server:
        await server.until("/healthz")

        async def loaded() -> bool:
            return (await server.status())["executionProvider"] == "CPU"

        await eventually(loaded, 60, "the model is loaded")
        status = await server.status()
        assert status["ready"] is False
        assert "CUDA is wanted" in status["reason"]


async def test_a_wrong_setting_ends_the_process_with_its_name() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "cosyvoice_runtime",
        env={**os.environ, "COSYVOICE_BACKEND": "tensorrt"},
        stderr=asyncio.subprocess.PIPE,
        cwd=PROJECT,
    )
    _, stderr = await process.communicate()

    assert process.returncode == 2
    assert b"COSYVOICE_BACKEND" in stderr
