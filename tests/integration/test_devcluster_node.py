"""The real node: pods really run, reach what they should, and find the GPUs that it claims."""

from __future__ import annotations

import json
import subprocess
import urllib.request

import pytest

from devcluster.images import build_image
from devcluster.imagespec import read_spec
from devcluster.progress import ConsoleProgress
from tests.cluster import FIXTURES, apply, eventually, get, kubectl

NAMESPACE = "node-test"


def pod(name, image, *, gpus=0):
    """A pod that the restricted profile admits."""
    resources = {"cpu": "200m", "memory": "128Mi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "hello"}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "hello",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "resources": {"limits": resources},
                    "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


@pytest.fixture(scope="module")
def image():
    project = FIXTURES / "hello"
    return build_image(read_spec(project / "image.toml"), ConsoleProgress(), project)


@pytest.fixture(scope="module")
def reference(real_cluster, image):
    return real_cluster.load_image(image.archive)


@pytest.fixture(scope="module")
def service_ip(real_cluster, reference):
    """ClusterIP of a Service with one pod, in a namespace under the restricted profile."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    apply(real_cluster, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "hello", "namespace": NAMESPACE},
        "spec": {"selector": {"app": "hello"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    apply(real_cluster, service, pod("plain", reference))
    kubectl(real_cluster, "-n", NAMESPACE, "wait", "--for=condition=Ready", "pod/plain", "--timeout=60s")
    yield get(real_cluster, "-n", NAMESPACE, "service", "hello")["spec"]["clusterIP"]
    kubectl(real_cluster, "delete", "namespace", NAMESPACE, "--wait=false")


def test_a_pod_answers_through_its_service_on_this_machine(service_ip):
    assert eventually(lambda: fetch(f"http://{service_ip}/"), "an answer") == "hello from plain as 10001"


def test_a_pod_reaches_a_service_whose_only_pod_is_itself(service_ip):
    assert fetch(f"http://{service_ip}/fetch/{service_ip}") == "hello from plain as 10001"


def test_a_pod_reaches_another_pod_through_a_service(real_cluster, reference, service_ip):
    apply(real_cluster, pod("second", reference))
    kubectl(real_cluster, "-n", NAMESPACE, "wait", "--for=condition=Ready", "pod/second", "--timeout=60s")
    address = get(real_cluster, "-n", NAMESPACE, "pod", "second")["status"]["podIP"]

    def seen():
        answers = {fetch(f"http://{address}:8080/fetch/{service_ip}") for _ in range(8)}
        return answers == {"hello from plain as 10001", "hello from second as 10001"}

    eventually(seen, "answers from both pods")
    kubectl(real_cluster, "-n", NAMESPACE, "delete", "pod", "second", "--wait=true")


def test_a_pod_reaches_the_api_server_with_its_token(service_ip):
    assert json.loads(fetch(f"http://{service_ip}/api"))["gitVersion"].startswith("v1.37.")


def test_logs_and_exec_go_through_the_kubelet(real_cluster, service_ip):
    fetch(f"http://{service_ip}/")
    assert "GET /" in kubectl(real_cluster, "-n", NAMESPACE, "logs", "plain")
    assert kubectl(real_cluster, "-n", NAMESPACE, "exec", "plain", "--", "greet", "-c", "print(6 * 7)") == "42\n"


def test_python_in_an_image_finds_its_bytecode(real_cluster, service_ip):
    program = "import hello, json; print(json.__cached__, __import__('os').path.exists(hello.__cached__))"
    printed = kubectl(real_cluster, "-n", NAMESPACE, "exec", "plain", "--", "greet", "-c", program)
    assert printed == "/usr/lib/python3.11/json/__pycache__/__init__.cpython-311.pyc True\n"


def test_two_gpus_serve_two_pods_and_the_third_waits(real_cluster, reference, service_ip):
    names = [f"gpu-{number}" for number in range(3)]
    apply(real_cluster, *(pod(name, reference, gpus=1) for name in names))

    def phases():
        pods = [get(real_cluster, "-n", NAMESPACE, "pod", name) for name in names]
        found = sorted(found["status"]["phase"] for found in pods)
        return pods if found == ["Pending", "Running", "Running"] else None

    pods = eventually(phases, "two pods run and one waits")
    waiting = next(found for found in pods if found["status"]["phase"] == "Pending")
    assert "Insufficient nvidia.com/gpu" in waiting["status"]["conditions"][0]["message"]
    kubectl(real_cluster, "-n", NAMESPACE, "delete", "pod", *names, "--wait=true")


def test_two_pods_share_a_volume_of_the_default_storage_class(real_cluster, reference, service_ip):
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "shared", "namespace": NAMESPACE},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    writer, reader = pod("writer", reference), pod("reader", reference)
    for made, mount in ((writer, {"mountPath": "/cache"}), (reader, {"mountPath": "/engine", "subPath": "engines/a"})):
        made["spec"]["volumes"] = [{"name": "cache", "persistentVolumeClaim": {"claimName": "shared"}}]
        made["spec"]["containers"][0]["volumeMounts"] = [{"name": "cache"} | mount]
    apply(real_cluster, claim, writer)
    kubectl(real_cluster, "-n", NAMESPACE, "wait", "--for=condition=Ready", "pod/writer", "--timeout=60s")
    write = "import os; os.makedirs('/cache/engines/a'); open('/cache/engines/a/plan', 'w').write('fast')"
    kubectl(real_cluster, "-n", NAMESPACE, "exec", "writer", "--", "greet", "-c", write)
    apply(real_cluster, reader)
    kubectl(real_cluster, "-n", NAMESPACE, "wait", "--for=condition=Ready", "pod/reader", "--timeout=60s")
    read = "print(open('/engine/plan').read())"
    assert kubectl(real_cluster, "-n", NAMESPACE, "exec", "reader", "--", "greet", "-c", read) == "fast\n"
    kubectl(real_cluster, "-n", NAMESPACE, "delete", "pod", "writer", "reader", "--wait=true")
    kubectl(real_cluster, "-n", NAMESPACE, "delete", "pvc", "shared", "--wait=true")


def test_the_node_looks_like_one_with_an_l4(real_cluster):
    node = get(real_cluster, "node", "node-real")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "2"
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-L4"
    assert node["metadata"]["labels"]["nvidia.com/gpu.memory"] == "23034"


def test_no_component_listens_beyond_loopback_and_the_node_address(real_cluster):
    pids = {str(process.pid) for process in real_cluster.state.processes.values()}
    listening = subprocess.run(["ss", "-Hltnup"], capture_output=True, text=True, check=True).stdout.splitlines()
    ours = [line.split()[4] for line in listening if any(f"pid={pid}," in line for pid in pids)]
    assert len(ours) >= 8
    assert {address.rsplit(":", 1)[0] for address in ours} == {"127.0.0.1", "10.244.0.1"}


def test_a_loaded_image_is_not_loaded_again(real_cluster, image, reference):
    assert real_cluster.load_image(image.archive) == reference
