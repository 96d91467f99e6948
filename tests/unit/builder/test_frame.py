"""A build ends with a result whatever happens to it, and two builds of one key make one engine. All with real processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cosyvoice_runtime.builder import frame
from cosyvoice_runtime.builder.reasons import Reason
from tests.unit.builder.setting import KEY, Builder, children, document, frozen_worker, graph, of_model, until


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    graph(tmp_path / "model/a.onnx", seed=1)
    graph(tmp_path / "model/b.onnx", seed=2, side_file=True)
    return tmp_path / "model"


@pytest.fixture
def request_of_model(model: Path) -> dict[str, Any]:
    return of_model(model)


def test_a_build_ends_with_a_manifest_of_everything(builder: Builder, request_of_model: dict[str, Any]) -> None:
    code, result = builder.run(request_of_model)

    assert (code, result["outcome"], result["reused"], result["key"]) == (0, "Succeeded", False, KEY)
    assert [one["graph"] for one in result["accuracy"]] == ["a.onnx", "b.onnx"]
    written = json.loads((builder.engines / KEY / "manifest.json").read_text())
    assert written["keyFields"] == {"component": "test"}
    assert written["request"]["target"]["provider"] == "CPU"
    assert sorted(one["path"] for one in written["files"]) == ["a.onnx", "b.onnx", "b.onnx.data"]
    assert result["bytes"] == sum(one["bytes"] for one in written["files"])
    assert written["versions"] == result["versions"]
    assert set(written) >= {"version", "key", "driver", "builtAt", "seconds", "accuracy"}
    assert builder.names() == [KEY]


def test_the_second_build_of_a_key_builds_nothing(builder: Builder, request_of_model: dict[str, Any]) -> None:
    _, first = builder.run(request_of_model)
    before = (builder.engines / KEY / "manifest.json").stat().st_mtime_ns

    code, second = builder.run(request_of_model)

    assert (code, second["outcome"], second["reused"]) == (0, "Succeeded", True)
    assert second["accuracy"] == first["accuracy"]
    assert (builder.engines / KEY / "manifest.json").stat().st_mtime_ns == before


def test_a_broken_engine_is_built_again(builder: Builder, request_of_model: dict[str, Any]) -> None:
    builder.run(request_of_model)
    (builder.engines / KEY / "a.onnx").write_bytes(b"cut")

    code, result = builder.run(request_of_model)

    assert (code, result["reused"]) == (0, False)
    assert builder.run(None, "verify", str(builder.engines / KEY))[0] == 0
    assert builder.names() == [KEY]


def test_two_builders_of_one_key_make_one_engine(
    builder: Builder, tmp_path: Path, request_of_model: dict[str, Any]
) -> None:
    other = Builder(tmp_path, "pod-b")
    with builder.started(request_of_model) as slow:
        worker = frozen_worker(builder, slow)
        code, theirs = other.run(request_of_model)
        assert (code, theirs["reused"]) == (0, False)

        worker.resume()
        slow.communicate(timeout=120)

    assert (slow.returncode, builder.result()["outcome"], builder.result()["reused"]) == (0, "Succeeded", True)
    assert builder.names() == [KEY]
    assert builder.run(None, "verify", str(builder.engines / KEY))[0] == 0


def test_of_builders_that_run_at_once_exactly_one_says_that_it_built(
    builder: Builder, tmp_path: Path, request_of_model: dict[str, Any]
) -> None:
    builders = [builder, *(Builder(tmp_path, f"pod-{number}") for number in range(3))]
    with contextlib.ExitStack() as stack:
        for process in [stack.enter_context(one.started(request_of_model)) for one in builders]:
            process.communicate(timeout=120)

    results = [one.result() for one in builders]
    assert [result["outcome"] for result in results] == ["Succeeded"] * 4
    assert sorted(result["reused"] for result in results) == [False, True, True, True]
    assert builder.names() == [KEY]


def test_a_builder_that_is_killed_leaves_no_engine_and_the_next_one_builds_it(
    builder: Builder, tmp_path: Path, request_of_model: dict[str, Any]
) -> None:
    with builder.started(request_of_model) as process:
        worker = frozen_worker(builder, process)
        process.kill()
        process.wait()
        # A worker never outlives its frame, even one that is stopped.
        worker.resume()
        until(lambda: not worker.is_running() or worker.status() == "zombie")
    assert builder.names() == [f"{KEY}.tmp-pod-a"]

    code, result = Builder(tmp_path, "pod-b").run(request_of_model)

    assert (code, result["reused"]) == (0, False)
    assert builder.names() == [KEY, f"{KEY}.tmp-pod-a"]  # of another pod, and not a day old

    assert builder.run(request_of_model)[1]["reused"] is True
    assert builder.names() == [KEY]  # the restarted container removes what it left itself


def test_a_worker_that_is_killed_means_out_of_memory(builder: Builder, request_of_model: dict[str, Any]) -> None:
    with builder.started(request_of_model) as process:
        frozen_worker(builder, process).kill()
        process.communicate(timeout=60)

    assert process.returncode == 1
    assert builder.result()["reason"] == "OutOfMemory"
    assert "memory limit" in builder.result()["message"]
    assert builder.names() == []


def test_a_worker_that_crashes_is_told_with_its_signal(builder: Builder, request_of_model: dict[str, Any]) -> None:
    with builder.started(request_of_model) as process:
        worker = frozen_worker(builder, process)
        worker.send_signal(signal.SIGSEGV)
        worker.resume()
        process.communicate(timeout=60)

    assert builder.result()["reason"] == "Internal"
    assert "SIGSEGV" in builder.result()["message"]


def test_a_build_that_takes_too_long_ends_itself(builder: Builder, request_of_model: dict[str, Any]) -> None:
    with builder.started(request_of_model, timeout=2) as process:
        frozen_worker(builder, process)
        process.communicate(timeout=60)

    assert process.returncode == 1
    assert builder.result()["reason"] == "Timeout"
    assert "not done after 2 s" in builder.result()["message"]
    assert builder.names() == []


def test_a_pod_that_is_deleted_ends_with_a_result_and_without_leftovers(
    builder: Builder, request_of_model: dict[str, Any]
) -> None:
    with builder.started(request_of_model) as process:
        worker = frozen_worker(builder, process)
        process.terminate()
        process.communicate(timeout=60)
        assert not worker.is_running()

    assert process.returncode == 143, "a Job tries again after this, and not after a failure"
    assert builder.result()["reason"] == "Internal"
    assert "SIGTERM" in builder.result()["message"]
    assert builder.names() == []


def test_progress_can_be_asked_for_while_it_builds(builder: Builder, request_of_model: dict[str, Any]) -> None:
    with builder.started(request_of_model, log_level="debug") as process:
        frozen_worker(builder, process)
        port = listening_port(process.pid)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/progress", timeout=10) as answer:
            told = json.load(answer)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10)

    assert set(told) == {"phase", "done", "total", "unit", "perSecond", "secondsLeft"}
    assert told["unit"] == "steps"


def listening_port(pid: int) -> int:
    import psutil

    def ports() -> list[int]:
        return [
            one.laddr.port for one in psutil.Process(pid).net_connections("inet") if one.status == psutil.CONN_LISTEN
        ]

    found: list[int] = until(ports)
    return found[0]


def test_a_port_that_is_taken_does_not_stop_a_build(builder: Builder, request_of_model: dict[str, Any]) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, _ = builder.run(request_of_model, port=taken.getsockname()[1])

    assert code == 0


def test_a_request_that_is_missing_or_wrong_is_told(builder: Builder) -> None:
    code, result = builder.run(None)
    assert (code, result["reason"], result["key"]) == (1, "Internal", None)
    assert "COSYVOICE_BUILD_REQUEST" in result["message"]

    code, result = builder.run(document(target={"arch": "riscv64"}))
    assert (code, result["reason"]) == (1, "Internal")
    assert "target.arch" in result["message"]


@contextlib.contextmanager
def small_volume(path: Path, size: str) -> Iterator[None]:
    path.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def can_mount() -> bool:
    return (
        os.geteuid() == 0
        and subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode == 0
    )


@pytest.mark.skipif(not can_mount(), reason="a small volume can only be made by root")
def test_a_volume_that_is_too_small_is_told_before_anything_is_written(builder: Builder, tmp_path: Path) -> None:
    graph(tmp_path / "model/large.onnx", rows=512)
    with small_volume(builder.cache, "1m"):
        code, result = builder.run(of_model(tmp_path / "model"))

        assert (code, result["reason"]) == (1, "DiskFull")
        assert re.search(r"[01] MiB free, this engine needs up to \d+ MiB", result["message"])
        assert builder.names() == []


@pytest.mark.skipif(not can_mount(), reason="a small volume can only be made by root")
@pytest.mark.parametrize("side_file", [False, True], ids=["in one file", "with a side file"])
def test_a_volume_that_fills_up_in_the_middle_is_told(builder: Builder, tmp_path: Path, *, side_file: bool) -> None:
    # Room enough for the check, until somebody else writes while the worker stands still.
    graph(tmp_path / "model/large.onnx", rows=512, side_file=side_file)
    with small_volume(builder.cache, "64m"):
        with builder.started(of_model(tmp_path / "model")) as process:
            until(lambda: any(path.name.startswith(".converting-") for path in builder.engines.glob("*/.conv*")))
            [worker] = children(process.pid)
            worker.suspend()
            with contextlib.suppress(OSError):
                (builder.cache / "somebody-else").write_bytes(bytes(80 << 20))
            worker.resume()
            process.communicate(timeout=60)

        assert builder.result()["reason"] == "DiskFull"
        assert builder.names() == []


def test_a_worker_that_gets_no_memory_is_told(builder: Builder, tmp_path: Path) -> None:
    limit = 1200 << 20
    graph(tmp_path / "model/large.onnx", rows=6000)
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        with builder.started(of_model(tmp_path / "model")) as process:
            process.communicate(timeout=120)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)

    assert builder.result()["reason"] == "OutOfMemory"
    assert builder.names() == []


@pytest.mark.parametrize(
    ("code", "tail", "kills", "reason"),
    [
        (-signal.SIGKILL, "", 0, Reason.OUT_OF_MEMORY),
        (1, "anything", 1, Reason.OUT_OF_MEMORY),
        (-signal.SIGABRT, "terminate called after throwing an instance of 'std::bad_alloc'", 0, Reason.OUT_OF_MEMORY),
        (
            -signal.SIGABRT,
            "expecting compute 9.0 got compute 8.9: incompatible device, expecting compute 9.0 got compute 8.9",
            0,
            Reason.UNSUPPORTED_GPU,
        ),
        (3, "bye", 0, Reason.INTERNAL),
    ],
)
def test_the_end_of_a_worker_that_said_nothing_is_understood(code: int, tail: str, kills: int, reason: Reason) -> None:
    assert frame.died(code, tail, kills).reason is reason


def test_the_kernel_counts_what_it_killed_for_memory(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    events.write_text("low 0\nhigh 3\nmax 9\noom 2\noom_kill 1\noom_group_kill 0\n")

    assert frame.oom_kills(events) == 1
    assert frame.oom_kills(tmp_path / "absent") == 0
