"""Settings, CPU limits and what a request may hold."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cosyvoice_runtime import cpus
from cosyvoice_runtime.api.schemas import SpeechRequest, parse
from cosyvoice_runtime.errors import ApiError
from cosyvoice_runtime.settings import Settings


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("COSYVOICE_")]:
        monkeypatch.delenv(name)


def test_settings_come_from_the_environment_and_empty_ones_count_as_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSYVOICE_BACKEND", "triton")
    monkeypatch.setenv("COSYVOICE_TIER", "gpu")
    monkeypatch.setenv("COSYVOICE_LOG_LEVEL", "WARNING")
    monkeypatch.setenv("COSYVOICE_CPU_LIMIT", "")

    settings = Settings()

    assert (settings.backend_title, settings.tier, settings.log_level, settings.cpu_limit) == (
        "Triton",
        "gpu",
        "warning",
        None,
    )


@pytest.mark.parametrize(
    ("name", "value"), [("BACKEND", "tensorrt"), ("PORT", "70000"), ("WORKERS", "0"), ("EXECUTION_PROVIDER", "TPU")]
)
def test_a_wrong_setting_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"COSYVOICE_{name}", value)
    with pytest.raises(ValidationError):
        Settings()


@pytest.mark.parametrize(("limit", "workers"), [(0.25, 1), (1, 1), (1.9, 1), (2, 2), (4.5, 4)])
def test_workers_follow_whole_cpus(limit: float, workers: int) -> None:
    assert cpus.worker_count(limit) == workers


def test_an_explicit_number_of_workers_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSYVOICE_WORKERS", "7")
    monkeypatch.setenv("COSYVOICE_CPU_LIMIT", "1")
    assert Settings().worker_count == 7


@pytest.mark.parametrize(("content", "quota"), [("150000 100000", 1.5), ("max 100000", None), ("broken", None)])
def test_the_quota_of_a_cgroup_v2_container(tmp_path: Path, content: str, quota: float | None) -> None:
    (tmp_path / "cpu.max").write_text(content)
    assert cpus.cgroup_quota(tmp_path) == quota


def test_the_quota_of_a_cgroup_v1_container(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("200000")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000")
    assert cpus.cgroup_quota(tmp_path) == 2.0


def test_no_more_cpus_than_the_process_may_run_on(tmp_path: Path) -> None:
    assert cpus.available_cpus(1000, tmp_path) == cpus.available_cpus(None, tmp_path)


def test_the_smallest_request() -> None:
    request = parse(b'{"input": "Hello."}')
    assert request == SpeechRequest(input="Hello.", response_format="wav", stream=True)


def test_an_openai_request_is_accepted_as_it_is() -> None:
    body = {
        "model": "cosyvoice",
        "voice": "heart",
        "input": "Hi.",
        "response_format": "pcm",
        "speed": 1.0,
        "stream_format": "audio",
    }
    assert parse(json.dumps(body).encode()).response_format == "pcm"


@pytest.mark.parametrize(
    ("body", "code", "param", "advice"),
    [
        (b"{", "invalid_json", None, "JSON"),
        (b"\xff\xfe\xc3(", "invalid_json", None, "UTF-8"),
        (b'{"input": "\\ud800"}', "invalid_json", None, "JSON"),
        (b"[]", "invalid_type", None, '{"input": "Hello."}'),
        (b"{}", "missing_required_parameter", "input", "write the text"),
        (b'{"input": 5}', "invalid_type", "input", "string"),
        (b'{"input": null}', "invalid_type", "input", "string"),
        (b'{"input": "a", "speed": "fast"}', "invalid_type", "speed", "number"),
        (b'{"input": "a", "sped": 1}', "unknown_parameter", "sped", "speed"),
        (b'{"input": "a", "speed": 2.0}', "unsupported_value", "speed", "1.0"),
        (b'{"input": "a", "response_format": "mp3"}', "unsupported_value", "response_format", "'wav' or 'pcm'"),
        (b'{"input": "a", "stream_format": "sse"}', "unsupported_value", "stream_format", "'audio'"),
        (b'{"input": "a", "instructions": "sing"}', "unsupported_value", "instructions", "leave it out"),
    ],
)
def test_a_wrong_request_is_told_what_to_write(body: bytes, code: str, param: str | None, advice: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse(body)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, code, param)
    assert advice in caught.value.message
    assert set(caught.value.body()["error"]) == {"message", "type", "param", "code"}


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_a_400(body: bytes) -> None:
    with contextlib.suppress(ApiError):  # its status is told above; anything else fails
        parse(body)
