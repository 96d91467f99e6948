"""The node's images between two clusters."""

from __future__ import annotations

from devcluster import store
from devcluster.images import archive_of


def test_an_old_image_is_dropped_only_once_a_newer_one_is_there(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    old, new, lonely = "docker.io/local/a:1", "docker.io/local/a:2", "docker.io/local/b:1"
    archive_of(new).parent.mkdir(parents=True)
    archive_of(new).touch()
    assert store.outdated([old, new, lonely]) == [old]
    assert store.outdated([old, lonely]) == []


def test_a_store_from_before_the_machine_started_is_not_taken(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    paths = store.ClusterPaths(tmp_path, "x")
    cached = store._cached()
    cached.mkdir(parents=True)
    cached.with_suffix(".boot").write_text("another boot")
    store.take(paths)
    assert cached.is_dir()
    assert not store.root(paths).exists()
    cached.with_suffix(".boot").write_text(store.BOOT.read_text())
    store.take(paths)
    assert store.root(paths).is_dir()
    assert not cached.exists()
