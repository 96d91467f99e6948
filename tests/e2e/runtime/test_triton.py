"""The gateway in front of a real Triton, in the root folder of its image."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc.aio as client_library

from tests.e2e.runtime.processes import Gateway, TritonServer, eventually, gateway
from tests.e2e.runtime.sound import LONG, SHORT, assert_speech
from tests.e2e.runtime.test_faults import idle, speak_all

pytestmark = pytest.mark.asyncio(loop_scope="module")

Pod = tuple[Gateway, TritonServer]


@pytest.mark.parametrize("text", [SHORT, LONG, LONG * 5], ids=["short", "long", "very long"])
async def test_a_text_becomes_speech(gpu: Pod, text: str) -> None:
    answer = await gpu[0].speak(text)

    assert answer.status_code == 200
    assert answer.headers["x-cosyvoice-tier"] == "gpu"
    assert_speech(answer.content, text)


async def test_the_status_has_what_the_model_itself_reports(gpu: Pod) -> None:
    status = await gpu[0].status()

    assert (status["ready"], status["backend"], status["executionProvider"]) == (True, "Triton", "CPU")
    assert status["providers"] == ["CPUExecutionProvider"]
    assert status["loadSeconds"] > 0
    assert status["warmupSeconds"] > 0


async def test_concurrent_requests_are_all_spoken(gpu: Pod) -> None:
    answers = await speak_all(gpu[0], 24, 16, LONG)

    for answer in answers:
        assert answer.status_code == 200
        assert_speech(answer.content, LONG)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", 400),
        ("你好，世界。", 400),
        ("😀", 400),
        ("[a](/b/) \0 hello", 200),
        ("7" * 1000, 200),
        ("[" * 4000 + " hello", 200),
    ],
)
async def test_an_odd_text_is_spoken_or_refused_and_the_next_one_is_spoken(gpu: Pod, text: str, status: int) -> None:
    assert (await gpu[0].speak(text)).status_code == status
    assert_speech((await gpu[0].speak("Still here.")).content, "Still here.")


async def test_a_client_that_hangs_up_frees_triton(gpu: Pod) -> None:
    async with gpu[0].client.stream("POST", "/v1/audio/speech", json={"input": LONG * 14}) as answer:
        async for _ in answer.aiter_raw():
            break

    await eventually(lambda: idle(gpu[0]), 1.0, "nothing is left a second after the client has gone")
    assert_speech((await gpu[0].speak(SHORT)).content, SHORT)


async def ask(server: TritonServer, text: bytes, **more: np.ndarray) -> str | None:
    """Ask the model itself; gives its error."""
    inputs = [client_library.InferInput("target_text", [1, 1], "BYTES")]
    inputs[0].set_data_from_numpy(np.array([[text]], dtype=np.object_))
    for name, value in more.items():
        kind = {"f": "FP32", "i": "INT32", "O": "BYTES"}[value.dtype.kind]
        tensor = client_library.InferInput(name, list(value.shape), kind)
        tensor.set_data_from_numpy(value)
        inputs.append(tensor)

    async def requests():
        yield {
            "model_name": "cosyvoice",
            "inputs": inputs,
            "request_id": str(uuid.uuid4()),
            "enable_empty_final_response": True,
        }

    async with client_library.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        async for result, error in client.stream_infer(requests()):
            if error is not None:
                return str(error.message())
            if result.get_response().parameters["triton_final_response"].bool_param:
                return None
    return "the stream ended"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reference_wav", np.zeros((1, 16_000), np.float32)),
        ("reference_wav_len", np.array([[16_000]], np.int32)),
        ("reference_text", np.array([[b"hello"]], dtype=np.object_)),
    ],
)
async def test_a_reference_voice_is_refused_and_not_silently_ignored(gpu: Pod, name: str, value: np.ndarray) -> None:
    error = await ask(gpu[1], b"Hello.", **{name: value})

    assert error is not None
    assert error.startswith("[text_refused]")
    assert name in error
    assert await ask(gpu[1], b"Hello.") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [(b"\xff\xfe\xc3(", "UTF-8"), (b"Hello there. " * 7700, "5000"), (b"", "nothing"), (b"\xed\xa0\x80", "UTF-8")],
)
async def test_the_model_itself_refuses_what_it_cannot_speak(gpu: Pod, text: bytes, message: str) -> None:
    error = await ask(gpu[1], text)

    assert error is not None
    assert message in error
    assert await ask(gpu[1], b"Still here.") is None


@pytest.mark.asyncio(loop_scope="function")
async def test_a_dead_model_process_costs_no_request_and_the_probe_asks_for_a_restart(
    triton: TritonServer, tmp_path: Path
) -> None:
    triton.start()
    await triton.ready()
    async with gateway(tmp_path, **triton.settings) as server:
        load = asyncio.create_task(speak_all(server, 40, 4, SHORT))
        await asyncio.sleep(0.3)
        triton.stubs()[0].kill()
        answers = await load

        assert {answer.status_code for answer in answers} == {200}
        assert (await server.client.get("/healthz")).status_code == 200

        async def restart_wanted() -> bool:
            return (await server.client.get("/healthz/backend")).status_code == 503

        await eventually(restart_wanted, 30, "the liveness probe of Triton fails")


@pytest.mark.asyncio(loop_scope="function")
async def test_a_triton_that_is_restarted_under_load_costs_no_request(triton: TritonServer, tmp_path: Path) -> None:
    triton.start()
    await triton.ready()
    async with gateway(tmp_path, **triton.settings) as server:
        load = asyncio.create_task(speak_all(server, 40, 4, SHORT))
        await asyncio.sleep(0.3)
        triton.kill()
        await asyncio.sleep(0.2)
        assert (await server.client.get("/readyz")).status_code == 503
        triton.start()
        answers = await load

        assert {answer.status_code for answer in answers} == {200}
        await server.until("/readyz")
        await server.until("/healthz/backend")


@pytest.mark.asyncio(loop_scope="function")
async def test_a_gateway_without_a_triton_says_so_and_finds_it_when_it_comes(
    triton: TritonServer, tmp_path: Path
) -> None:
    async with gateway(tmp_path, wait=False, **triton.settings) as server:
        await server.until("/healthz")

        async def told() -> bool:
            return "does not answer" in ((await server.status())["reason"] or "")

        await eventually(told, 10, "the reason is in the status")
        triton.start()
        await server.until("/readyz")
        assert_speech((await server.speak(SHORT)).content, SHORT)
