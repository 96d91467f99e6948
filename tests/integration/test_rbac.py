"""The operator runs under exactly the access rules that are shipped, and uses each of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster import Cluster
from tests.cluster import apply, eventually, get, kubectl
from tests.integration.conftest import PROJECT, StartOperator
from tests.integration.proxy import ApiProxy, Refusal, Request
from tests.integration.resources import CPU_TIER, OURS, children, condition, create, edit, read, resource, wait_ready

SYSTEM = "cosyvoice-system"
RULE_FILES = ("namespace.yaml", "serviceaccount.yaml", "clusterrole.yaml", "role.yaml")

# Asked of clusters that enforce owner references (OpenShift), never sent as a request.
NEVER_SENT = {("tts.cosyvoice.io", "cosyvoicedeployments/finalizers", "update")}

Rule = tuple[str, str, str]


def shipped() -> list[dict[str, Any]]:
    """The objects that give the operator its rights."""
    files = (PROJECT / "manifests" / "install" / name for name in RULE_FILES)
    return [document for file in files for document in yaml.safe_load_all(file.read_text()) if document]


def granted() -> set[Rule]:
    """Every (group, resource, verb) of the shipped rules."""
    return {
        (group, kind, verb)
        for document in shipped()
        for rule in document.get("rules", ())
        for group in rule["apiGroups"]
        for kind in rule["resources"]
        for verb in rule["verbs"]
    }


def used(request: Request) -> set[Rule]:
    """The rules that a request needed: an apply that made an object needs two."""
    rule = (request.group, request.resource, request.verb)
    made = request.verb == "patch" and request.code == 201
    return {rule, (request.group, request.resource, "create")} if made else {rule}


@pytest.fixture
def limited_proxy(cluster: Cluster, tmp_path: Path) -> Iterator[ApiProxy]:
    """A proxy behind which one is the operator's ServiceAccount and nobody else."""
    apply(cluster, *shipped())
    token = kubectl(cluster, "create", "token", "cosyvoice-operator", "-n", SYSTEM, "--duration=1h").strip()
    proxy = ApiProxy(cluster, tmp_path, token)
    yield proxy
    proxy.close()
    kubectl(cluster, "delete", "namespace", SYSTEM, "--wait=false")


def test_every_rule_is_needed_and_none_is_missing(
    cluster: Cluster, namespace: str, limited_proxy: ApiProxy, start_operator: StartOperator
) -> None:
    proxy = limited_proxy
    operator = start_operator(
        kubeconfig=proxy.kubeconfig, namespace=SYSTEM, lease_name="cosyvoice-operator", blocked_retry=1
    )
    eventually(operator.leading, "the operator leads")
    # Each kind is created, repaired, deleted by hand and made again, in the way of something foreign, and no longer wanted.
    create(cluster, resource(namespace))
    wait_ready(cluster, namespace)
    for kind, name in list(children(cluster, namespace)):
        kubectl(cluster, "label", kind, name, "-n", namespace, "app.kubernetes.io/component=edited", "--overwrite")
        eventually(
            lambda kind=kind, name=name: children(cluster, namespace)[kind, name]["metadata"]["labels"][
                "app.kubernetes.io/component"
            ] == "runtime",
            f"{kind} {name} is repaired",
        )  # fmt: skip
        kubectl(cluster, "delete", kind, name, "-n", namespace)
        eventually(lambda kind=kind, name=name: (kind, name) in children(cluster, namespace), f"{kind} {name} is back")
    wait_ready(cluster, namespace)
    foreign_objects_in_the_way(cluster, namespace)
    unwanted_children(cluster, namespace)
    engines_and_their_claim(cluster, namespace)
    edit(cluster, namespace, {"tiers": [{"name": "other", "backend": "ONNXRuntime"}]})
    eventually(
        lambda: ("Deployment", "hello-cpu") not in children(cluster, namespace), "the old pool is gone", within=60
    )

    refused = [str(request) for request in proxy.requests if request.code == 403]
    assert refused == []
    needed = {rule for request in proxy.requests if request.verb != "discovery" for rule in used(request)}
    assert needed - granted() == set(), "used and not granted"
    assert granted() - NEVER_SENT - needed == set(), "granted and not used"


def foreign_objects_in_the_way(cluster: Cluster, namespace: str) -> None:
    """One of each kind has the name of a child that is then asked for."""
    selector = {"matchLabels": {"app": "a"}}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    foreign = [
        ("apps/v1", "Deployment", "taken-cpu", {"replicas": 0, "selector": selector, "template": template}),
        ("v1", "Service", "taken", {"ports": [{"port": 1}]}),
        ("policy/v1", "PodDisruptionBudget", "taken", {"maxUnavailable": 1, "selector": selector}),
    ]
    objects: list[dict[str, Any]] = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}
        for version, kind, name, spec in foreign
    ]
    objects.append(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "taken-runtime", "namespace": namespace}}
    )
    apply(cluster, *objects)
    create(cluster, resource(namespace, "taken"))
    eventually(
        lambda: condition(read(cluster, namespace, "taken"), "Stalled").get("reason") == "NameConflict", "it is told"
    )


def unwanted_children(cluster: Cluster, namespace: str) -> None:
    """One of each kind is owned by the resource and not (or no longer) part of its plan, as after an upgrade of the operator."""
    owner = read(cluster, namespace)
    extras = []
    for (kind, name), child in children(cluster, namespace, selector="tts.cosyvoice.io/deployment=hello").items():
        if kind == "Deployment":
            continue
        meta = child["metadata"]
        spec = {key: value for key, value in child.get("spec", {}).items() if key not in {"clusterIP", "clusterIPs"}}
        extra = {
            "apiVersion": child["apiVersion"],
            "kind": kind,
            "metadata": {
                "name": f"{name}-old",
                "namespace": namespace,
                "labels": meta["labels"],
                "ownerReferences": meta["ownerReferences"],
            },
        }
        extras.append(extra | ({"spec": spec} if spec else {}))
    assert len(extras) == 3
    assert all(extra["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"] for extra in extras)
    apply(cluster, *extras)
    eventually(
        lambda: not [name for _, name in children(cluster, namespace) if name.endswith("-old")],
        "what is no longer wanted is deleted",
    )


def engines_and_their_claim(cluster: Cluster, namespace: str) -> None:
    """A build and its claim: made, repaired, deleted by hand, in the way of something foreign, and no longer wanted."""

    def builds() -> dict[str, Any]:
        items = get(cluster, "jobs", "-n", namespace, "-l", OURS)["items"]
        return {item["metadata"]["name"]: item for item in items}

    def claims() -> dict[str, Any]:
        items = get(cluster, "persistentvolumeclaims", "-n", namespace, "-l", OURS)["items"]
        return {item["metadata"]["name"]: item for item in items}

    foreign = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "foreign-engines", "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    apply(cluster, foreign)
    spec = {"tiers": [CPU_TIER], "engines": {"cache": {"size": "1Gi"}}}
    create(cluster, resource(namespace, "foreign", **spec))
    eventually(
        lambda: condition(read(cluster, namespace, "foreign"), "Stalled").get("reason") == "NameConflict",
        "the claim in the way is told",
    )
    assert builds() == {}, "nothing is built into a volume of somebody else"
    create(cluster, resource(namespace, "built", **spec))
    (name,) = eventually(
        lambda: [name for name, job in builds().items() if owned_by(job, "built")], "the build is made"
    )
    eventually(lambda: not builds()[name]["spec"]["suspend"], "it is started")
    where = ("-n", namespace)
    kubectl(cluster, "label", "pvc", "built-engines", *where, "app.kubernetes.io/component=edited", "--overwrite")
    component = "app.kubernetes.io/component"
    eventually(lambda: claims()["built-engines"]["metadata"]["labels"][component] == "runtime", "it is repaired")
    for kind, made in (("pvc", "built-engines"), ("job", name)):
        uid = get(cluster, kind, made, *where)["metadata"]["uid"]
        kubectl(cluster, "delete", kind, made, *where)
        eventually(
            lambda kind=kind, made=made, uid=uid: uid
            not in {item["metadata"]["uid"] for item in get(cluster, kind, *where)["items"]} and made in {**builds(), **claims()},
            f"{kind} {made} is back",
        )  # fmt: skip
    # Without its label it isn't the operator's any more.
    kubectl(cluster, "label", "job", name, *where, "app.kubernetes.io/managed-by-")
    eventually(
        lambda: condition(read(cluster, namespace, "built"), "Stalled").get("reason") == "NameConflict",
        "the Job in the way is told",
    )
    kubectl(cluster, "delete", "job", name, *where)
    eventually(builds, "the build is back")
    patch = json.dumps({"spec": {"engines": None}})
    for user in ("built", "foreign"):
        kubectl(cluster, "patch", "cvd", user, *where, "--type=merge", "-p", patch)
    eventually(lambda: not builds() and not claims(), "neither is wanted any more")


def owned_by(job: dict[str, Any], name: str) -> bool:
    """Whether a resource is among the owners of an object."""
    return name in {reference["name"] for reference in job["metadata"].get("ownerReferences", ())}


def test_without_the_crd_it_says_so_and_is_not_ready(
    cluster: Cluster, proxy: ApiProxy, start_operator: StartOperator
) -> None:
    proxy.before(lambda request: Refusal(404, "NotFound") if request.resource == "cosyvoicedeployments" else None)
    operator = start_operator(kubeconfig=proxy.kubeconfig)
    eventually(
        lambda: next(operator.lines("cannot list CosyVoiceDeployments yet (install the CRDs)"), None), "it says so"
    )
    code, body = operator.get("/readyz")
    assert code == 503
    assert "sync" in json.loads(body)["problems"]
    assert operator.get("/healthz")[0] == 200
    proxy.before(None)
    eventually(operator.ready, "it is ready once the CRD is there")
