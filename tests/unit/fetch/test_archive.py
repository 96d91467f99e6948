"""Archives made to do harm, and broken ones."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile

import pytest

from cosyvoice_runtime.fetch import archive
from cosyvoice_runtime.fetch.errors import FetchError
from cosyvoice_runtime.fetch.progress import Progress


def packed(tmp_path, *entries):
    path = tmp_path / "bad.tar"
    with tarfile.open(path, "w") as tar:
        for entry in entries:
            tar.addfile(entry, io.BytesIO(b"0" * entry.size))
    return path


def entry(name, size=4, **fields):
    found = tarfile.TarInfo(name)
    found.size = size
    for field, value in fields.items():
        setattr(found, field, value)
    return found


@pytest.fixture
def unpack(tmp_path):
    def unpack(path, free=10**12):
        target = tmp_path / "inner" / "target"
        target.mkdir(parents=True)
        archive.unpack(path, target, Progress(), lambda _: free)
        return sorted(found.relative_to(target).as_posix() for found in target.rglob("*") if found.is_file())

    return unpack


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (entry("../outside"), "leads out of the model's directory"),
        (entry("a/../../outside"), "leads out of the model's directory"),
        (entry("/etc/outside"), "leads out of the model's directory"),
        (entry("link", 0, type=tarfile.SYMTYPE, linkname="/etc/passwd"), "is a link"),
        (entry("link", 0, type=tarfile.SYMTYPE, linkname="../.."), "is a link"),
        (entry("hard", 0, type=tarfile.LNKTYPE, linkname="../../etc/passwd"), "is a link"),
        (entry("null", 0, type=tarfile.CHRTYPE), "is a device"),
        (entry("pipe", 0, type=tarfile.FIFOTYPE), "is a device"),
    ],
    ids=lambda value: f"{value.name}-{value.linkname}" if isinstance(value, tarfile.TarInfo) else "",
)
def test_an_entry_that_is_no_plain_file_inside_ends_the_fetch_and_writes_nothing_outside(
    tmp_path, unpack, member, words
):
    with pytest.raises(FetchError, match=words):
        unpack(packed(tmp_path, member))
    assert {path.name for path in tmp_path.rglob("*")} == {"bad.tar", "inner", "target"}


def test_a_link_in_a_zip_is_refused(tmp_path, unpack):
    path = tmp_path / "bad.zip"
    with zipfile.ZipFile(path, "w") as zipped:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        zipped.writestr(link, "/etc/passwd")
    with pytest.raises(FetchError, match="'link' is a link"):
        unpack(path)


def test_a_name_that_comes_twice_is_refused(tmp_path, unpack):
    with pytest.raises(FetchError, match="'a' is there twice"):
        unpack(packed(tmp_path, entry("a"), entry("./a")))


def test_an_archive_that_unpacks_to_more_than_there_is_room_for_stops_before_that_file(tmp_path, unpack):
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("small", b"1")
        zipped.writestr("bomb", b"0" * 50_000_000)
    with pytest.raises(
        FetchError, match=r"bomb of bomb\.zip needs 50 MB and the cache has 1 MB left; enlarge .* 49 MB"
    ) as caught:
        unpack(path, free=1_000_000)
    assert caught.value.reason == "DiskFull"


def test_an_archive_of_more_files_than_any_model_has_is_refused(tmp_path, unpack, monkeypatch):
    monkeypatch.setattr(archive, "MOST_FILES", 3)
    with pytest.raises(FetchError, match="more than 3 files"):
        unpack(packed(tmp_path, *(entry(str(number)) for number in range(4))))


@pytest.mark.parametrize("name", ["cut.tar", "cut.tar.gz", "cut.tar.zst", "cut.zip"])
def test_an_archive_that_ends_early_or_is_none_is_damaged(tmp_path, unpack, name):
    (tmp_path / name).write_bytes(b"this is no archive" * 100)
    with pytest.raises(FetchError, match=f"{name} has the checksum .* cannot be unpacked") as caught:
        unpack(tmp_path / name)
    assert caught.value.reason == "ChecksumMismatch"


def test_a_tar_that_was_cut_in_a_file_is_damaged(tmp_path, unpack):
    path = packed(tmp_path, entry("a", 100_000))
    path.write_bytes(path.read_bytes()[:50_000])
    with pytest.raises(FetchError, match="cannot be unpacked"):
        unpack(path)


def test_a_name_that_is_no_archive_says_which_are(tmp_path, unpack):
    (tmp_path / "model.rar").write_bytes(b"")
    with pytest.raises(FetchError, match=r"model\.rar is no \.tar, \.tar\.gz, \.tar\.zst or \.zip"):
        unpack(tmp_path / "model.rar")


def test_the_only_folder_of_an_archive_is_the_model_even_with_a_file_of_its_name_inside(tmp_path, unpack):
    path = packed(tmp_path, entry("top/top"), entry("top/b/c"), entry("top/.hidden"))
    assert unpack(path) == ["b/c", "top"]
