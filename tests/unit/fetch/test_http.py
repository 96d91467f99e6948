"""Models from an archive behind an address."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile

import pytest
from backports import zstd

from cosyvoice_runtime.fetch.downloads import Part
from cosyvoice_runtime.fetch.errors import FetchError
from cosyvoice_runtime.fetch.manifest import Manifest
from cosyvoice_runtime.fetch.progress import Progress
from cosyvoice_runtime.fetch.sources.base import Checksum, RemoteFile
from tests.unit.fetch.models import LARGE, model
from tests.unit.fetch.servers import Files, sha256

PLENTY = 10**12


def tar(files, folder=""):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(folder + name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def gzipped(files):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive_files(archive, files)
    return packed.getvalue()


def archive_files(archive, files):
    for name, data in files.items():
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))


def zipped(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return packed.getvalue()


PACKERS = {"tar": tar, "tar.gz": gzipped, "tar.zst": lambda files: zstd.compress(tar(files)), "zip": zipped}


def source(server, name, data):
    return {"http": {"url": f"{server.url}/{name}", "sha256": sha256(data)}}


@pytest.mark.parametrize("suffix", PACKERS)
def test_an_archive_of_each_kind_becomes_a_model_with_a_manifest(start, fetch, cache, files, suffix):
    data = PACKERS[suffix](files)
    server = start(Files({f"/model.{suffix}": data}))

    result = fetch(source(server, f"model.{suffix}", data))

    folder = cache / result.path
    manifest = Manifest.read(folder)
    assert result.path == f"models/{result.digest[7:23]}"
    assert {file.path for file in manifest.files} == {name for name in files if not name.startswith(".")}
    assert (folder / "flow.pt").read_bytes() == files["flow.pt"]
    assert result.size == sum(file.size for file in manifest.files)
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []


def test_every_kind_of_archive_and_a_folder_inside_give_the_same_digest(start, fetch, files):
    archives = {f"model.{suffix}": pack(files) for suffix, pack in PACKERS.items()}
    archives["nested.tar"] = tar(files, "exports/CosyVoice3/")
    server = start(Files({f"/{name}": data for name, data in archives.items()}))

    results = [fetch(source(server, name, data)) for name, data in archives.items()]

    assert len({result.digest for result in results}) == 1
    assert [result.reused for result in results] == [False, True, True, True, True]


def test_a_connection_that_breaks_goes_on_at_the_byte_where_it_stopped(start, fetch, files):
    data = tar(files)
    server = start(Files({"/m.tar": data}))
    server.cuts["/m.tar"] += [1 << 20, 500_000]

    fetch(source(server, "m.tar", data))

    assert server.spans("m.tar") == ["bytes=0-0", None, f"bytes={1 << 20}-", f"bytes={(1 << 20) + 500_000}-"]


def test_a_server_without_ranges_is_read_anew_from_the_start(start, fetch, files):
    data = tar(files)
    server = start(Files({"/m.tar": data}))
    server.ranges = False
    server.cuts["/m.tar"] += [0, 1 << 20]  # the first is the question for the size

    assert fetch(source(server, "m.tar", data)).files == len(files) - 1
    assert server.spans("m.tar") == ["bytes=0-0", None, f"bytes={1 << 20}-"]


def test_what_has_come_is_on_the_disk_at_once_and_read_again_by_the_next_process(tmp_path):
    remote = RemoteFile("llm.pt", 9, Checksum("sha256", sha256(b"123456789")))
    part = Part(tmp_path / "part", remote, Progress())
    part.write(b"1234")
    assert (tmp_path / "part").read_bytes() == b"1234"

    with Part(tmp_path / "part", remote, Progress()) as successor:
        assert successor.size == 4
        successor.write(b"56789")
        assert successor.finish(tmp_path / "llm.pt").sha256 == remote.checksum.value


def test_a_fetch_that_gave_up_keeps_its_bytes_for_the_next_pod(start, fetch, files):
    data = tar(files)
    server = start(Files({"/m.tar": data}))
    server.cuts["/m.tar"] += [1 << 20, 0, 0, 0]
    with pytest.raises(FetchError, match=r"m\.tar: .* 3 tries .* 1\.05 MB of .* are kept") as caught:
        fetch(source(server, "m.tar", data), pod="pod-a")
    assert caught.value.reason == "Network"
    server.cuts.clear()
    server.asked.clear()

    fetch(source(server, "m.tar", data), pod="pod-b")

    assert server.spans("m.tar") == ["bytes=0-0", f"bytes={1 << 20}-"]


def test_a_wrong_checksum_is_told_with_both_digests_and_nothing_is_published(start, fetch, cache, files):
    server = start(Files({"/m.tar": tar(files)}))
    with pytest.raises(
        FetchError, match=f"its sha256 is {sha256(tar(files))}, and the source lists {'0' * 64}"
    ) as caught:
        fetch({"http": {"url": f"{server.url}/m.tar", "sha256": "0" * 64}})
    assert caught.value.reason == "ChecksumMismatch"
    assert not list(cache.glob("models/*/manifest.json"))


def test_bytes_of_an_earlier_try_that_do_not_fit_are_fetched_anew_once(start, fetch, cache, files):
    data = tar(files)
    server = start(Files({"/m.tar": data}))
    server.cuts["/m.tar"] += [1 << 20, 0, 0, 0]
    with pytest.raises(FetchError):
        fetch(source(server, "m.tar", data))
    (part,) = cache.rglob("parts/m.tar")
    part.write_bytes(b"?" * part.stat().st_size)
    server.cuts.clear()

    assert fetch(source(server, "m.tar", data)).files == len(files) - 1


@pytest.mark.parametrize(
    ("status", "reason"), [(401, "Unauthorized"), (403, "Unauthorized"), (404, "NotFound"), (400, "Network")]
)
def test_a_refusal_names_what_to_change(start, fetch, status, reason):
    server = start(Files({}))
    server.refuse = status
    with pytest.raises(FetchError, match=rf"{status}") as caught:
        fetch({"http": {"url": f"{server.url}/m.tar", "sha256": "0" * 64}})
    assert caught.value.reason == reason


def test_a_server_that_is_overloaded_for_a_moment_is_asked_again(start, fetch, files):
    data = tar(files)
    server = start(Files({"/m.tar": data}))
    server.busy = [503, 429]
    assert fetch(source(server, "m.tar", data)).reason is None
    assert server.spans("m.tar") == ["bytes=0-0"] * 3 + [None]


def test_a_server_that_is_not_there_is_tried_again_and_then_told(fetch):
    with pytest.raises(FetchError, match=r"127\.0\.0\.1") as caught:
        fetch({"http": {"url": "http://127.0.0.1:9/m.tar", "sha256": "0" * 64}})
    assert caught.value.reason == "Network"


def test_a_second_fetch_asks_the_server_for_nothing(start, fetch, files):
    data = tar(files)
    server = start(Files({"/m.tar": data}))
    first = fetch(source(server, "m.tar", data))
    server.asked.clear()

    second = fetch(source(server, "m.tar", data), pod="pod-b")

    assert (second.reused, second.digest, server.asked) == (True, first.digest, [])


def test_a_model_that_decayed_in_the_cache_is_fetched_again(start, fetch, cache, files):
    data = tar(files)
    server = start(Files({"/m.tar": data}))
    folder = cache / fetch(source(server, "m.tar", data)).path
    flipped = bytearray((folder / "flow.pt").read_bytes())
    flipped[LARGE // 2] ^= 1
    (folder / "flow.pt").write_bytes(flipped)

    again = fetch(source(server, "m.tar", data))

    assert not again.reused
    assert (folder / "flow.pt").read_bytes() == files["flow.pt"]
    assert not list(cache.glob("models/*.bad-*"))


def test_a_claim_that_is_too_small_is_told_before_anything_is_fetched(start, fetch, files):
    data = tar(files)
    server = start(Files({"/m.tar": data}))
    with pytest.raises(FetchError, match=r"needs 3\.1. MB.* has 1 MB left. Enlarge its claim by 2\.1. MB") as caught:
        fetch(source(server, "m.tar", data), free_space=lambda _: 65_000_000)
    assert caught.value.reason == "DiskFull"
    assert server.spans("m.tar") == ["bytes=0-0"]


def test_a_claim_that_fills_up_while_unpacking_is_told_with_the_file(start, fetch, files):
    data = tar(files)
    server = start(Files({"/m.tar": data}))
    room = iter([PLENTY, PLENTY])
    with pytest.raises(FetchError, match=r"of m\.tar needs 2 kB and the cache has 0 B left") as caught:
        fetch(source(server, "m.tar", data), free_space=lambda _: next(room, 64_000_000))
    assert caught.value.reason == "DiskFull"
    server.asked.clear()

    assert fetch(source(server, "m.tar", data), free_space=lambda _: PLENTY).files == len(files) - 1
    assert server.spans("m.tar") == ["bytes=0-0"]  # the archive is there; it is unpacked from its start


def test_an_archive_without_some_files_is_told_with_their_names_and_sizes(start, fetch, files):
    del files["hift.pt"], files["campplus.onnx"]
    data = tar(files)
    server = start(Files({"/m.tar": data}))
    with pytest.raises(
        FetchError, match=r"lacks 2 files of CosyVoice3: hift\.pt \(about 83 MB\), campplus\.onnx"
    ) as caught:
        fetch(source(server, "m.tar", data))
    assert caught.value.reason == "MissingFile"


def test_an_archive_of_another_family_is_recognised(start, fetch):
    data = tar(model("CosyVoice2UNet"))
    server = start(Files({"/m.tar": data}))
    with pytest.raises(FetchError, match=r"set spec\.model\.family to CosyVoice2UNet"):
        fetch(source(server, "m.tar", data))


def test_a_pointer_of_git_lfs_is_no_file(start, fetch, files):
    files["llm.pt"] = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 2\n"
    data = tar(files)
    server = start(Files({"/m.tar": data}))
    with pytest.raises(FetchError, match=r"llm\.pt is a pointer of Git LFS .* git lfs pull") as caught:
        fetch(source(server, "m.tar", data))
    assert caught.value.reason == "MissingFile"


def test_a_signed_address_stays_out_of_the_cache(start, fetch, cache, files):
    data = tar(files)
    server = start(Files({"/m.tar": data}))
    login = server.url.replace("://", "://me:s3cret-password@")
    fetch({"http": {"url": f"{login}/m.tar?X-Amz-Signature=s3cret-signature", "sha256": sha256(data)}})

    assert server.asked[-1].authorization.startswith("Basic ")
    assert "signature" in server.asked[-1].query
    for path in cache.rglob("*.json"):
        assert b"s3cret" not in path.read_bytes()
    manifest = json.loads(next(cache.glob("models/*/manifest.json")).read_text())
    assert manifest["source"]["http"]["url"] == f"{server.url}/m.tar"
