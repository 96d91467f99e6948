"""Every sample is taken by the API server as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from cosyvoice_operator.api.deployment import CosyVoiceDeployment
from devcluster import Cluster
from tests.contract.conftest import PROJECT
from tests.contract.resources import refusal, resource

SAMPLES = sorted(path for path in (PROJECT / "manifests" / "samples").glob("*.yaml") if path.stem != "kustomization")


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_is_accepted(cluster: Cluster, path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        assert refusal(cluster, document) == ""
        CosyVoiceDeployment.parse(document)


def test_all_samples_are_in_the_kustomization() -> None:
    listed = yaml.safe_load((PROJECT / "manifests" / "samples" / "kustomization.yaml").read_text())["resources"]

    assert sorted(listed) == [path.name for path in SAMPLES]


def test_the_smallest_sample_is_the_smallest_resource() -> None:
    assert yaml.safe_load((PROJECT / "manifests" / "samples" / "smallest.yaml").read_text()) == resource()


@pytest.mark.parametrize(
    "path", [Path("charts/cosyvoice-operator/templates/NOTES.txt"), Path("docs/api-reference.md")], ids=str
)
def test_the_resource_that_is_told_to_newcomers_is_the_smallest(path: Path) -> None:
    told = re.search(r"( *)apiVersion: tts.*?voice: heart\n", (PROJECT / path).read_text(), re.DOTALL)

    assert told is not None
    assert yaml.safe_load(told[0]) == resource()
