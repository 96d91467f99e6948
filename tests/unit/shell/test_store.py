"""What the store keeps, drops, and calls news."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_operator.core.children import ObjectRef
from cosyvoice_operator.core.errors import Blocked
from cosyvoice_operator.core.model import RuntimeReport
from cosyvoice_operator.engine.store import Store, ident
from tests.unit.shell.builders import child, node, owner, pod

KEY = ("ns", "x")
ALL = None
NOBODY: frozenset[tuple[str, str]] = frozenset()
DEPLOYMENT = ObjectRef("Deployment", "ns", "x-cpu")
REPORT = RuntimeReport(
    ready=True, family="Demo", backend="ONNXRuntime", provider="CPU", load_seconds=1.0, engine_key=None
)


@pytest.fixture
def store() -> Store:
    """A store that knows the resource ``x``."""
    store = Store()
    store.update("CosyVoiceDeployment", owner())
    return store


class TestOrder:
    def test_a_newer_version_replaces_an_older_one(self, store: Store) -> None:
        store.update("Deployment", child(version=5))
        store.update("Deployment", child(version=6, spec={"replicas": 9}))
        assert store.child(DEPLOYMENT).obj["spec"] == {"replicas": 9}

    def test_an_older_version_is_dropped_and_is_no_news(self, store: Store) -> None:
        store.update("Deployment", child(version=6, spec={"replicas": 9}))
        assert store.update("Deployment", child(version=5)) == NOBODY
        assert store.child(DEPLOYMENT).obj["spec"] == {"replicas": 9}

    def test_versions_are_compared_as_numbers(self, store: Store) -> None:
        store.update("Deployment", child(version=9))
        store.update("Deployment", child(version=10, spec={"replicas": 9}))
        assert store.child(DEPLOYMENT).obj["spec"] == {"replicas": 9}

    def test_a_late_answer_does_not_bring_a_deleted_object_back(self, store: Store) -> None:
        store.update("Deployment", child(version=5))
        store.remove("Deployment", child(version=8))
        assert store.update("Deployment", child(version=7)) == NOBODY
        assert store.child(DEPLOYMENT) is None

    def test_a_late_deletion_does_not_take_away_the_object_that_replaced_it(self, store: Store) -> None:
        store.update("Deployment", child(version=9, uid="second"))
        assert store.remove("Deployment", child(version=8, uid="first")) == NOBODY
        assert store.child(DEPLOYMENT).uid == "second"

    def test_an_object_that_only_lost_its_label_is_taken_in_again_once_it_was_read(self, store: Store) -> None:
        store.update("Deployment", child(version=5))
        store.remove("Deployment", child(version=8))
        store.confirm("Deployment", child(version=8))
        assert store.child(DEPLOYMENT).version == 8

    def test_an_object_made_again_after_its_deletion_is_taken_in(self, store: Store) -> None:
        store.update("Deployment", child(version=5))
        store.remove("Deployment", child(version=8))
        assert store.update("Deployment", child(version=9, uid="second")) == {KEY}

    @given(st.permutations([("update", 3), ("update", 5), ("remove", 7), ("update", 9)]))
    def test_the_order_in_which_versions_arrive_makes_no_difference(self, order: list[tuple[str, int]]) -> None:
        store = Store()
        for verb, version in order:
            uid = "second" if version == 9 else "first"
            getattr(store, verb)("Deployment", child(version=version, uid=uid))
        assert store.child(DEPLOYMENT).version == 9


class TestNews:
    def test_a_new_child_is_news_for_its_owner(self, store: Store) -> None:
        assert store.update("Deployment", child(version=2)) == {KEY}

    def test_the_watch_event_of_our_own_write_is_no_news(self, store: Store) -> None:
        store.update("Deployment", child(version=2))
        assert store.update("Deployment", child(version=2)) == NOBODY

    def test_a_budget_that_only_counted_pods_is_no_news(self, store: Store) -> None:
        store.update("PodDisruptionBudget", child("x", kind="PodDisruptionBudget", version=2))
        counted = child("x", kind="PodDisruptionBudget", version=3, status={"currentHealthy": 1})
        assert store.update("PodDisruptionBudget", counted) == NOBODY

    def test_the_rollout_counter_of_a_deployment_is_no_news(self, store: Store) -> None:
        store.update("Deployment", child(version=2))
        rolled = child(version=3)
        rolled["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "1"}
        rolled["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "2"}
        store.update("Deployment", rolled)
        again = child(version=4)
        again["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "3"}
        assert store.update("Deployment", again) == NOBODY

    def test_a_status_of_a_deployment_is_news(self, store: Store) -> None:
        store.update("Deployment", child(version=2))
        assert store.update("Deployment", child(version=3, status={"readyReplicas": 1})) == {KEY}

    def test_a_heartbeat_of_a_node_is_no_news(self, store: Store) -> None:
        store.update("Node", node(version=2))
        assert store.update("Node", node(version=3)) == NOBODY

    def test_a_node_that_lost_a_gpu_is_news_for_everybody(self, store: Store) -> None:
        store.update("Node", node(version=2))
        assert store.update("Node", node(version=3, gpus=1)) is ALL

    def test_a_node_that_left_is_news_for_everybody(self, store: Store) -> None:
        store.update("Node", node(version=2))
        assert store.remove("Node", node(version=3)) is ALL
        assert store.snapshot(KEY).nodes == ()

    def test_a_child_whose_label_was_changed_is_news_for_both_owners(self, store: Store) -> None:
        store.update("Deployment", child(version=2))
        assert store.update("Deployment", child(version=3, deployment="y")) == {KEY, ("ns", "y")}
        assert not store.children(KEY)


class TestSnapshot:
    def test_it_holds_what_belongs_to_the_resource_and_nothing_else(self, store: Store) -> None:
        store.update("Deployment", child(version=2))
        store.update("Deployment", child("y-cpu", version=2, uid="other", deployment="y"))
        store.update("Pod", pod())
        store.update("Node", node())
        store.set_report("pod-uid/0", REPORT)
        snapshot = store.snapshot(KEY)
        assert [obj["metadata"]["name"] for obj in snapshot.children] == ["x-cpu"]
        assert [obj["metadata"]["name"] for obj in snapshot.pods] == ["x-cpu-1"]
        assert [facts.name for facts in snapshot.nodes] == ["n1"]
        assert snapshot.reports == {"pod-uid/0": REPORT}

    def test_there_is_none_of_a_resource_that_is_gone(self, store: Store) -> None:
        store.remove("CosyVoiceDeployment", owner(version=2))
        assert store.snapshot(KEY) is None
        assert store.keys() == []

    def test_what_was_blocked_is_forgotten_with_the_resource(self, store: Store) -> None:
        store.blocked[KEY] = (Blocked("NameConflict", "in the way"),)
        store.remove("CosyVoiceDeployment", owner(version=2))
        store.update("CosyVoiceDeployment", owner(version=3, uid="again"))
        assert store.snapshot(KEY).blocked == ()

    def test_a_report_goes_with_its_pod(self, store: Store) -> None:
        store.update("Pod", pod())
        store.set_report("pod-uid/0", REPORT)
        store.remove("Pod", pod(version=2))
        store.update("Pod", pod(version=3))
        assert store.snapshot(KEY).reports == {}

    def test_a_report_is_news_once(self, store: Store) -> None:
        assert store.set_report("pod-uid/0", REPORT)
        assert not store.set_report("pod-uid/0", REPORT)
        assert store.set_report("pod-uid/1", REPORT)

    def test_foreign_field_managers_and_bulky_pod_fields_are_not_kept(self, store: Store) -> None:
        store.update("Pod", pod())
        kept = store.snapshot(KEY).pods[0]
        assert "managedFields" not in kept["metadata"]
        assert kept["spec"] == {"nodeName": "n1"}

    def test_objects_handed_in_are_left_as_they_are(self, store: Store) -> None:
        given = child(version=2)
        before = repr(given)
        store.update("Deployment", given)
        assert repr(given) == before


class TestResync:
    def test_what_a_list_no_longer_holds_is_dropped_and_is_news(self, store: Store) -> None:
        store.update("Deployment", child(version=2))
        assert store.retain("Deployment", [], version=10) == {KEY}
        assert store.child(DEPLOYMENT) is None

    def test_what_is_newer_than_the_list_stays(self, store: Store) -> None:
        store.update("Deployment", child(version=11))
        assert store.retain("Deployment", [], version=10) == NOBODY
        assert store.child(DEPLOYMENT) is not None

    def test_what_the_list_holds_stays_as_do_other_kinds(self, store: Store) -> None:
        store.update("Deployment", child(version=2))
        store.update("Service", child("x", kind="Service", version=2))
        assert store.retain("Deployment", [ident("Deployment", child())], version=10) == NOBODY
        assert len(store.children(KEY)) == 2


class TestSettled:
    def test_a_child_that_only_changed_its_status_stays_settled(self, store: Store) -> None:
        store.update("Deployment", child(version=2))
        store.settle(DEPLOYMENT, params := object(), version=2)
        store.update("Deployment", child(version=3, status={"readyReplicas": 1}))
        assert store.child(DEPLOYMENT).settled is params

    @pytest.mark.parametrize("edit", [{"spec": {"replicas": 3}}, {"uid": "replaced"}])
    def test_a_child_that_was_edited_or_replaced_must_be_compared_again(self, store: Store, edit: dict) -> None:
        store.update("Deployment", child(version=2))
        store.settle(DEPLOYMENT, object(), version=2)
        store.update("Deployment", child(version=3, **edit))
        assert store.child(DEPLOYMENT).settled is None

    def test_an_edit_that_was_heard_of_before_the_answer_to_our_apply_is_not_taken_for_settled(
        self, store: Store
    ) -> None:
        store.update("Deployment", child(version=4, spec={"replicas": 9}))
        store.settle(DEPLOYMENT, object(), version=3)
        assert store.child(DEPLOYMENT).settled is None
