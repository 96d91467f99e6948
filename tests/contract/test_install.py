"""Installing by kustomize and by Helm: both give the same objects, a real API server takes them, and they grant what is used."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cosyvoice_operator import __version__, api
from cosyvoice_operator.crdgen.files import CRD_FILE
from cosyvoice_operator.kube.resources import CHILDREN, COSYVOICE_DEPLOYMENT, EVENT, LEASE, WATCHED
from cosyvoice_operator.settings import Settings
from devcluster import Cluster
from devcluster.crds import wait_until_established
from tests.cluster import eventually, get, kubectl
from tests.conftest import ClusterFactory
from tests.contract.conftest import PROJECT
from tests.contract.programs import Helm
from tests.contract.resources import Json, refusal, resource

NAMESPACE = "cosyvoice-system"
INSTALL = PROJECT / "manifests" / "install"
CHART = str(PROJECT / "charts" / "cosyvoice-operator")
CRDS_CHART = str(PROJECT / "charts" / "cosyvoice-operator-crds")
OPERATOR = f"system:serviceaccount:{NAMESPACE}:cosyvoice-operator"

ALL_VALUES = {
    "replicas": 3,
    "image": {"repository": "registry.example.com/operator", "digest": "sha256:" + "0" * 64, "pullPolicy": "Always"},
    "runtimeImages": {
        "cpu": "c:1",
        "gateway": "g:1",
        "triton": "t:1",
        "fetch": "f:1",
        "builder": "b:1",
        "gpuBuilder": "gb:1",
    },
    "logLevel": "DEBUG",
    "settings": {"WORKERS": 32, "PROBES": False, "LOG_STYLE": "text"},
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "imagePullSecrets": [{"name": "registry"}],
    "serviceAccount": {"name": "other", "annotations": {"example.com/role": "x"}},
    "rbac": {"aggregate": False},
    "resources": {"requests": {"cpu": "1"}},
    "podDisruptionBudget": {"enabled": False},
    "podAnnotations": {"prometheus.io/scrape": "true"},
    "podLabels": {"team": "audio"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "infra", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "priorityClassName": "system-cluster-critical",
}


@pytest.fixture(scope="module")
def bare(make_cluster: ClusterFactory) -> Cluster:
    """A cluster of this module's own, on which nothing is installed yet."""
    return make_cluster()


@pytest.fixture(scope="module")
def installed(bare: Cluster) -> Cluster:
    """The same, with the operator installed by kustomize."""
    kubectl(bare, "apply", "--server-side", "-k", str(INSTALL))
    wait_until_established(bare.kubectl, f"{api.PLURAL}.{api.GROUP}")
    return bare


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    """Helm without a cluster."""
    return Helm(tmp_path)


@pytest.fixture(scope="module")
def kustomized(control_plane: Cluster) -> list[Json]:
    """The objects of the kustomization."""
    return list(yaml.safe_load_all(kubectl(control_plane, "kustomize", str(INSTALL))))


def templated(helm: Helm, chart: str = CHART, **values: Any) -> list[Json]:
    """The objects of a chart."""
    file = helm.home / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    text = helm.must("template", "cosyvoice-operator", chart, "--namespace", NAMESPACE, "--values", str(file))
    return [document for document in yaml.safe_load_all(text) if document]


def one(objects: Iterable[Json], kind: str) -> Json:
    """The only object of a kind."""
    (found,) = [obj for obj in objects if obj["kind"] == kind]
    return found


# The two ways give the same


def test_chart_and_kustomization_install_the_same_objects(helm: Helm, kustomized: list[Json]) -> None:
    by_helm = {_name(obj): _plain(obj) for chart in (CHART, CRDS_CHART) for obj in templated(helm, chart)}
    by_kustomize = {_name(obj): _plain(obj) for obj in kustomized if obj["kind"] != "Namespace"}

    assert by_helm == by_kustomize


def test_images_have_the_version_of_the_project(helm: Helm) -> None:
    container = one(templated(helm), "Deployment")["spec"]["template"]["spec"]["containers"][0]
    settings = Settings()
    env = {variable["name"]: variable["value"] for variable in container["env"]}

    assert container["image"] == f"docker.io/local/cosyvoice-operator:{__version__}"
    images = {name for name in Settings.model_fields if name.startswith("image_")}
    assert {name: env[f"COSYVOICE_OPERATOR_{name.upper()}"] for name in images} == settings.model_dump(include=images)


def test_every_variable_of_the_deployment_is_a_setting(helm: Helm) -> None:
    settings = {f"COSYVOICE_OPERATOR_{name.upper()}" for name in Settings.model_fields}
    container = one(templated(helm, **ALL_VALUES), "Deployment")["spec"]["template"]["spec"]["containers"][0]

    assert {variable["name"] for variable in container["env"]} - {"HTTPS_PROXY"} <= settings


def test_no_object_of_the_installation_looks_like_a_child_of_a_resource(helm: Helm, kustomized: list[Json]) -> None:
    managers = {
        obj["metadata"].get("labels", {}).get("app.kubernetes.io/managed-by") for obj in [*kustomized, *templated(helm)]
    }

    assert "cosyvoice-operator" not in managers


# The chart


@pytest.mark.parametrize("chart", [CHART, CRDS_CHART], ids=lambda chart: Path(chart).name)
def test_helm_finds_nothing_wrong_with_the_chart(helm: Helm, chart: str) -> None:
    helm.must("lint", "--strict", chart)


def test_a_misspelt_value_is_refused(helm: Helm) -> None:
    result = helm("template", "x", CHART, "--set", "replica=3")

    assert result.returncode != 0
    assert "additional properties 'replica' not allowed" in result.stderr


def test_images_of_the_runtime_are_not_set_in_two_places(helm: Helm) -> None:
    result = helm("template", "x", CHART, "--set", "settings.IMAGE_CPU=other")

    assert result.returncode != 0
    assert "IMAGE_CPU" in result.stderr


def test_the_values_of_the_test_below_leave_none_out() -> None:
    assert set(ALL_VALUES) == set(yaml.safe_load(Path(CHART, "values.yaml").read_text()))


def test_every_value_reaches_an_object_that_the_api_server_takes(installed: Cluster, helm: Helm) -> None:
    objects = templated(helm, **ALL_VALUES)
    pod = one(objects, "Deployment")["spec"]["template"]
    env = {variable["name"]: variable["value"] for variable in pod["spec"]["containers"][0]["env"]}

    assert env["COSYVOICE_OPERATOR_WORKERS"] == "32"
    assert env["COSYVOICE_OPERATOR_PROBES"] == "false"
    assert pod["spec"]["containers"][0]["image"] == "registry.example.com/operator@sha256:" + "0" * 64
    assert pod["spec"]["serviceAccountName"] == "other"
    assert pod["metadata"]["labels"]["team"] == "audio"
    assert {"PodDisruptionBudget"} & {obj["kind"] for obj in objects} == set()
    renamed = [obj | {"metadata": obj["metadata"] | {"name": f"{obj['metadata']['name']}-2"}} for obj in objects]
    manifest = yaml.safe_dump_all(renamed)
    kubectl(installed, "apply", "--server-side", "--dry-run=server", "-f", "-", stdin=manifest)


def test_the_crd_chart_carries_the_committed_crd_and_keeps_it(helm: Helm) -> None:
    (kept,) = templated(helm, CRDS_CHART)
    (loose,) = templated(helm, CRDS_CHART, keep=False)

    assert kept["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert kept == loose == yaml.safe_load((PROJECT / CRD_FILE).read_text())


def test_helm_installs_and_uninstalls_and_resources_survive_it(make_cluster: ClusterFactory, tmp_path: Path) -> None:
    cluster = make_cluster()
    helm = Helm(tmp_path, cluster.kubeconfig)
    helm.must("upgrade", "--install", "cosyvoice-operator-crds", CRDS_CHART)
    notes = helm.must("upgrade", "--install", "cosyvoice-operator", CHART, "-n", NAMESPACE, "--create-namespace")
    kubectl(cluster, "apply", "-f", str(PROJECT / "manifests" / "samples" / "smallest.yaml"))

    helm.must("uninstall", "cosyvoice-operator", "-n", NAMESPACE)
    helm.must("uninstall", "cosyvoice-operator-crds")

    assert "is not installed yet" not in notes
    assert get(cluster, "cvd", "hello")["spec"] == resource()["spec"]
    assert get(cluster, "deployments", "-n", NAMESPACE)["items"] == []


# The installation


def test_a_kustomized_cluster_takes_resources(installed: Cluster) -> None:
    assert refusal(installed, resource()) == ""


def test_the_operators_pods_pass_the_restricted_profile(installed: Cluster) -> None:
    pods = eventually(lambda: get(installed, "pods", "-n", NAMESPACE)["items"], "pods of the operator are admitted")

    assert {pod["metadata"]["labels"]["app.kubernetes.io/name"] for pod in pods} == {"cosyvoice-operator"}


def test_installing_twice_changes_nothing(installed: Cluster) -> None:
    before = get(installed, "deployment", "cosyvoice-operator", "-n", NAMESPACE)["metadata"]["generation"]

    kubectl(installed, "apply", "--server-side", "-k", str(INSTALL))

    assert get(installed, "deployment", "cosyvoice-operator", "-n", NAMESPACE)["metadata"]["generation"] == before


def test_the_operator_may_do_what_it_does_and_no_more(kustomized: list[Json]) -> None:
    cluster_wide = _grants(obj for obj in kustomized if obj["kind"] == "ClusterRole" and _own(obj))
    in_namespace = _grants(obj for obj in kustomized if obj["kind"] == "Role")

    reads = {(resource.rule_name, verb) for resource in WATCHED for verb in ("list", "watch")}
    writes = {(resource.rule_name, verb) for resource in CHILDREN for verb in ("get", "create", "patch", "delete")}
    ours = {
        (f"{COSYVOICE_DEPLOYMENT.plural}/status.{COSYVOICE_DEPLOYMENT.group}", "patch"),
        (f"{COSYVOICE_DEPLOYMENT.plural}/finalizers.{COSYVOICE_DEPLOYMENT.group}", "update"),
        (EVENT.rule_name, "create"),
    }
    assert cluster_wide == reads | writes | ours
    assert in_namespace == {(LEASE.rule_name, verb) for verb in ("get", "create", "update")}


@pytest.mark.parametrize(
    ("verb", "what", "namespace", "allowed"),
    [
        ("list", "cosyvoicedeployments.tts.cosyvoice.io", "", True),
        ("watch", "nodes", "", True),
        ("patch", "cosyvoicedeployments.tts.cosyvoice.io/status", "tenant", True),
        ("create", "deployments.apps", "tenant", True),
        ("update", "leases.coordination.k8s.io", NAMESPACE, False),
        ("update", "leases.coordination.k8s.io/cosyvoice-operator", NAMESPACE, True),
        ("update", "leases.coordination.k8s.io/cosyvoice-operator", "tenant", False),
        ("patch", "cosyvoicedeployments.tts.cosyvoice.io", "tenant", False),
        ("update", "cosyvoicedeployments.tts.cosyvoice.io", "tenant", False),
        ("get", "secrets", "tenant", False),
        ("create", "pods", "tenant", False),
        ("delete", "namespaces", "", False),
    ],
)
def test_the_api_server_lets_the_operator(
    installed: Cluster, verb: str, what: str, namespace: str, *, allowed: bool
) -> None:
    assert _may(installed, OPERATOR, verb, what, namespace) is allowed


@pytest.mark.parametrize(
    ("role", "verb", "what", "allowed"),
    [
        ("view", "get", "cosyvoicedeployments.tts.cosyvoice.io", True),
        ("view", "create", "cosyvoicedeployments.tts.cosyvoice.io", False),
        ("edit", "create", "cosyvoicedeployments.tts.cosyvoice.io", True),
        ("edit", "patch", "cosyvoicedeployments.tts.cosyvoice.io/scale", True),
        ("edit", "patch", "cosyvoicedeployments.tts.cosyvoice.io/status", False),
        ("admin", "delete", "cosyvoicedeployments.tts.cosyvoice.io", True),
    ],
)
def test_users_may_do_what_their_role_says(
    installed: Cluster, role: str, verb: str, what: str, *, allowed: bool
) -> None:
    kubectl(installed, "create", "rolebinding", f"{role}-user", f"--clusterrole={role}", f"--user={role}", check=False)

    # Roles are aggregated by a controller, some moments after they are made.
    answer = eventually(
        lambda: _may(installed, role, verb, what, "default") is allowed, f"{role} may {verb} {what}: {allowed}"
    )

    assert answer


def _may(cluster: Cluster, user: str, verb: str, what: str, namespace: str) -> bool:
    """Whether the API server's authorizer lets a user do something; `what` is resource.group[/subresource or name]."""
    resource, _, part = what.partition("/")
    plural, _, group = resource.partition(".")
    key = "subresource" if part in {"status", "scale"} else "name"
    attributes = {"verb": verb, "group": group, "resource": plural, "namespace": namespace, key: part}
    groups = ["system:serviceaccounts", "system:authenticated"] if user == OPERATOR else ["system:authenticated"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": attributes},
    }
    answer = cluster.api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def _own(obj: Json) -> bool:
    return str(obj["metadata"]["name"]) == "cosyvoice-operator"


def _grants(roles: Iterable[Json]) -> set[tuple[str, str]]:
    """Pairs of resource.group and verb that roles grant."""
    return {
        (f"{resource}.{group}" if group else resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _name(obj: Json) -> tuple[str, str]:
    return obj["kind"], obj["metadata"]["name"]


_HELMS_OWN = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
    "helm.sh/resource-policy",
}


def _plain(node: Any) -> Any:
    """An object without what Helm adds to it, and without what is then empty."""
    if isinstance(node, dict):
        plain = {key: _plain(value) for key, value in node.items() if key not in _HELMS_OWN}
        return {key: value for key, value in plain.items() if not (key == "annotations" and value == {})}
    return [_plain(value) for value in node] if isinstance(node, list) else node
