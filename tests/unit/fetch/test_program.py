"""The program as a pod runs it: what it tells, and what is left when it is ended."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import subprocess
import sys
import threading
import time

import pytest

from tests.unit.fetch.models import lay
from tests.unit.fetch.servers import Files, sha256
from tests.unit.fetch.test_http import tar

SIZE = 1 << 20


@pytest.fixture
def served(start, files):
    """A server with a model, and the source that names it."""
    data = tar(files)
    server = start(Files({"/m.tar": data}))
    return server, {"http": {"url": f"{server.url}/m.tar", "sha256": sha256(data)}}


@pytest.fixture
def hanging(served):
    """The same, but the server says nothing more after the first megabyte."""
    server, source = served
    server.cuts["/m.tar"] += [SIZE]
    server.hangs["/m.tar"] = threading.Event()
    return server, source


def partly(cache):
    """Wait until all that the server gave is on the disk."""
    for _ in range(2000):
        if any(path.stat().st_size == SIZE for path in cache.rglob("parts/m.tar")):
            return
        time.sleep(0.01)
    raise AssertionError("nothing came")


def whole(cache):
    return [path.parent.name for path in cache.glob("models/*/manifest.json")]


def test_the_result_has_every_field_and_the_same_line_ends_the_log(served, program):
    _, source = served
    run = program(source)
    result, printed = run.end()
    assert run.process.returncode == 0
    assert set(result) == {
        "version",
        "outcome",
        "reason",
        "message",
        "digest",
        "path",
        "bytes",
        "seconds",
        "files",
        "reused",
    }
    assert (result["version"], result["outcome"], result["reason"], result["reused"]) == (1, "Succeeded", None, False)
    assert result["path"] == f"models/{result['digest'][7:23]}"
    assert json.dumps(result, separators=(",", ":")) in printed


def test_progress_is_served_and_printed_while_it_works(hanging, program, cache):
    _, source = hanging
    with http.client.socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    run = program(source, COSYVOICE_PORT=str(port))
    partly(cache)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/progress")
    progress = json.loads(connection.getresponse().read())
    run.process.terminate()
    _, printed = run.end()
    assert set(progress) == {"phase", "done", "total", "unit", "perSecond", "secondsLeft"}
    assert (progress["phase"], progress["done"], progress["unit"]) == ("fetching", SIZE, "bytes")
    assert progress["perSecond"] > 0
    assert progress["secondsLeft"] is not None
    assert re.search(r"^fetching: 0 B of 3\.\d+ MB$", printed, re.MULTILINE)


def test_a_program_that_is_killed_leaves_nothing_visible_and_the_next_pod_goes_on(hanging, program, cache):
    server, source = hanging
    killed = program(source, pod="pod-a")
    partly(cache)
    killed.process.kill()
    assert killed.end()[0] == {}
    assert whole(cache) == []
    server.hangs.clear()

    result, _ = program(source, pod="pod-b").end()

    assert result["outcome"] == "Succeeded"
    assert server.spans("m.tar")[-1] == f"bytes={SIZE}-"
    assert [path.name for path in (cache / "models").iterdir() if not path.name.startswith(".")] == whole(cache)


def test_a_program_that_is_killed_again_and_again_gets_there_in_the_end(served, program, cache):
    server, source = served
    for _ in range(2):
        before = len(server.asked)
        server.cuts["/m.tar"] += [1 << 19]
        server.hangs["/m.tar"] = threading.Event()
        run = program(source)
        for _ in range(2000):
            if len(server.asked) >= before + 2:
                break
            time.sleep(0.01)
        run.process.kill()
        run.end()
        server.hangs.clear()
        assert whole(cache) == []
    assert program(source).end()[0]["outcome"] == "Succeeded"


def test_a_program_that_is_told_to_stop_says_so_and_keeps_what_came(hanging, program, cache):
    _, source = hanging
    run = program(source)
    partly(cache)
    run.process.terminate()
    result, _ = run.end()
    assert run.process.returncode == 143, "a Job tries again after this"
    assert (result["outcome"], result["reason"]) == ("Failed", "Internal")
    assert "the pod was stopped; what has come is kept" in result["message"]
    assert [path.stat().st_size for path in cache.rglob("parts/m.tar")] == [SIZE]


def test_a_program_whose_time_is_over_ends_itself_even_if_the_server_hangs(hanging, program):
    _, source = hanging
    run = program(source, COSYVOICE_TIMEOUT="1.5")
    result, _ = run.end()
    assert run.process.returncode == 75, "a Job tries again after this, and the fetch goes on"
    assert result["reason"] == "Timeout"
    assert "not done after 1.5 s; what has come is kept" in result["message"]
    assert 1.4 < result["seconds"] < 5


def test_a_disk_that_really_fills_up_is_told_and_nothing_is_published(hanging, program, tmp_path):
    server, source = hanging
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", small], check=False, capture_output=True
    ).returncode:
        pytest.skip("a small file system cannot be mounted here: it takes root")
    try:
        run = program(source, COSYVOICE_CACHE=str(small))
        partly(small)
        with contextlib.suppress(OSError), (small / "of-another-model").open("wb", buffering=0) as other:
            while True:
                other.write(b"0" * SIZE)
        server.hangs["/m.tar"].set()
        result, _ = run.end()
        assert whole(small) == []
    finally:
        subprocess.run(["umount", small], check=True)
    assert result["reason"] == "DiskFull"
    assert "m.tar could not be written; enlarge the claim of the cache" in result["message"]


def test_a_mounted_model_is_checked_where_it_is_and_digested_like_a_fetched_one(
    served, program, tmp_path, files, cache
):
    _, source = served
    fetched, _ = program(source).end()
    lay(tmp_path / "claim", files | {".cache/x.lock": b"", "lost+found/x": b"?", "manifest.json": b"{}"})
    claim = {"persistentVolumeClaim": {"claimName": "models", "path": "CosyVoice3"}}

    result, _ = program(claim, mounted=str(tmp_path / "claim")).end()

    assert result["outcome"] == "Succeeded"
    assert result["digest"] == fetched["digest"]
    assert (result["path"], result["reused"]) == (str(tmp_path / "claim"), False)
    assert (tmp_path / "claim/manifest.json").read_bytes() == b"{}"


@pytest.mark.parametrize("state", ["absent", "empty", "incomplete"])
def test_a_mounted_folder_that_is_no_model_names_the_claim(program, tmp_path, files, state):
    folder = tmp_path / "claim"
    if state != "absent":
        folder.mkdir()
    if state == "incomplete":
        del files["flow.pt"]
        lay(folder, files)
    result, _ = program({"persistentVolumeClaim": {"claimName": "models", "path": "cv3"}}, mounted=str(folder)).end()
    assert result["reason"] == ("MissingFile" if state == "incomplete" else "NotFound")
    assert result["message"].startswith("persistentVolumeClaim models, path cv3")


def test_a_request_that_cannot_be_read_is_a_result_too(program):
    run = program({"ftp": {}})
    result, _ = run.end()
    assert (run.process.returncode, result["reason"]) == (1, "Internal")
    assert "exactly one source is needed" in result["message"]


def test_an_archive_needs_none_of_the_hubs_libraries():
    code = (
        "import sys, os; from cosyvoice_runtime.fetch import __main__; from cosyvoice_runtime.fetch.request import ModelSource;"
        "from cosyvoice_runtime.fetch.sources import open_source;"
        "open_source(ModelSource.model_validate({'http': {'url': 'http://h/m.tar', 'sha256': '0' * 64}}), os.environ);"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "pydantic" in loaded
    assert not {"huggingface_hub", "modelscope_hub", "botocore", "requests", "httpx2", "yaml"} & set(loaded)
