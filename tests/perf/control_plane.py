"""``make perf``: how fast and how lean the operator is on a real control plane, beside a bare loop of the same writes.

For each size it measures, on KWOK nodes:

- a bare loop: server-side applies of exactly the children that the operator will make, 16 at a time, in another namespace, before and
  after the rest (the mean of both counts);
- the operator, idle and running: seconds from the first creation of a resource until all children exist;
- with all of them present: milliseconds from a change of one resource to its child being written;
- writes in a steady minute that holds two resyncs, and its highest resident memory.

Run it as ``python -m tests.perf.control_plane [--sizes 100,1000] [--out perf-out]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from cosyvoice_operator.core.gpu import parse_node
from cosyvoice_operator.core.model import Snapshot
from cosyvoice_operator.core.plan import make_plan
from cosyvoice_operator.kube.client import KubeClient
from cosyvoice_operator.kube.limiter import TokenBucket
from cosyvoice_operator.kube.login import load_login
from cosyvoice_operator.kube.resources import CHILDREN, COSYVOICE_DEPLOYMENT, DEPLOYMENT, NODE, Resource, child_resource
from cosyvoice_operator.render import render
from cosyvoice_operator.settings import Settings
from devcluster import Cluster, Options, Owner
from devcluster.crds import wait_until_established
from devcluster.progress import ConsoleProgress
from tests.components import restart
from tests.operator_process import OperatorProcess
from tests.perf.report import write_report
from tests.perf.watching import ChildWatch

Json = dict[str, Any]

PROJECT = Path(__file__).parents[2]
WORKERS = 16
CHANGES = 200
STEADY_SECONDS = 60.0
GPUS_PER_NODE = 8
BARE, OPERATED = "bare", "operated"


@dataclass(frozen=True)
class Result:
    """One size; times are wall-clock."""

    n: int
    children: int
    seconds_all_children: float
    change_p50_ms: float
    change_p99_ms: float
    writes_per_resource: float
    writes_at_rest: int
    peak_rss_mb: float
    cpu_seconds: float
    bare_loop_seconds: float = 0.0
    bare_loop_ratio: float = 0.0


class _Quiet:
    def observe_request(self, verb: str, kind: str, code: int, seconds: float) -> None:
        del verb, kind, code, seconds


def resource(name: str, namespace: str, **spec: Any) -> Json:
    """A CosyVoiceDeployment with the defaults."""
    return {
        "apiVersion": COSYVOICE_DEPLOYMENT.api_version,
        "kind": COSYVOICE_DEPLOYMENT.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": {"family": "Demo", "source": {"embedded": {"voice": "heart"}}}} | spec,
    }


def change(value: str) -> Json:
    """A change of the spec that changes the Deployment's pod template."""
    return {"spec": {"runtime": {"env": [{"name": "CHANGE", "value": value}]}}}


def nodes(count: int) -> str:
    """Simulated machines with room for ``count`` pods that need a GPU each, and as many on CPU."""
    machines = -(-count // GPUS_PER_NODE) + 2
    capacity = {"cpu": "256", "memory": "1Ti", "pods": "250", "nvidia.com/gpu": str(GPUS_PER_NODE)}
    return yaml.safe_dump_all(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"gpu-{number}", "labels": {"nvidia.com/gpu.product": "NVIDIA-L4"}},
            "status": {"allocatable": capacity},
        }
        for number in range(machines)
    )


async def at_once(work: Iterable[Callable[[], Awaitable[Any]]]) -> None:
    """Do all of it, as many at a time as the operator has workers."""
    remaining = iter(work)

    async def worker() -> None:
        for job in remaining:
            await job()

    await asyncio.gather(*(worker() for _ in range(WORKERS)))


async def wait_for(done: Callable[[], bool], what: str, within: float) -> None:
    """Wait until ``done``, looking often enough for a measurement."""
    deadline = time.perf_counter() + within
    while not done():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"not within {within:.0f} s: {what}")
        await asyncio.sleep(0.005)


class Bench:
    """One control plane, for one size."""

    def __init__(self, cluster: Cluster, client: KubeClient, folder: Path, n: int) -> None:
        self.cluster = cluster
        self.client = client
        self.folder = folder
        self.n = n
        self.names = [f"cvd-{number:04d}" for number in range(n)]

    async def run(self) -> Result:
        """Measure everything."""
        bodies = await self._bodies()
        before = await self._bare_loop(bodies)
        await asyncio.to_thread(limit_controllers, self.cluster, raised=False)
        with OperatorProcess(
            self.cluster.kubeconfig, self.folder, name=f"perf-{self.n}", resync_interval=25, log_level="INFO"
        ) as operator:
            await wait_for(operator.leading, "the operator leads", 30)
            result = await self._operate(operator, len(bodies))
            if operator.stop() != 0:
                raise RuntimeError(f"the operator did not stop cleanly: {operator.log}")
        await self._clean(OPERATED)
        # Once more: what else the machine does changes from minute to minute.
        bare = statistics.mean([before, await self._bare_loop(bodies)])
        ratio = bare / result.seconds_all_children
        return replace(result, bare_loop_seconds=round(bare, 2), bare_loop_ratio=round(ratio, 3))

    async def _operate(self, operator: OperatorProcess, children: int) -> Result:
        async with ChildWatch(self.client, OPERATED) as watch:
            started, cpu = time.perf_counter(), operator.cpu_seconds()
            creations = (
                lambda name=name: self.client.create(COSYVOICE_DEPLOYMENT, OPERATED, resource(name, OPERATED))
                for name in self.names
            )
            await at_once(creations)
            created = time.perf_counter() - started
            await wait_for(lambda: watch.seen(children), f"{children} children exist", 300)
            seconds = max(watch.created.values()) - started
            cpu = operator.cpu_seconds() - cpu
        say(
            f"n={self.n}: all {children} children after {seconds:.2f} s "
            f"(resources created in {created:.2f} s; {cpu:.1f} s of CPU in the operator)"
        )
        await asyncio.to_thread(limit_controllers, self.cluster, raised=True)
        await self._settled(operator)
        per_resource = operator.writes() / self.n
        say(f"n={self.n}: settled; {per_resource:.1f} writes a resource; changing {CHANGES} resources one by one")
        changes = await self._changes()
        await self._settled(operator)
        before, versions = operator.writes(), await self._versions()
        say(f"n={self.n}: p50 {statistics.median(changes):.1f} ms; now a steady minute")
        await asyncio.sleep(STEADY_SECONDS)
        at_rest = operator.writes() - before
        if await self._versions() != versions:
            raise RuntimeError("objects changed in the steady minute")
        return Result(
            n=self.n,
            children=children,
            seconds_all_children=round(seconds, 2),
            change_p50_ms=round(statistics.median(changes), 1),
            change_p99_ms=round(statistics.quantiles(changes, n=100)[98], 1),
            writes_per_resource=round(per_resource, 2),
            writes_at_rest=at_rest,
            peak_rss_mb=round(operator.peak_memory(), 1),
            cpu_seconds=round(cpu, 1),
        )

    async def _bodies(self) -> list[Json]:
        """What the operator will apply, for the namespace of the bare loop."""
        facts = tuple(sorted([parse_node(node) async for node in self._list(NODE)], key=lambda node: node.name))
        config, now = Settings().plan_config(), datetime.now(UTC)
        bodies = []
        for name in self.names:
            owner = resource(name, BARE)
            owner["metadata"] |= {"uid": "00000000-0000-0000-0000-000000000000", "generation": 1}
            plan = make_plan(Snapshot(owner, (), (), facts, {}), config, now)
            for params in plan.children:
                body = render(params)
                del body["metadata"][
                    "ownerReferences"
                ]  # there is no owner: garbage collection would remove them at once
                bodies.append(body)
        return bodies

    async def _bare_loop(self, bodies: list[Json]) -> float:
        """Apply the same children without an operator, and clean up."""
        say(f"n={self.n}: bare loop of {len(bodies)} applies")
        await asyncio.to_thread(limit_controllers, self.cluster, raised=False)
        async with ChildWatch(self.client, BARE) as watch:
            started = time.perf_counter()
            await at_once(
                lambda body=body: self.client.apply_new(child_resource(body["kind"]), body) for body in bodies
            )
            await wait_for(lambda: watch.seen(len(bodies)), "the bare loop's children exist", 60)
            seconds = max(watch.created.values()) - started
        say(f"n={self.n}: bare loop took {seconds:.2f} s")
        await asyncio.to_thread(limit_controllers, self.cluster, raised=True)
        await self._clean(BARE)
        return seconds

    async def _changes(self) -> list[float]:
        """Change one resource after the other, and time each until its Deployment is written."""
        latencies = []
        async with ChildWatch(self.client, OPERATED, kinds=(DEPLOYMENT,)) as watch:
            for number in range(CHANGES):
                name = self.names[number * 7919 % self.n]
                value = str(number)
                started = time.perf_counter()
                await self.client.merge(COSYVOICE_DEPLOYMENT, OPERATED, name, change(value))
                written = await watch.next_change(name, started)
                latencies.append((written - started) * 1000)
                await asyncio.sleep(0.15)  # a lone change: what it sets in motion has ended
        return latencies

    async def _settled(self, operator: OperatorProcess) -> None:
        """Wait until nothing has been written, and nothing waited in the queue, for five seconds."""
        quiet_since, last = time.perf_counter(), -1
        while time.perf_counter() - quiet_since < 5:
            writes = operator.writes()
            if writes != last or operator.metric("queue_depth"):
                quiet_since, last = time.perf_counter(), writes
            await asyncio.sleep(0.5)

    async def _versions(self) -> dict[tuple[str, str], str]:
        return {
            (resource.kind, obj["metadata"]["name"]): obj["metadata"]["resourceVersion"]
            for resource in (COSYVOICE_DEPLOYMENT, *CHILDREN)
            async for obj in self._list(resource)
        }

    async def _list(self, resource: Resource) -> Any:
        async for items, _ in self.client.pages(resource):
            for item in items:
                yield item

    async def _clean(self, namespace: str) -> None:
        """Remove everything of a phase, so that the next one starts on an idle server."""
        kinds = "cosyvoicedeployments,deployments,services,serviceaccounts,poddisruptionbudgets"
        await asyncio.to_thread(self.cluster.kubectl, "delete", kinds, "--all", "-n", namespace, "--wait=false")

        async def left() -> int:
            answer = await asyncio.to_thread(
                self.cluster.kubectl, "get", f"pods,{kinds}", "-n", namespace, "-o", "name", "--ignore-not-found"
            )
            return sum(not line.endswith("serviceaccount/default") for line in answer.splitlines())

        while await left():  # noqa: ASYNC110 - kubectl is asked, and tells nothing by itself
            await asyncio.sleep(1)
        await asyncio.sleep(3)


def limit_controllers(cluster: Cluster, *, raised: bool) -> None:
    """Restart the controller manager and scheduler with the client limits of a real cluster, or with raised ones.

    devcluster raises them so that tests are quick. While children are being made that would measure how the controllers answer to them
    (a ReplicaSet, a pod, its binding, its status, a dozen Events: five times the operator's own writes) on the same two cores; in a real
    cluster, with the defaults, they take their time on another machine.
    """
    for component in ("controller-manager", "scheduler"):
        limits = ["--kube-api-qps=1000", "--kube-api-burst=2000"] if raised else []
        restart(
            cluster, component, lambda old, new=limits: [*(a for a in old if not a.startswith("--kube-api-")), *new]
        )
    time.sleep(3)  # they list everything first


def say(text: str) -> None:
    """Tell how far it is: a size takes minutes."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def prepare(cluster: Cluster, folder: Path, largest: int) -> None:
    """Install the CRD, nodes and namespaces, and room for a Service of each resource."""
    node_file = folder / "nodes.yaml"
    node_file.write_text(nodes(largest))
    cluster.start_kwok(node_file)
    crd = next((PROJECT / "crds").glob("*cosyvoicedeployments.yaml"))
    cluster.kubectl("apply", "--server-side", "-f", str(crd))
    wait_until_established(cluster.kubectl, "cosyvoicedeployments.tts.cosyvoice.io")
    more = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "perf"},
        "spec": {"cidrs": ["10.96.0.0/16"]},
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(more))
    for namespace in (BARE, OPERATED):
        cluster.kubectl("create", "namespace", namespace)


async def measure(sizes: list[int], folder: Path) -> list[Result]:
    """Measure each size on a control plane of its own."""
    results = []
    for n in sizes:
        options = Options(name=f"perf-{n}", node=False, kwok=True, home=folder, owner=Owner.this_process())
        cluster = await asyncio.to_thread(Cluster.up, options, ConsoleProgress())
        try:
            await asyncio.to_thread(prepare, cluster, folder, n)
            login = await load_login(cluster.kubeconfig, None, 2 * WORKERS)
            limiter = TokenBucket(1e6, 1e6, time.monotonic)
            async with KubeClient(login, limiter, _Quiet(), timeout=60) as client:
                results.append(await Bench(cluster, client, folder, n).run())
        finally:
            await asyncio.to_thread(cluster.down)
    return results


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="100,1000", help="numbers of resources (default: 100,1000)")
    parser.add_argument("--out", type=Path, default=PROJECT / "perf-out", help="folder for the results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dc-") as folder:
        results = asyncio.run(measure([int(size) for size in options.sizes.split(",")], Path(folder)))
    write_report([asdict(result) for result in results], options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
