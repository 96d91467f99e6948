"""Who is told of Jobs that several resources share, and whose turn it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_operator.core.jobs import may_start, turns
from cosyvoice_operator.core.model import BuildTicket
from cosyvoice_operator.engine.store import Store
from tests.unit.shell.builders import job, job_pod, owner

KEY, OTHER, THIRD = ("ns", "x"), ("ns", "y"), ("ns", "z")
NOBODY: frozenset[tuple[str, str]] = frozenset()
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def store() -> Store:
    """A store that knows the resource ``x``."""
    store = Store()
    store.update("CosyVoiceDeployment", owner())
    return store


class TestWhoIsTold:
    def test_a_new_job_is_news_for_all_that_need_it(self, store: Store) -> None:
        assert store.update("Job", job(owners=("x", "y"))) == {KEY, OTHER}

    def test_a_job_that_got_another_owner_is_news_for_that_one_only(self, store: Store) -> None:
        store.update("Job", job(owners=("x", "y")))
        assert store.update("Job", job(version=2, owners=("x", "y", "z"))) == {THIRD}

    def test_a_job_that_lost_an_owner_is_news_for_that_one_only(self, store: Store) -> None:
        store.update("Job", job(owners=("x", "y")))
        assert store.update("Job", job(version=2, owners=("x",))) == {OTHER}

    def test_a_job_that_ended_is_news_for_all_that_need_it(self, store: Store) -> None:
        store.update("Job", job(owners=("x", "y"), suspend=False))
        assert store.update("Job", job(version=2, owners=("x", "y"), suspend=False, ended="Complete")) == {KEY, OTHER}

    def test_a_count_of_pods_is_no_news(self, store: Store) -> None:
        store.update("Job", job(suspend=False))
        counted = job(version=2, suspend=False)
        counted["status"] = {"active": 1, "ready": 1}
        assert store.update("Job", counted) == NOBODY

    def test_a_job_deleted_by_hand_is_news_for_all_that_need_it(self, store: Store) -> None:
        store.update("Job", job(owners=("x", "y")))
        assert store.remove("Job", job(version=2)) == {KEY, OTHER}
        assert store.snapshot(KEY).jobs == ()

    def test_a_pod_is_news_for_the_owners_of_its_job(self, store: Store) -> None:
        store.update("Job", job(owners=("x", "y"), suspend=False))
        assert store.update("Pod", job_pod()) == {KEY, OTHER}
        assert store.remove("Pod", job_pod(version=2)) == {KEY, OTHER}

    def test_a_pod_that_came_before_its_job_is_told_of_with_it(self, store: Store) -> None:
        assert store.update("Pod", job_pod()) == NOBODY
        assert store.update("Job", job(suspend=False)) == {KEY}
        assert len(store.snapshot(KEY).job_pods) == 1

    def test_a_pod_of_an_earlier_job_of_the_same_name_is_none_of_its_pods(self, store: Store) -> None:
        store.update("Job", job(suspend=False))
        store.update("Pod", job_pod())
        store.remove("Job", job(version=2))
        store.update("Job", job(version=3, uid="second"))
        assert store.snapshot(KEY).job_pods == ()

    def test_a_job_of_one_resource_alone_is_its_child(self, store: Store) -> None:
        alone = job("engine-cleanup-1", suspend=False)
        alone["metadata"]["labels"]["tts.cosyvoice.io/deployment"] = "x"
        assert store.update("Job", alone) == {KEY}
        pod = job_pod(of="engine-cleanup-1")
        pod["metadata"]["labels"]["tts.cosyvoice.io/deployment"] = "x"
        store.update("Pod", pod)
        snapshot = store.snapshot(KEY)
        assert [child["metadata"]["name"] for child in snapshot.children] == ["engine-cleanup-1"]
        assert (snapshot.jobs, snapshot.job_pods, snapshot.pods, snapshot.builds) == ((), (), (), ())

    def test_jobs_of_other_namespaces_are_counted_and_not_shown(self, store: Store) -> None:
        store.update("Job", job(namespace="elsewhere"))
        assert store.snapshot(KEY).jobs == ()
        assert [(build.namespace, build.name) for build in store.snapshot(KEY).builds] == [("elsewhere", "engine-1")]


class TestTurns:
    def test_a_build_that_ends_wakes_the_next_in_turn_and_not_those_behind(self, store: Store) -> None:
        store.update("Job", job("engine-1", suspend=False))
        store.update("Job", job("engine-2", suspend=False))
        store.update("Job", job("engine-3", owners=("y",), created=START))
        store.update("Job", job("engine-4", owners=("z",), created=START + timedelta(seconds=1)))
        ended = job("engine-1", version=2, suspend=False, ended="Complete")
        assert store.update("Job", ended) == {KEY, OTHER}

    def test_a_build_that_starts_wakes_no_other(self, store: Store) -> None:
        store.update("Job", job("engine-1"))
        store.update("Job", job("engine-2", owners=("y",)))
        assert store.update("Job", job("engine-1", version=2, suspend=False)) == {KEY}

    def test_a_build_that_vanishes_wakes_the_next_in_turn(self, store: Store) -> None:
        store.update("Job", job("engine-1", suspend=False))
        store.update("Job", job("engine-2", suspend=False))
        store.update("Job", job("engine-3", owners=("y",)))
        assert OTHER in store.remove("Job", job("engine-1", version=2))

    def test_a_turn_is_given_once(self, store: Store) -> None:
        store.update("Job", job("engine-1"))
        assert store.builds.take_turn("ns", "engine-1")
        assert not store.builds.take_turn("ns", "engine-1")

    def test_a_turn_that_is_being_taken_counts_against_the_limit(self, store: Store) -> None:
        for number in range(4):
            store.update("Job", job(f"engine-{number}"))
        assert [store.builds.take_turn("ns", f"engine-{number}") for number in (0, 1, 2)] == [True, True, False]

    def test_a_turn_given_back_goes_to_the_oldest_again(self, store: Store) -> None:
        for number in range(3):
            store.update("Job", job(f"engine-{number}"))
        store.builds.take_turn("ns", "engine-0")
        store.builds.take_turn("ns", "engine-1")
        store.builds.give_back("ns", "engine-0")
        assert not store.builds.take_turn("ns", "engine-2")
        assert store.builds.take_turn("ns", "engine-0")

    def test_nobody_waits_behind_the_build_of_a_paused_resource(self, store: Store) -> None:
        for number in range(2):
            store.update("Job", job(f"engine-{number}", owners=("y",)))
        store.update("Job", job("engine-2"))
        assert not store.builds.take_turn("ns", "engine-2")
        assert KEY in store.builds.set_aside(OTHER, aside=True)
        assert store.builds.take_turn("ns", "engine-2")

    def test_a_build_that_another_needs_too_keeps_its_turn_when_one_is_paused(self, store: Store) -> None:
        store.update("Job", job("engine-1", owners=("x", "y")))
        store.builds.set_aside(OTHER, aside=True)
        assert store.builds.take_turn("ns", "engine-1")

    def test_when_the_one_that_wanted_it_leaves_the_next_gets_its_turn(self, store: Store) -> None:
        store.builds.set_aside(OTHER, aside=True)
        for number in range(2):
            store.update("Job", job(f"engine-{number}", owners=("z", "y")))
        store.update("Job", job("engine-2"))
        store.update("Job", job("engine-0", version=2, owners=("y",)))
        assert KEY in store.update("Job", job("engine-1", version=2, owners=("y",)))

    def test_a_resource_that_goes_on_is_looked_at_again(self, store: Store) -> None:
        store.builds.set_aside(KEY, aside=True)
        assert store.builds.set_aside(KEY, aside=False) == {KEY}
        assert store.builds.set_aside(KEY, aside=False) == NOBODY

    def test_builds_are_counted_by_whether_they_run(self, store: Store) -> None:
        store.update("Job", job("engine-1", suspend=False))
        store.update("Job", job("engine-2"))
        store.update("Job", job("engine-3", ended="Failed"))
        assert (store.builds.count(running=True), store.builds.count(running=False)) == (1, 1)


tickets = st.lists(
    st.builds(
        BuildTicket,
        namespace=st.sampled_from(["a", "b", "c"]),
        name=st.integers(0, 30).map(str),
        created=st.integers(0, 5).map(lambda n: START + timedelta(seconds=n)),
        running=st.booleans(),
    ),
    unique_by=lambda t: (t.namespace, t.name),
    max_size=12,
)


@given(tickets, st.integers(1, 6), st.integers(1, 3))
def test_the_store_and_the_plan_agree_on_whose_turn_it_is(
    known: list[BuildTicket], cluster: int, per_namespace: int
) -> None:
    ordered = sorted(known, key=lambda t: (t.created, t.namespace, t.name))
    chosen = turns(ordered, (), cluster, per_namespace)
    asked = [
        t
        for t in ordered
        if not t.running and may_start(t.name, t.namespace, known, cluster=cluster, per_namespace=per_namespace)
    ]
    assert chosen == asked
    assert sum(t.running for t in known) + len(chosen) <= max(cluster, sum(t.running for t in known))
