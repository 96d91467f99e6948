"""An engine is in the cache whole or not at all; what is broken is never there, and what is there is never built again."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from cosyvoice_runtime.builder import manifest
from cosyvoice_runtime.builder.cache import EngineCache
from cosyvoice_runtime.builder.reasons import BuildError, Reason
from tests.unit.builder.setting import KEY, Builder

OTHER = "fedcba9876543210"
DAY = 24 * 3600.0


def written(cache: EngineCache, key: str = KEY, content: bytes = b"engine") -> tuple[manifest.Manifest, bool]:
    with cache.writing(key) as folder:
        (folder / "llm").mkdir()
        (folder / "llm/rank0.engine").write_bytes(content)
        (folder / "empty.txt").touch()
        return cache.complete(key, folder, {"version": 1, "key": key})


@pytest.fixture
def cache(tmp_path: Path) -> EngineCache:
    made = EngineCache(tmp_path, "pod-a")
    made.prepare(0.0)
    return made


def flip_a_bit(folder: Path) -> None:
    path = folder / "llm/rank0.engine"
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)


BREAKAGES: dict[str, Callable[[Path], object]] = {
    "a bit is flipped": flip_a_bit,
    "a file is cut short": lambda folder: (folder / "llm/rank0.engine").write_bytes(b"eng"),
    "a file is empty": lambda folder: (folder / "llm/rank0.engine").write_bytes(b""),
    "a file is gone": lambda folder: (folder / "llm/rank0.engine").unlink(),
    "the manifest is gone": lambda folder: (folder / "manifest.json").unlink(),
    "the manifest is cut short": lambda folder: (folder / "manifest.json").write_text('{"version": 1, "ke'),
    "the manifest is of another version": lambda folder: (folder / "manifest.json").write_text('{"version": 9}'),
    "the manifest is of another key": lambda folder: (folder / "manifest.json").write_text(
        (folder / "manifest.json").read_text().replace(KEY, OTHER)
    ),
    "the manifest names a file outside": lambda folder: (folder / "manifest.json").write_text(
        json.dumps({"version": 1, "key": KEY, "files": [{"path": "../x", "bytes": 1, "sha256": "0"}]})
    ),
}


def test_an_engine_is_found_again_with_every_file(cache: EngineCache) -> None:
    made, reused = written(cache)

    assert not reused
    assert [(entry.path, entry.size) for entry in made.files] == [("empty.txt", 0), ("llm/rank0.engine", 6)]
    assert cache.find(KEY) == made
    assert cache.find(OTHER) is None


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_broken_engine_is_not_there_and_makes_room_for_a_new_one(
    cache: EngineCache, tmp_path: Path, breakage: str
) -> None:
    written(cache)
    BREAKAGES[breakage](cache.folder(KEY))

    assert cache.find(KEY) is None
    made, reused = written(cache, content=b"second")

    assert not reused
    assert made.files[-1].size == 6
    assert sorted(path.name for path in (tmp_path / "engines").iterdir()) == [KEY]


def test_a_file_where_the_directory_should_be_is_put_aside(cache: EngineCache) -> None:
    cache.folder(KEY).write_text("what is this")

    assert cache.find(KEY) is None
    assert written(cache)[1] is False


def test_of_two_builders_the_first_one_wins_and_the_second_one_drops_its_own(
    cache: EngineCache, tmp_path: Path
) -> None:
    other = EngineCache(tmp_path, "pod-b")
    with other.writing(KEY) as folder:
        (folder / "late.engine").write_bytes(b"late")
        first, _ = written(cache)

        theirs, reused = other.complete(KEY, folder, {"version": 1, "key": KEY})

    assert reused
    assert theirs == first
    assert sorted(path.name for path in (tmp_path / "engines").iterdir()) == [KEY]


def test_a_second_builder_replaces_what_the_first_one_left_broken(cache: EngineCache, tmp_path: Path) -> None:
    other = EngineCache(tmp_path, "pod-b")
    with other.writing(KEY) as folder:
        (folder / "good.engine").write_bytes(b"good")
        written(cache)
        flip_a_bit(cache.folder(KEY))

        made, reused = other.complete(KEY, folder, {"version": 1, "key": KEY})

    assert not reused
    assert [entry.path for entry in made.files] == ["good.engine"]


def test_a_build_that_fails_leaves_nothing(cache: EngineCache, tmp_path: Path) -> None:
    def fail() -> None:
        with cache.writing(KEY) as folder:
            (folder / "half.engine").write_bytes(b"half")
            raise BuildError(Reason.ACCURACY_LOST, "too far off")

    with pytest.raises(BuildError):
        fail()

    assert list((tmp_path / "engines").iterdir()) == []


def test_old_leftovers_of_any_pod_go_and_new_ones_of_other_pods_stay(cache: EngineCache, tmp_path: Path) -> None:
    engines = tmp_path / "engines"
    for name, age in {
        f"{KEY}.tmp-pod-old": 25,
        f"{KEY}.bad-pod-old": 25,
        f"{KEY}.tmp-pod-busy": 23,
        f"{OTHER}.tmp-pod-a": 0,
        "notes": 99,
    }.items():
        (engines / name).mkdir()
        (engines / name / "part").write_text("x")
        for path in (engines / name / "part", engines / name):
            os.utime(path, (DAY * 30 - age * 3600,) * 2)

    cache.prepare(DAY * 30)

    assert sorted(path.name for path in engines.iterdir()) == [f"{KEY}.tmp-pod-busy", "notes"]


def test_a_long_build_that_still_writes_is_no_leftover(cache: EngineCache, tmp_path: Path) -> None:
    busy = tmp_path / "engines" / f"{KEY}.tmp-pod-b"
    busy.mkdir()
    (busy / "growing.engine").write_text("x")
    os.utime(busy, (0, 0))
    os.utime(busy / "growing.engine", (DAY * 30, DAY * 30))

    cache.prepare(DAY * 30)

    assert busy.exists()


def test_pods_of_other_users_can_read_an_engine(cache: EngineCache) -> None:
    mask = os.umask(0o077)
    try:
        written(cache)
    finally:
        os.umask(mask)

    folder = cache.folder(KEY)
    modes = {path.relative_to(folder).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
    assert modes == {"llm": 0o755, "llm/rank0.engine": 0o644, "empty.txt": 0o644, "manifest.json": 0o644}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_a_link_to_the_model_is_no_file_of_the_engine(cache: EngineCache) -> None:
    with cache.writing(KEY) as folder:
        (folder / "llm.pt").symlink_to("/model/llm.pt")
        made, _ = cache.complete(KEY, folder, {"version": 1, "key": KEY})

    assert made.files == ()
    assert (cache.folder(KEY) / "llm.pt").readlink() == Path("/model/llm.pt")


def test_a_cache_that_cannot_be_written_is_told_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "engines").write_text("not a directory")

    with pytest.raises(BuildError, match=f"{tmp_path}/engines cannot be written"):
        EngineCache(tmp_path, "pod-a").prepare(0.0)


def test_verify_reports_what_is_wrong_with_which_file(cache: EngineCache, tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    written(cache)
    folder = str(cache.folder(KEY))

    code, good = builder.run(None, "verify", folder)
    assert (code, good["outcome"], good["key"], good["bytes"]) == (0, "Succeeded", KEY, 6)

    flip_a_bit(cache.folder(KEY))
    code, bad = builder.run(None, "verify", folder)
    assert (code, bad["outcome"], bad["reason"]) == (1, "Failed", "CorruptEngine")
    assert f"{folder}/llm/rank0.engine has changed" in bad["message"]


def test_remove_takes_engines_away_and_nothing_else(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    cache = EngineCache(builder.cache, "pod-x")
    cache.prepare(0.0)
    written(cache)
    written(cache, OTHER)

    code, result = builder.run(None, "remove", KEY, "a" * 16)

    assert (code, result["message"]) == (0, f"removed {KEY}; 1 were not there")
    assert builder.names() == [OTHER]


@pytest.mark.parametrize("key", ["..", "../models", "notes", KEY[:-1], KEY.upper()])
def test_remove_takes_only_keys(tmp_path: Path, key: str) -> None:
    builder = Builder(tmp_path)
    (builder.cache / "models").mkdir()

    code, result = builder.run(None, "remove", key)

    assert (code, result["reason"]) == (1, "Internal")
    assert (builder.cache / "models").exists()
