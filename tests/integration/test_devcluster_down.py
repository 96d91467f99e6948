"""What `down` leaves behind: nothing, whatever died before it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from devcluster import Cluster, FakeGpus, NotRunningError, Options, down, network, node
from devcluster.images import pause_image
from devcluster.network import is_root
from devcluster.paths import APPLICATION, ClusterPaths
from devcluster.processes import clusters_running, marked
from devcluster.progress import ConsoleProgress
from tests.cluster import apply, eventually, kubectl

needs_root = pytest.mark.skipif(not is_root(), reason="a real node needs root")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def machine(home: Path) -> set[str]:
    """All of this machine that a cluster with a real node could leave changed, as one set of facts.

    Facts are compared by what is new: other clusters of this machine may come down meanwhile.
    """
    facts = {
        "process": [str(pid) for path in home.glob("*") for pid in marked(str(path))],
        "link": [line.split(":")[1].split("@")[0].strip() for line in run("ip", "-o", "link").splitlines()],
        "route": [line for line in run("ip", "route").splitlines() if not line.startswith("blackhole")],
        "table": run("nft", "list", "tables").splitlines(),
        "mount": [line for line in Path("/proc/mounts").read_text().splitlines() if str(home) in line],
        "cgroup": [str(path) for path in node.cgroups()],
        "setting": [f"{name}={value}" for name, value in network.read_sysctls().items()],
        "folder": [path for path in node.FIXED_PATHS if Path(path).exists()],
        "state": [path.name for path in home.glob("[!.]*") if not path.name.endswith(".failed-logs")],
    }
    return {f"{kind} {fact}" for kind, found in facts.items() for fact in found}


def containers(home: Path) -> list[int]:
    return network.processes.inside_root_below(home)


def pod(name):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 300,
            "containers": [{"name": "c", "image": pause_image(ConsoleProgress()).reference}],
        },
    }


def options(home: Path, **others) -> Options:
    return Options(home=home, **({"name": "mine", "fake_gpus": FakeGpus(2, "NVIDIA-L4")} | others))


@pytest.fixture
def home(cluster_home):
    """A state folder of one's own whose clusters are gone afterwards, also when the test fails."""
    own = cluster_home / APPLICATION
    own.mkdir(exist_ok=True)
    yield own
    for folder in own.glob("[!.]*"):
        if not folder.name.endswith(".failed-logs"):
            down(folder.name, own)


@needs_root
@pytest.mark.exclusive_node
@pytest.mark.parametrize("killed", ["nothing", "containerd", "everything but containers"])
def test_down_leaves_nothing_of_a_real_node_after_the_death_of(killed, home):
    before = machine(home)
    cluster = Cluster.up(options(home), ConsoleProgress())
    apply(cluster, pod("one"), pod("two"))
    kubectl(cluster, "wait", "--for=condition=Ready", "pod/one", "pod/two", "--timeout=60s")
    assert len(containers(home)) == 4

    processes = cluster.state.processes
    if killed == "everything but containers":
        victims = [*(process.pid for process in processes.values()), *shims(cluster)]
    else:
        victims = [processes[killed].pid] if killed in processes else []
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    cluster.down()

    assert machine(home) - before == set()
    assert containers(home) == []


def shims(cluster):
    return [pid for pid in marked(str(cluster.paths.folder)) if "shim" in Path(f"/proc/{pid}/cmdline").read_text()]


@needs_root
@pytest.mark.exclusive_node
@pytest.mark.parametrize("seconds", [0.3, 1.5, 4.0])
def test_down_leaves_nothing_when_up_was_killed_after_some_seconds(seconds, home):
    before = machine(home)
    command = [sys.executable, "-m", "devcluster", "up", "--name", "mine", "--fake-gpus", "2=NVIDIA-L4"]
    folder = ClusterPaths(home, "mine").folder
    environment = {**os.environ, "XDG_STATE_HOME": str(home.parent)}
    up = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    eventually(folder.exists, "the cluster's folder")
    time.sleep(seconds)  # a moment within `up`, not a wait for something
    up.kill()
    up.wait()
    assert folder.exists()
    subprocess.run([sys.executable, "-m", "devcluster", "down", "--name", "mine"], env=environment, check=True)

    assert machine(home) - before == set()
    assert containers(home) == []


@needs_root
@pytest.mark.exclusive_node
def test_up_after_a_crash_cleans_up_first_and_a_second_node_is_refused(home):
    first = Cluster.up(options(home), ConsoleProgress())
    with pytest.raises(Exception, match="cluster mine already has this machine as its real node"):
        Cluster.up(options(home, name="other"), ConsoleProgress())
    os.kill(first.state.processes["kubelet"].pid, signal.SIGKILL)
    eventually(lambda: first.state.dead, "the kubelet's death")

    second = Cluster.up(options(home), ConsoleProgress())
    assert second.state.dead == []
    assert kubectl(second, "get", "nodes", "--no-headers").split()[:2] == ["node-real", "Ready"]


@needs_root
@pytest.mark.exclusive_node
def test_a_second_up_takes_less_than_fifteen_seconds(home, capsys):
    Cluster.up(options(home), ConsoleProgress()).down()
    started = time.monotonic()
    cluster = Cluster.up(options(home), ConsoleProgress())
    seconds = time.monotonic() - started
    with capsys.disabled():
        sys.stderr.write(f"\nsecond up, with a real node: {seconds:.1f} s\n")
    again = time.monotonic()
    Cluster.up(options(home), ConsoleProgress())
    assert time.monotonic() - again < 1, "a running cluster is only found"
    cluster.down()
    assert seconds < 15


@needs_root
def test_simulated_pods_are_unreachable_exactly_while_kwok_runs(home):
    cluster = Cluster.up(options(home, node=False, fake_gpus=None, kwok=True), ConsoleProgress())
    assert "10.250.0.0/16" in run("ip", "route", "show", "type", "blackhole")
    cluster.down()
    assert bool(run("ip", "route", "show", "type", "blackhole")) == bool(clusters_running("kwok"))


def test_a_cluster_ends_with_the_process_that_wanted_it(home):
    program = (
        "import os, signal; from pathlib import Path; from devcluster import Cluster, Options, Owner\n"
        f"Cluster.up(Options(name='mine', node=False, home=Path({str(home)!r}), owner=Owner.this_process()))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=False)
    folder = ClusterPaths(home, "mine").folder
    eventually(lambda: not folder.exists() and not marked(str(folder)), "the cluster's end")
    with pytest.raises(NotRunningError):
        Cluster.find("mine", home)


def test_a_killed_control_plane_goes_down_like_a_living_one(home):
    cluster = Cluster.up(options(home, node=False, fake_gpus=None, kwok=True), ConsoleProgress())
    for process in cluster.state.processes.values():
        os.kill(process.pid, signal.SIGKILL)
    cluster.down()
    assert not cluster.paths.folder.exists()
    assert marked(str(cluster.paths.folder)) == []
