"""``cosyvoice-operator render``, settings and logs."""

from __future__ import annotations

import json
import logging
import tomllib
from pathlib import Path

import pytest
import yaml

from cosyvoice_operator import __version__
from cosyvoice_operator.__main__ import main
from cosyvoice_operator.kube.lease import LeaseTerms
from cosyvoice_operator.settings import Settings
from cosyvoice_operator.telemetry.logs import JsonFormatter, TextFormatter, about

PROJECT = Path(__file__).parents[3]

RESOURCE = """\
apiVersion: tts.cosyvoice.io/v1alpha1
kind: CosyVoiceDeployment
metadata: {name: hello}
spec:
  model: {family: Demo, source: {embedded: {voice: heart}}}
  tiers:
  - {name: gpu, backend: Triton, gpu: {}, executionProvider: CPU}
  - {name: cpu, backend: ONNXRuntime}
"""
NODES = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: n1, labels: {nvidia.com/gpu.product: NVIDIA-L4}}
  status: {allocatable: {nvidia.com/gpu: "2"}, conditions: [{type: Ready, status: "True"}]}
"""


@pytest.fixture
def resource(tmp_path: Path) -> Path:
    path = tmp_path / "cr.yaml"
    path.write_text(RESOURCE)
    return path


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    path = tmp_path / "nodes.yaml"
    path.write_text(NODES)
    return path


class TestRender:
    def test_it_prints_the_children_in_the_order_in_which_they_are_applied(
        self, resource: Path, nodes: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["render", "-f", str(resource), "--nodes", str(nodes)]) == 0
        children = list(yaml.safe_load_all(capsys.readouterr().out))
        assert {(child["kind"], child["metadata"]["name"]) for child in children} >= {
            ("Service", "hello"),
            ("ServiceAccount", "hello-runtime"),
            ("PodDisruptionBudget", "hello"),
            ("Deployment", "hello-gpu-l4"),
        }

    def test_what_waits_for_an_engine_is_printed_after_the_job_that_builds_it(
        self, resource: Path, nodes: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        resource.write_text(f"{RESOURCE}  engines: {{cache: {{size: 1Gi}}}}\n")
        assert main(["render", "-f", str(resource), "--nodes", str(nodes)]) == 0
        printed = list(yaml.safe_load_all(capsys.readouterr().out))
        kinds = [child["kind"] for child in printed]
        assert kinds[0] == "PersistentVolumeClaim"
        assert kinds[-3:] == ["Job", "Job", "Deployment"], (
            "the CPU tier is not needed now, and is built for all the same"
        )
        engines = {child["metadata"]["labels"]["tts.cosyvoice.io/engine"] for child in printed[-3:-1]}
        assert printed[-1]["spec"]["template"]["metadata"]["labels"]["tts.cosyvoice.io/engine"] in engines

    def test_without_nodes_nothing_gets_a_gpu(self, resource: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["render", "-f", str(resource)]) == 0
        children = list(yaml.safe_load_all(capsys.readouterr().out))
        assert [child["metadata"]["name"] for child in children if child["kind"] == "Deployment"] == ["hello-cpu"]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("kind: ConfigMap\nmetadata: {name: a}\n", "there is no CosyVoiceDeployment in it"),
            ("kind: CosyVoiceDeployment\nspec: {}\n", "document 1: a CosyVoiceDeployment without metadata.name"),
            ("kind: CosyVoiceDeployment\nmetadata: {name: a}\n", "CosyVoiceDeployment a: apiVersion must begin with"),
            ("a: [\n", "not YAML"),
            ("just text\n", "document 1 is not an object"),
            (RESOURCE.replace("Demo", "CosyVoice9"), "CosyVoiceDeployment hello: spec.model.family"),
        ],
    )
    def test_a_file_that_is_no_use_is_named_with_what_is_wrong(
        self, text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "bad.yaml"
        path.write_text(text)
        assert main(["render", "-f", str(path)]) == 1
        told = capsys.readouterr().err
        assert str(path) in told
        assert message in told

    def test_a_file_that_does_not_exist_is_named(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["render", "-f", str(tmp_path / "none.yaml")]) == 1
        assert "none.yaml: No such file" in capsys.readouterr().err


class TestSettings:
    def test_every_setting_is_described(self) -> None:
        assert [name for name, field in Settings.model_fields.items() if not field.description] == []

    def test_they_come_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COSYVOICE_OPERATOR_WORKERS", "3")
        monkeypatch.setenv("COSYVOICE_OPERATOR_IMAGE_CPU", "example.org/cpu:1")
        settings = Settings()
        assert settings.workers == 3
        assert settings.plan_config().images.cpu == "example.org/cpu:1"

    def test_two_replicas_on_one_host_are_two(self) -> None:
        assert Settings().identity != Settings().identity

    def test_a_lease_that_would_be_lost_without_a_fault_is_refused(self) -> None:
        with pytest.raises(ValueError, match="renew deadline"):
            LeaseTerms("ns", "n", "me", duration=10, renew_deadline=10)

    def test_the_version_is_that_of_the_project(self) -> None:
        project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
        assert project["project"]["version"] == __version__


def record(message: str, **extra: object) -> logging.LogRecord:
    logger = logging.getLogger("cosyvoice_operator.engine.workers")
    return logger.makeRecord(logger.name, logging.INFO, "f", 1, message, (), None, extra=extra)


class TestLogs:
    def test_a_line_is_json_and_names_the_resource_that_it_is_about(self) -> None:
        with about("ns/x"):
            line = json.loads(JsonFormatter().format(record("written", child="Deployment/x")))
        assert line["resource"] == "ns/x"
        assert line["message"] == "written"
        assert line["child"] == "Deployment/x"
        assert line["logger"] == "engine.workers"
        assert line["time"].endswith("Z")

    def test_outside_a_reconcile_there_is_no_resource(self) -> None:
        assert "resource" not in json.loads(JsonFormatter().format(record("started")))

    def test_a_line_break_in_a_message_does_not_end_the_line(self) -> None:
        assert "\n" not in JsonFormatter().format(record("a\nb"))

    def test_text_for_a_terminal_says_the_same(self) -> None:
        with about("ns/x"):
            assert "[ns/x] written child=c" in TextFormatter().format(record("written", child="c"))
