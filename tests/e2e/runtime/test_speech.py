"""The speech API of a CPU gateway as a client meets it."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from pathlib import Path

import httpx
import pytest

from tests.e2e.runtime.processes import Gateway, gateway
from tests.e2e.runtime.sound import LONG, SHORT, assert_speech, samples

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("text", [SHORT, LONG, LONG * 5], ids=["short", "long", "very long"])
async def test_a_text_becomes_speech(cpu: Gateway, text: str) -> None:
    answer = await cpu.speak(text)

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "audio/wav"
    assert_speech(answer.content, text)


async def test_the_answer_names_who_spoke(cpu: Gateway) -> None:
    answer = await cpu.client.post("/v1/audio/speech", json={"input": SHORT}, headers={"x-request-id": "mine-1"})

    names = {name: answer.headers[name] for name in ("x-cosyvoice-tier", "x-cosyvoice-pool", "x-request-id")}
    assert names == {"x-cosyvoice-tier": "cpu", "x-cosyvoice-pool": "cpu", "x-request-id": "mine-1"}


async def test_a_request_id_that_could_forge_a_log_is_replaced(cpu: Gateway) -> None:
    answer = await cpu.client.post("/v1/audio/speech", json={"input": SHORT}, headers={"x-request-id": "a b;c" * 30})

    assert uuid.UUID(answer.headers["x-request-id"])


async def test_pcm_is_the_same_sound_without_a_header(cpu: Gateway) -> None:
    pcm = (await cpu.speak(SHORT, response_format="pcm")).content
    wav = (await cpu.speak(SHORT)).content

    assert len(pcm) == len(wav) - 44
    assert not pcm.startswith(b"RIFF")


async def test_without_streaming_the_header_has_the_length(cpu: Gateway) -> None:
    answer = await cpu.speak(LONG, stream=False)

    assert int(answer.headers["content-length"]) == len(answer.content)
    assert int.from_bytes(answer.content[40:44], "little") == len(answer.content) - 44
    assert_speech(answer.content, LONG)


async def test_the_first_sound_of_a_long_text_arrives_before_half_of_it_is_made(cpu: Gateway) -> None:
    begun = time.perf_counter()
    first = None
    async with cpu.client.stream("POST", "/v1/audio/speech", json={"input": LONG * 8}) as answer:
        assert answer.headers["transfer-encoding"] == "chunked"
        async for chunk in answer.aiter_raw():
            if first is None and len(chunk) > 44:
                first = time.perf_counter() - begun
    total = time.perf_counter() - begun

    assert first is not None
    assert first < total / 2


ODD = {
    "empty": ("", 400),
    "spaces": ("  \n ", 400),
    "NUL inside": ("Hello\0there.", 200),
    "NUL only": ("\0", 400),
    "100,000 characters": ("Hello there. " * 7700, 400),
    "many sentences": ("Hello there. " * 300, 200),
    "one endless sentence": ("ab " * 1300, 200),
    "letters without a space": ("a" * 4000, 200),
    "digits": ("7" * 1000, 200),
    "emoji": ("😀🎉", 400),
    "Chinese": ("你好，世界。", 400),
    "emoji among words": ("Hello 😀 there.", 200),
    "punctuation": ("?!.,;:", 400),
    "markup": ("<speak>hi</speak> [a](/b\u0301/)", 200),
    "line breaks": ("\n" * 4000 + "a", 200),
    "brackets": ("[" * 4000 + " hello", 200),
    "open links": ("[](" * 1300 + " hello", 200),
    "full stops": ("." * 4000 + " hello", 200),
    "control characters": ("\x1b[31m\x07red\x08", 200),
    "right to left": ("\u202eevil\u202c words", 200),
    "combining marks": ("e" + "\u0301" * 3000, 200),
}


@pytest.mark.parametrize("name", ODD)
async def test_an_odd_text_is_spoken_or_refused_and_the_next_one_is_spoken(cpu: Gateway, name: str) -> None:
    text, status = ODD[name]

    answer = await cpu.speak(text)
    after = await cpu.speak("Still here.")

    assert answer.status_code == status, answer.text[:300] if answer.status_code != 200 else "spoken"
    if status == 400:
        error = answer.json()["error"]
        assert error["param"] == "input"
        assert error["message"]
    else:
        assert samples(answer.content).size > 0
    assert_speech(after.content, "Still here.")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"\xff\xfe\xc3(", 400, "invalid_json"),
        (b'{"input": "\xff"}', 400, "invalid_json"),
        (b'{"input": "\\ud800"}', 400, "invalid_json"),
        (b"[" * 10_000, 400, "invalid_json"),
        (b'{"input": "a", "model": "gpt-4o-mini-tts"}', 404, "model_not_found"),
        (b'{"input": "a", "voice": "alloy"}', 400, "voice_not_found"),
        (b'{"input": "a", "response_format": "mp3"}', 400, "unsupported_value"),
        (b" " * 300_000, 413, "body_too_large"),
    ],
)
async def test_a_wrong_body_is_told_what_is_wrong(cpu: Gateway, body: bytes, status: int, code: str) -> None:
    answer = await cpu.client.post("/v1/audio/speech", content=body)

    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert (await cpu.speak("Still here.")).status_code == 200


async def test_unknown_places_and_methods_have_errors_of_the_same_shape(cpu: Gateway) -> None:
    for answer, status in ((await cpu.client.get("/nowhere"), 404), (await cpu.client.get("/v1/audio/speech"), 405)):
        assert answer.status_code == status
        assert answer.json()["error"]["message"]


async def test_the_model_and_the_voice_are_listed(cpu: Gateway) -> None:
    models = (await cpu.client.get("/v1/models")).json()
    voices = (await cpu.client.get("/v1/audio/voices")).json()

    assert [model["id"] for model in models["data"]] == ["cosyvoice"]
    assert [voice["id"] for voice in voices["data"]] == ["heart"]


async def test_the_api_describes_itself(cpu: Gateway) -> None:
    document = (await cpu.client.get("/openapi.json")).json()

    speech = document["paths"]["/v1/audio/speech"]["post"]
    fields = speech["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert {"input", "model", "voice", "response_format", "stream"} <= set(fields)
    assert "429" in speech["responses"]
    assert "Error" in document["components"]["schemas"]


async def test_the_status_tells_the_operator_what_serves(cpu: Gateway) -> None:
    status = await cpu.status()

    assert status["ready"] is True
    assert (status["family"], status["backend"], status["executionProvider"]) == ("Demo", "ONNXRuntime", "CPU")
    assert status["providers"] == ["CPUExecutionProvider"]
    assert 0 < status["loadSeconds"] < 60
    assert status["warmupSeconds"] > 0
    assert status["engineKey"] is None
    assert status["selfSynthesis"]["ok"] is True


async def test_the_probes_agree(cpu: Gateway) -> None:
    assert [(await cpu.client.get(path)).status_code for path in ("/healthz", "/healthz/backend", "/readyz")] == [
        200
    ] * 3


async def test_the_metrics_count_what_was_spoken(cpu: Gateway) -> None:
    def value(name: str, text: str) -> float:
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    before = (await cpu.client.get("/metrics")).text
    await cpu.speak(SHORT)
    await cpu.speak("")
    after = (await cpu.client.get("/metrics")).text

    for name, growth in (
        ('cosyvoice_requests_total{code="200"}', 1),
        ('cosyvoice_requests_total{code="400"}', 1),
        ('cosyvoice_errors_total{kind="nothing_to_speak"}', 1),
        ("cosyvoice_first_audio_seconds_count", 1),
        ("cosyvoice_real_time_factor_count", 1),
        ("cosyvoice_characters_total", len(SHORT)),
    ):
        assert value(name, after) - value(name, before) == growth, name
    assert value("cosyvoice_audio_seconds_total", after) - value("cosyvoice_audio_seconds_total", before) > 1
    assert value("cosyvoice_model_load_seconds_count", after) == 2
    assert value("cosyvoice_workers", after) >= 2


async def test_no_text_is_in_the_log(cpu: Gateway) -> None:
    await cpu.speak("The password is xylophone.")
    await cpu.client.post("/v1/audio/speech", json={"input": "xylophone", "voice": "x"})

    log = cpu.log.read_text()
    assert "xylophone" not in log
    entries = [entry for entry in cpu.entries() if entry["message"] == "speech"]
    assert entries
    assert all(json.dumps(entry) for entry in entries)


def network_sockets(pid: int) -> set[str]:
    """Inodes of the TCP and UDP sockets that a process holds."""
    tables = [Path(f"/proc/net/{kind}").read_text().splitlines()[1:] for kind in ("tcp", "tcp6", "udp", "udp6")]
    inodes = {line.split()[9] for table in tables for line in table}
    links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
    return inodes & {link.removeprefix("socket:[").removesuffix("]") for link in links}


async def test_workers_hold_no_network_socket_and_report_to_nobody(cpu: Gateway) -> None:
    await cpu.speak(SHORT)

    assert network_sockets(cpu.pid)
    assert [network_sockets(worker.pid) for worker in cpu.workers()] == [set(), set()]


async def test_a_long_text_does_not_hold_back_a_short_one(cpu: Gateway) -> None:
    long = asyncio.create_task(cpu.speak(LONG * 12))
    await asyncio.sleep(0.3)

    short = await asyncio.wait_for(cpu.speak("Still here."), 20)

    assert short.status_code == 200
    assert not long.done()
    assert_speech((await long).content, LONG * 12)


async def test_a_reader_that_stands_still_blocks_nobody(cpu: Gateway) -> None:
    async with cpu.client.stream("POST", "/v1/audio/speech", json={"input": LONG * 12}) as answer:
        async for _ in answer.aiter_raw():
            break
        answers = await asyncio.gather(*(cpu.speak("Still here.") for _ in range(6)))

    assert [one.status_code for one in answers] == [200] * 6


async def test_more_requests_than_the_limit_are_told_to_come_back(tmp_path: Path) -> None:
    async with gateway(tmp_path, workers=1, max_streams=2) as server:
        answers = await asyncio.gather(*(server.speak(LONG) for _ in range(6)))

    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) == 4
    assert all(answer.headers["retry-after"] == "1" for answer in refused)
    assert refused[0].json()["error"]["code"] == "too_many_streams"


async def test_a_kept_connection_serves_many_requests(cpu: Gateway) -> None:
    limits = httpx.Limits(max_connections=1)
    async with httpx.AsyncClient(base_url=cpu.url, limits=limits, trust_env=False, timeout=30) as client:
        answers = [await client.post("/v1/audio/speech", json={"input": "Still here."}) for _ in range(10)]

    assert {answer.status_code for answer in answers} == {200}
    assert "connection" not in answers[-1].headers
