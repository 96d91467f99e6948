"""Processes are known by more than their pid, and found also when nobody wrote them down."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace

import pytest

from devcluster import DevClusterError
from devcluster.processes import (
    Command,
    Process,
    clean_environment,
    clusters_running,
    kill_all,
    marked,
    reap,
    start,
    start_time,
)
from tests.cluster import eventually


@pytest.fixture
def mark(tmp_path):
    """The folder of a cluster; its processes are gone afterwards."""
    yield str(tmp_path)
    kill_all(lambda: marked(str(tmp_path)), within=5)


@pytest.fixture
def sleeper(tmp_path, mark):
    def begin(program="import time; time.sleep(600)", name="sleeper"):
        log = tmp_path / "logs" / f"{name}.log"
        return start(Command(name, [sys.executable, "-c", program], log, clean_environment(tmp_path)), mark)

    return begin


def test_a_started_process_lives_in_a_session_of_its_own_with_its_output_in_its_log(sleeper, tmp_path):
    process = sleeper("import sys; print('out', flush=True); print('err', file=sys.stderr, flush=True); input()")
    assert process.started == start_time(process.pid)
    log = tmp_path / "logs" / "sleeper.log"
    eventually(lambda: {"out", "err"} <= set(log.read_text().split()), "both lines in the log")
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_process_is_not_alive_once_it_ended_even_before_its_parent_looks(sleeper):
    process = sleeper()
    assert os.getsid(process.pid) == process.pid
    assert process.alive()
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: not process.alive(), "its end")
    reap(process.pid)


def test_another_process_with_the_same_pid_is_not_taken_for_it(sleeper):
    process = sleeper()
    assert not replace(process, started=process.started + 1).alive()
    assert not Process("none", 2**22 + 1, 1).alive()


def test_processes_and_their_children_are_found_by_their_mark(sleeper, mark):
    process = sleeper("import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])")
    found = eventually(lambda: len(marked(mark)) == 2 and marked(mark), "the child")
    assert process.pid in found
    assert marked(mark + "x") == []


def test_all_that_is_named_is_killed_also_what_appears_meanwhile(sleeper, mark):
    first, second = sleeper(), sleeper()
    rounds = iter([[first.pid], [second.pid], []])
    kill_all(lambda: next(rounds), within=5)
    assert not first.alive()
    assert not second.alive()


def test_what_does_not_die_is_told_by_its_pid():
    with pytest.raises(DevClusterError, match=str(2**22 + 1)):
        kill_all(lambda: [2**22 + 1], within=0)


def test_the_process_table_says_which_clusters_run_a_component(sleeper, mark):
    process = sleeper(name="unit-test-component")
    eventually(lambda: clusters_running("unit-test-component") == {mark}, "the component")
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: clusters_running("unit-test-component") == set(), "its end")


def test_components_get_neither_proxies_nor_the_users_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    monkeypatch.setenv("KUBECONFIG", "/home/me/.kube/config")
    assert set(clean_environment(tmp_path)) == {"PATH", "HOME", "LANG"}
