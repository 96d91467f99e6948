"""Failover down the tiers and back, as properties over generated histories and as the few cases that explain it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_operator.api.defaults import EffectiveFailover
from cosyvoice_operator.core.failover import Allocation, PoolObservation, allocate

START = datetime(2026, 1, 1, tzinfo=UTC)
TIMING = EffectiveFailover(
    after=timedelta(seconds=120), recover_after=timedelta(seconds=300), minimum_dwell=timedelta(seconds=600)
)


@dataclass
class Pod:
    """A pod of the model cluster: waits for a slot, then loads, then is ready."""

    scheduled_at: datetime | None = None
    ready_since: datetime | None = None


@dataclass
class Pool:
    """A pool of the model cluster with `slots` places for its pods."""

    slots: int
    pods_per_unit: int = 1
    load: timedelta = timedelta(seconds=20)
    pods: list[Pod] = field(default_factory=list)
    desired: int = 0
    active_since: datetime | None = None
    short_since: datetime | None = None

    def schedule(self, now: datetime) -> None:
        used = sum(pod.scheduled_at is not None for pod in self.pods)
        for pod in self.pods:
            if pod.scheduled_at is None and used < self.slots:
                pod.scheduled_at, used = now, used + 1
            if pod.scheduled_at and pod.ready_since is None and now >= pod.scheduled_at + self.load:
                pod.ready_since = pod.scheduled_at + self.load
        pending = any(pod.scheduled_at is None for pod in self.pods)
        self.short_since = (self.short_since or now) if pending else None

    def lose(self, slots: int) -> None:
        """Another tenant takes places: pods on them die and their ReplicaSet makes new ones."""
        self.slots = max(0, self.slots - slots)
        running = [pod for pod in self.pods if pod.scheduled_at]
        for pod in running[self.slots :]:
            self.pods[self.pods.index(pod)] = Pod()

    def scale(self, replicas: int) -> None:
        """A ReplicaSet takes away waiting pods first, then starting ones, then those ready for the shortest time."""
        rank = sorted(self.pods, key=lambda p: (p.ready_since is None, p.scheduled_at is None, p.ready_since or START))
        self.pods = rank[:replicas] + [Pod() for _ in range(replicas - len(rank))]

    def observe(self) -> PoolObservation:
        return PoolObservation(
            pods_per_unit=self.pods_per_unit,
            ready_since=tuple(pod.ready_since for pod in self.pods if pod.ready_since),
            starting=sum(pod.scheduled_at is not None and pod.ready_since is None for pod in self.pods),
            desired=self.desired,
            active_since=self.active_since,
            short_since=self.short_since,
            trims=True,
        )


@dataclass
class Cluster:
    """The model: pools in order, a number of units, and a clock."""

    units: int
    pools: list[Pool]
    now: datetime = START

    def ready_units(self) -> int:
        return sum(pool.observe().ready_units() for pool in self.pools)

    def step(self) -> Allocation:
        """Let the scheduler act, then plan and apply once."""
        for pool in self.pools:
            pool.schedule(self.now)
        allocation = allocate(self.units, [pool.observe() for pool in self.pools], TIMING, self.now)
        for pool, assigned in zip(self.pools, allocation.pools, strict=True):
            pool.scale(assigned.pods)
            pool.desired, pool.active_since = assigned.pods, assigned.active_since
        return allocation

    def run(self, duration: timedelta, every: timedelta = timedelta(seconds=10)) -> None:
        end = self.now + duration
        while self.now < end:
            self.now += every
            self.step()


pool_lists = st.lists(
    st.builds(Pool, slots=st.integers(0, 5), pods_per_unit=st.integers(1, 3), load=st.just(timedelta(seconds=20))),
    min_size=1,
    max_size=4,
)
moves = st.lists(
    st.tuples(
        # Waits of about the configured times, so that what happens just before and after them is met often.
        st.sampled_from(["lose", "gain", "wait", "wait", "kill"]),
        st.integers(0, 3),
        st.integers(1, 5),
        st.sampled_from([1, 25, 60, 130, 310, 400]),
    ),
    max_size=40,
)


def play(cluster: Cluster, move: tuple[str, int, int, int]) -> None:
    """Apply one outside event, and let some time pass."""
    kind, index, amount, seconds = move
    pool = cluster.pools[index % len(cluster.pools)]
    if kind == "lose":
        pool.lose(amount)
    elif kind == "gain":
        pool.slots += amount
    elif kind == "kill" and pool.pods:
        pool.pods[amount % len(pool.pods)] = Pod()
    cluster.now += timedelta(seconds=seconds)


@given(st.integers(0, 6), pool_lists, moves)
@settings(max_examples=400, deadline=None)
def test_a_move_never_lowers_ready_units(
    units: int, pools: list[Pool], history: list[tuple[str, int, int, int]]
) -> None:
    cluster = Cluster(units, pools)
    cluster.step()
    for move in history:
        play(cluster, move)
        for pool in cluster.pools:
            pool.schedule(cluster.now)
        before = cluster.ready_units()
        cluster.step()
        assert cluster.ready_units() >= min(units, before)


@given(st.integers(0, 6), pool_lists, moves)
@settings(max_examples=200, deadline=None)
def test_an_exhausted_pool_keeps_at_most_one_pod_waiting(
    units: int, pools: list[Pool], history: list[tuple[str, int, int, int]]
) -> None:
    cluster = Cluster(units, pools)
    for move in history:
        play(cluster, move)
        allocation = cluster.step()
        for pool, assigned in zip(cluster.pools, allocation.pools, strict=True):
            if assigned.failed_over:
                assert sum(pod.scheduled_at is None for pod in pool.pods) <= 1


@given(st.integers(1, 6), pool_lists, moves)
@settings(max_examples=400, deadline=None)
def test_a_fallback_pool_serves_at_least_the_minimum_dwell(
    units: int, pools: list[Pool], history: list[tuple[str, int, int, int]]
) -> None:
    cluster = Cluster(units, pools)
    cluster.step()
    for move in history:
        play(cluster, move)
        before = [pool.active_since for pool in cluster.pools]
        cluster.step()
        for pool, since in list(zip(cluster.pools, before, strict=True))[1:]:
            if since is not None and pool.active_since is None:
                assert cluster.now - since >= TIMING.minimum_dwell


@given(st.integers(0, 6), pool_lists, moves)
@settings(max_examples=200, deadline=None)
def test_it_settles_on_the_promise_when_the_cluster_stops_changing(
    units: int, pools: list[Pool], history: list[tuple[str, int, int, int]]
) -> None:
    cluster = Cluster(units, pools)
    for move in history:
        play(cluster, move)
        cluster.step()
    cluster.run(timedelta(hours=2))
    settled = [pool.desired for pool in cluster.pools]
    possible = sum(pool.slots // pool.pods_per_unit for pool in cluster.pools)
    assert cluster.ready_units() >= min(units, possible)
    cluster.run(timedelta(minutes=30))
    assert [pool.desired for pool in cluster.pools] == settled
    first = cluster.pools[0]
    if first.slots >= units * first.pods_per_unit:
        assert [pool.desired for pool in cluster.pools[1:]] == [0] * (len(cluster.pools) - 1)


@given(st.integers(0, 6), pool_lists, moves)
@settings(max_examples=400, deadline=None)
def test_the_next_look_is_early_enough(units: int, pools: list[Pool], history: list[tuple[str, int, int, int]]) -> None:
    """Between now and `next_look` time alone changes nothing: an operator that sleeps until then misses no move."""
    cluster = Cluster(units, pools)
    for move in history:
        play(cluster, move)
        cluster.step()
        seen = [pool.observe() for pool in cluster.pools]
        allocation = allocate(units, seen, TIMING, cluster.now)
        horizon = allocation.next_look or cluster.now + timedelta(days=1)
        just_before = cluster.now + (horizon - cluster.now) * 0.999
        assert allocate(units, seen, TIMING, just_before).pools == allocation.pools


def gpu_and_cpu(gpus: int, units: int = 2) -> Cluster:
    return Cluster(units, [Pool(slots=gpus), Pool(slots=20, pods_per_unit=2)])


def test_gpus_taken_away_are_replaced_after_the_wait_and_no_sooner() -> None:
    cluster = gpu_and_cpu(gpus=2)
    cluster.run(timedelta(minutes=5))
    cluster.pools[0].lose(1)
    cluster.run(TIMING.after)
    assert cluster.pools[1].desired == 0
    cluster.run(timedelta(seconds=20))
    assert cluster.pools[1].desired == 2, "one missing unit is two CPU pods"
    assert cluster.pools[0].desired == 2, "the ready GPU pod and one that waits"


def test_a_returned_gpu_takes_over_only_after_it_has_proved_itself() -> None:
    cluster = gpu_and_cpu(gpus=0)
    cluster.run(timedelta(minutes=30))
    assert [pool.desired for pool in cluster.pools] == [1, 4]
    cluster.pools[0].slots = 2
    cluster.run(timedelta(minutes=4))
    assert [pool.desired for pool in cluster.pools] == [2, 4], "both GPU pods are wanted, CPU still serves"
    cluster.run(timedelta(minutes=3))
    assert [pool.desired for pool in cluster.pools] == [2, 0]


def test_half_of_the_gpus_back_releases_half_of_the_cpu_pods() -> None:
    cluster = gpu_and_cpu(gpus=0)
    cluster.run(timedelta(minutes=30))
    cluster.pools[0].slots = 1
    cluster.run(timedelta(minutes=10))
    assert [pool.desired for pool in cluster.pools] == [2, 2]


def test_fewer_replicas_apply_at_once() -> None:
    cluster = gpu_and_cpu(gpus=0, units=3)
    cluster.run(timedelta(minutes=5))
    cluster.units = 1
    cluster.step()
    assert [pool.desired for pool in cluster.pools] == [1, 2]


def test_a_gpu_that_is_back_at_once_does_not_end_the_dwell_early() -> None:
    cluster = gpu_and_cpu(gpus=0)
    cluster.run(TIMING.after + timedelta(seconds=20))
    activated = cluster.pools[1].active_since
    assert activated is not None
    cluster.pools[0].slots = 2
    cluster.run(TIMING.recover_after + timedelta(seconds=60))
    assert cluster.now - activated < TIMING.minimum_dwell
    assert [pool.desired for pool in cluster.pools] == [2, 4], "the GPUs have proved themselves, the dwell is not over"
    cluster.run(TIMING.minimum_dwell)
    assert [pool.desired for pool in cluster.pools] == [2, 0]


def test_it_asks_to_be_woken_when_the_dwell_ends_and_when_a_pod_has_proved_itself() -> None:
    ready = START + timedelta(seconds=50)
    gpu = PoolObservation(pods_per_unit=1, ready_since=(ready,), desired=1, active_since=START)
    cpu = PoolObservation(pods_per_unit=1, ready_since=(START,), desired=1, active_since=START)
    soon = allocate(1, [gpu, cpu], TIMING, START + timedelta(seconds=60))
    assert soon.next_look == ready + TIMING.recover_after
    later = allocate(1, [gpu, cpu], TIMING, START + timedelta(seconds=400))
    assert later.next_look == START + TIMING.minimum_dwell


def test_units_wait_once_even_when_several_gpu_types_are_full() -> None:
    cluster = Cluster(2, [Pool(slots=0), Pool(slots=0), Pool(slots=0), Pool(slots=20)])
    cluster.run(TIMING.after + timedelta(seconds=50))
    assert cluster.pools[3].desired == 2
