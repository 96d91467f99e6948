"""The health check for Argo CD, in the Lua engine that Argo CD runs it in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cosyvoice_operator.api.conditions import ConditionType, Reason
from cosyvoice_operator.api.deployment import CosyVoiceDeployment
from devcluster import Cluster
from tests.cluster import kubectl
from tests.contract.conftest import PROJECT
from tests.contract.programs import lua_health
from tests.contract.resources import refusal

FOLDER = PROJECT / "manifests" / "argocd"
TESTS = yaml.safe_load((FOLDER / "health_test.yaml").read_text())["tests"]


def test_data(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text()))


test_data.__test__ = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("test", TESTS, ids=lambda test: Path(test["inputPath"]).stem)
def test_argo_cd_shows_the_health(test: dict[str, Any]) -> None:
    assert lua_health(FOLDER / "health.lua", test_data(FOLDER / test["inputPath"])) == test["healthStatus"]


def test_every_health_of_argo_cd_that_a_resource_can_have_is_tested() -> None:
    assert {test["healthStatus"]["status"] for test in TESTS} == {"Progressing", "Healthy", "Degraded", "Suspended"}


@pytest.mark.parametrize("path", sorted((FOLDER / "testdata").iterdir()), ids=lambda path: path.stem)
def test_the_objects_could_exist(cluster: Cluster, path: Path) -> None:
    obj = test_data(path)
    parsed = CosyVoiceDeployment.parse(obj)
    created = obj | {"metadata": {"name": obj["metadata"]["name"]}}

    assert refusal(cluster, created) == ""
    for condition in (parsed.status.conditions if parsed.status else None) or ():
        assert condition.type in set(ConditionType)
        assert condition.reason in set(Reason)


def test_the_settings_of_argo_cd_get_exactly_this_check(cluster: Cluster) -> None:
    (settings,) = yaml.safe_load_all(kubectl(cluster, "kustomize", str(FOLDER)))

    assert settings["metadata"]["name"] == "argocd-cm"
    assert settings["data"] == {
        "resource.customizations.health.tts.cosyvoice.io_CosyVoiceDeployment": (FOLDER / "health.lua").read_text()
    }
