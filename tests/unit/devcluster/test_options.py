"""What a user may ask for."""

from __future__ import annotations

import pytest

from devcluster import DevClusterError, FakeGpus, Options, Owner
from devcluster.paths import ClusterPaths
from devcluster.processes import start_time


def test_gpus_are_written_as_a_number_and_a_product():
    assert FakeGpus.parse("2=NVIDIA-L4") == FakeGpus(2, "NVIDIA-L4")
    assert str(FakeGpus(8, "NVIDIA-H100-80GB-HBM3")) == "8=NVIDIA-H100-80GB-HBM3"


@pytest.mark.parametrize("text", ["", "2", "NVIDIA-L4", "x=NVIDIA-L4", "2=", "-1=NVIDIA-L4", "2=NVIDIA L4", "2=-L4"])
def test_gpus_written_otherwise_are_refused_with_an_example(text):
    with pytest.raises(DevClusterError, match="2=NVIDIA-L4"):
        FakeGpus.parse(text)


@pytest.mark.parametrize("name", ["", "-x", "x-", "X", "a.b", "../up", "a" * 33])
def test_a_cluster_name_that_is_no_label_is_refused(name, tmp_path):
    with pytest.raises(DevClusterError, match="not a DNS label"):
        ClusterPaths(tmp_path, name)


def test_a_state_folder_too_long_for_sockets_is_refused_before_anything_starts(tmp_path):
    ClusterPaths(tmp_path.__class__("/" + "a" * 50), "x").refuse_long_sockets()
    with pytest.raises(DevClusterError, match="at most 63 characters"):
        ClusterPaths(tmp_path.__class__("/" + "a" * 70), "x").refuse_long_sockets()


def test_files_for_kwok_imply_it(tmp_path):
    assert Options(kwok_files=(tmp_path / "nodes.yaml",)).wants_kwok
    assert Options(kwok_stages=(tmp_path / "stages.yaml",)).wants_kwok
    assert Options(kwok=True).wants_kwok
    assert not Options().wants_kwok


def test_this_process_owns_a_cluster_by_pid_and_start_time():
    owner = Owner.this_process()
    assert start_time(owner.pid) == owner.started > 0


def test_gpus_without_a_real_node_are_refused():
    with pytest.raises(DevClusterError, match="claimed by the real node"):
        Options(node=False, fake_gpus=FakeGpus(1, "NVIDIA-L4"))
