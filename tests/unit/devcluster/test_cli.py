"""The command line."""

from __future__ import annotations

import pytest

from devcluster.cli import main, split_name


@pytest.mark.parametrize(
    ("arguments", "name", "rest"),
    [
        ([], "default", []),
        (["-n", "x", "get", "pods"], "default", ["-n", "x", "get", "pods"]),
        (["--name", "demo", "-n", "x", "get"], "demo", ["-n", "x", "get"]),
        (["--name=demo", "get"], "demo", ["get"]),
        (["get", "--name", "x"], "default", ["get", "--name", "x"]),
        (["--", "get", "pods"], "default", ["get", "pods"]),
        (["--name", "demo", "--", "get", "pods"], "demo", ["get", "pods"]),
        (["exec", "pod", "--", "ls"], "default", ["exec", "pod", "--", "ls"]),
        (["--", "exec", "pod", "--", "ls"], "default", ["exec", "pod", "--", "ls"]),
    ],
)
def test_kubectl_gets_all_arguments_but_a_leading_name(arguments, name, rest):
    assert split_name(arguments) == (name, rest)


def test_an_error_says_what_is_wrong_and_what_to_do_without_a_traceback(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["kubeconfig", "--name", "none"]) == 1
    assert capsys.readouterr().err == "error: cluster none does not run\nnext: start it with: devcluster up\n"


def test_status_and_down_of_nothing_are_no_errors(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["status"]) == 0
    assert capsys.readouterr().out == "no cluster runs\n"
    assert main(["down", "--name", "none"]) == 0
    assert "cluster none was not up" in capsys.readouterr().err


def test_fake_gpus_without_a_node_are_refused(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["up", "--no-node", "--fake-gpus", "2=NVIDIA-L4"]) == 1
    assert "claimed by the real node" in capsys.readouterr().err
