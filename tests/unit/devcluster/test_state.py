"""The record of a cluster."""

from __future__ import annotations

import json

from devcluster.paths import ClusterPaths
from devcluster.processes import Process
from devcluster.state import ClusterState, load


def test_a_record_is_read_as_it_was_written_and_only_its_owner_can(tmp_path):
    paths = ClusterPaths(tmp_path, "x")
    state = ClusterState("x", ports={"etcd": 20001}, kwok=True, sysctls={"vm/panic_on_oom": "0"})
    state.processes["etcd"] = Process("etcd", 12, 34)
    state.save(paths)
    assert load(paths.state) == state
    assert paths.state.stat().st_mode & 0o777 == 0o600


def test_no_record_and_half_a_record_and_one_of_another_format_are_none(tmp_path):
    file = tmp_path / "state.json"
    assert load(file) is None
    file.write_text("{")
    assert load(file) is None
    file.write_text(json.dumps({"format": 0}))
    assert load(file) is None


def test_processes_that_ended_are_named():
    state = ClusterState("x", processes={"gone": Process("gone", 2**22 + 1, 1)})
    assert state.dead == ["gone"]
