"""Many pods, one cache: never a partial model, never two copies, nothing left behind."""

from __future__ import annotations

import json
import os
import threading
import time

import pytest

from cosyvoice_runtime.fetch.cache import ModelCache
from cosyvoice_runtime.fetch.errors import FetchError
from cosyvoice_runtime.fetch.manifest import Manifest, ModelFile, sha256
from tests.unit.fetch.models import lay
from tests.unit.fetch.servers import Files
from tests.unit.fetch.servers import sha256 as digest_of
from tests.unit.fetch.test_http import tar

DAY = 24 * 3600.0
KEY = "0123456789abcdef"


def models(cache):
    return sorted(path.name for path in (cache / "models").iterdir() if not path.name.startswith("."))


def manifest_of(folder, files):
    lay(folder, files)
    entries = tuple(ModelFile(name, len(data), sha256(folder / name)) for name, data in sorted(files.items()))
    return Manifest("CosyVoice3", {"s3": {"bucket": "b"}}, entries, "2026-01-02T03:04:05+00:00")


@pytest.fixture
def pods(cache):
    def pod(name, now=time.time):
        pod = ModelCache(cache, name, now)
        pod.prepare()
        return pod

    return pod


def aged(folder, seconds):
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (time.time() - seconds,) * 2)


@pytest.fixture
def two(start, program, files):
    """Two pods that fetch one archive: the first has half of it and goes on when told to, the second waits."""
    data = tar(files)
    server = start(Files({"/m.tar": data}))
    server.cuts["/m.tar"] += [1 << 20]
    server.hangs["/m.tar"] = threading.Event()
    source = {"http": {"url": f"{server.url}/m.tar", "sha256": digest_of(data)}}
    first = program(source, pod="pod-a")
    assert server.sent["/m.tar"].wait(20)
    second = program(source, pod="pod-b")
    assert any(line.startswith("waiting for another pod") for line in iter(second.process.stdout.readline, ""))
    return server, first, second


def test_the_second_of_two_fetchers_waits_and_takes_what_the_first_brought(two, cache):
    server, first, second = two
    server.hangs["/m.tar"].set()
    brought, _ = first.end()
    found, _ = second.end()
    assert [brought["reused"], found["reused"]] == [False, True]
    assert found["digest"] == brought["digest"]
    assert server.spans("m.tar") == ["bytes=0-0", None]
    assert models(cache) == [found["path"].removeprefix("models/")]


def test_the_second_of_two_fetchers_goes_on_where_the_first_died(two, cache):
    server, first, second = two
    first.process.kill()
    result, _ = second.end()
    assert (result["outcome"], result["reused"]) == ("Succeeded", False)
    *before, last = server.spans("m.tar")
    assert before == ["bytes=0-0", None, "bytes=0-0"]
    assert last not in {None, "bytes=0-"}
    assert models(cache) == [result["path"].removeprefix("models/")]


def test_fetchers_at_once_on_a_file_system_without_locks_leave_one_whole_model(start, fetch, cache, files, monkeypatch):
    def no_locks(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", no_locks)
    data = tar(files)
    server = start(Files({"/m.tar": data}))
    source = {"http": {"url": f"{server.url}/m.tar", "sha256": digest_of(data)}}
    results = []
    threads = [
        threading.Thread(target=lambda pod=pod: results.append(fetch(source, pod=pod)))
        for pod in ("pod-a", "pod-b", "pod-c")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len({result.digest for result in results}) == 1
    assert sum(not result.reused for result in results) == 1
    assert models(cache) == [results[0].path.removeprefix("models/")]
    assert all(
        (cache / results[0].path / name).read_bytes() == files[name] for name in files if not name.startswith(".")
    )


def test_a_pod_takes_over_what_a_dead_one_left_of_the_same_listing(pods):
    (pods("dead").workspace(KEY, "listing", locked=True) / "llm.pt").write_bytes(b"half")
    workspace = pods("new").workspace(KEY, "listing", locked=True)
    assert workspace.name == f"{KEY}.tmp-new"
    assert (workspace / "llm.pt").read_bytes() == b"half"


def test_what_is_left_of_another_listing_is_thrown_away(pods):
    (pods("dead").workspace(KEY, "older", locked=True) / "llm.pt").write_bytes(b"half")
    assert not (pods("new").workspace(KEY, "newer", locked=True) / "llm.pt").exists()


def test_without_locks_only_a_directory_that_has_been_still_for_long_is_taken_over(pods):
    other = pods("other").workspace(KEY, "listing", locked=False)
    (other / "llm.pt").write_bytes(b"half")
    assert not (pods("new").workspace(KEY, "listing", locked=False) / "llm.pt").exists()
    aged(other, 700)
    assert (pods("third").workspace(KEY, "listing", locked=False) / "llm.pt").exists()


def test_leftovers_older_than_a_day_go_and_younger_ones_stay(pods, cache):
    old = pods("old").workspace(KEY, "listing", locked=True)
    aged(old, DAY + 60)
    bad = cache / "models" / f"{KEY}.bad-old"
    lay(bad, {"llm.pt": b"?"})
    aged(bad, DAY + 60)
    young = pods("old").workspace("f" * 16, "listing", locked=True)
    aged(young, DAY - 60)

    pods("new")

    assert models(cache) == [young.name]


def test_a_leftover_whose_source_is_being_fetched_stays(pods, cache):
    pod = pods("slow")
    aged(pod.workspace(KEY, "listing", locked=True), DAY + 60)
    with pod.lock(KEY) as held:
        assert held
        pods("new")
        assert models(cache) == [f"{KEY}.tmp-slow"]


def test_the_manifest_says_what_a_model_is_and_agrees_with_its_digest(pods, cache):
    pod = pods("a")
    workspace = pod.workspace(KEY, "listing", locked=True)
    manifest = manifest_of(workspace, {"b/llm.pt": b"12345", "a.yaml": b"1"})
    assert not pod.publish(workspace, manifest, lambda _: None)

    folder = pod.folder(manifest.digest)
    document = json.loads((folder / "manifest.json").read_text())
    assert document["digest"] == manifest.digest
    assert document["bytes"] == 6
    assert document["files"][1] == {"path": "b/llm.pt", "bytes": 5, "sha256": digest_of(b"12345")}
    assert Manifest.read(folder) == manifest


@pytest.mark.parametrize("damage", ["truncated", "other digest", "gone"])
def test_a_model_without_a_valid_manifest_is_replaced_by_the_next_whole_one(pods, cache, damage):
    pod = pods("a")
    workspace = pod.workspace(KEY, "listing", locked=True)
    manifest = manifest_of(workspace, {"llm.pt": b"12345"})
    pod.publish(workspace, manifest, lambda _: None)
    path = pod.folder(manifest.digest) / "manifest.json"
    if damage == "gone":
        path.unlink()
    else:
        path.write_text(
            path.read_text()[:40] if damage == "truncated" else path.read_text().replace("sha256:", "sha256:0")
        )
    again = pods("b").workspace(KEY, "listing", locked=True)
    manifest_of(again, {"llm.pt": b"12345"})

    assert not pods("b").publish(again, manifest, lambda _: None)

    assert Manifest.read(pod.folder(manifest.digest)) == manifest
    assert models(cache) == [pod.folder(manifest.digest).name]


def test_of_two_that_publish_the_same_files_the_first_stays(pods, cache):
    pods("a")
    workspaces = [pods(name).workspace(key, "l", locked=True) for name, key in (("a", KEY), ("b", "f" * 16))]
    manifests = [manifest_of(workspace, {"llm.pt": b"12345"}) for workspace in workspaces]
    assert [pods("x").publish(*pair, lambda _: None) for pair in zip(workspaces, manifests, strict=True)] == [
        False,
        True,
    ]
    assert len(models(cache)) == 1


def test_a_cache_that_cannot_be_written_is_told(cache, fetch):
    (cache / "models").write_text("a file where a directory should be")
    with pytest.raises(FetchError, match=r"models: File exists|models: Not a directory") as caught:
        fetch({"http": {"url": "http://127.0.0.1:9/m.tar", "sha256": "0" * 64}})
    assert caught.value.reason == "Internal"
