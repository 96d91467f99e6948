"""Keys of the Go programs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from devcluster import build


def test_each_program_has_a_folder_of_its_own_in_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folders = {program.folder() for program in (build.KUBE, build.KWOK, build.PAUSE)}
    assert len(folders) == 3
    assert all(folder.is_relative_to(tmp_path) for folder in folders)


def test_the_key_follows_sources_and_flags(monkeypatch, tmp_path):
    program = build.Program("x")
    monkeypatch.setattr(build, "SOURCE", tmp_path)
    (tmp_path / "x").mkdir()
    (tmp_path / "x/main.go").write_text("package main\n")
    first = program.key()
    (tmp_path / "x/README.md").write_text("does not count")
    assert program.key() == first
    (tmp_path / "x/go.sum").write_text("counts")
    assert len({first, program.key(), replace(program, ldflags="").key()}) == 3


@pytest.mark.parametrize("program", [build.KUBE, build.KWOK, build.PAUSE])
def test_sources_of_every_program_are_there(program):
    assert (program.source / "go.mod").read_text().startswith(f"module cosyvoice.io/devcluster/{program.name}\n")
