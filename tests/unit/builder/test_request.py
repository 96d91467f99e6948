"""A request that cannot be used says which field is wrong, and a path never leaves the cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cosyvoice_runtime.builder.reasons import BuildError, Reason
from cosyvoice_runtime.builder.request import parse
from cosyvoice_runtime.builder.work import parts
from tests.unit.builder.setting import document, of_model


def read(request: dict[str, Any]) -> Any:
    return parse(json.dumps(request))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"version": 2}, "version"),
        ({"key": "../../etc"}, "key"),
        ({"backend": "TensorFlow"}, "backend"),
        ({"target": {"provider": "ROCm"}}, "target.provider"),
        ({"target": {"computeCapability": "sm89"}}, "target.computeCapability"),
        ({"profile": {"precission": "FP16"}}, "profile.precission"),
        ({"profile": {"maxBatchSize": 0}}, "profile.maxBatchSize"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(BuildError, match=field) as caught:
        read(document(**change))

    assert caught.value.reason is Reason.INTERNAL


def test_text_that_is_no_json_is_told() -> None:
    with pytest.raises(BuildError, match="cannot be used"):
        parse("{")


def test_a_model_path_is_relative_to_the_cache_or_absolute(tmp_path: Path) -> None:
    (tmp_path / "models/abc").mkdir(parents=True)

    assert read(of_model("models/abc")).model_dir(tmp_path) == tmp_path / "models/abc"
    assert read(of_model(tmp_path / "models/abc")).model_dir(Path("/nowhere")) == tmp_path / "models/abc"
    assert read(document()).model_dir(tmp_path) is None


def test_a_model_path_that_leaves_the_cache_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    with pytest.raises(BuildError, match="leaves the cache"):
        read(of_model("../other")).model_dir(tmp_path / "cache")


def test_a_model_that_is_not_there_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="models/abc is not there") as caught:
        read(of_model("models/abc")).model_dir(tmp_path)

    assert caught.value.reason is Reason.MISSING_FILE


@pytest.mark.parametrize(
    ("backend", "family", "wanted"),
    [
        ("ONNXRuntime", "Demo", ("onnxruntime",)),
        ("Triton", "Demo", ("onnxruntime",)),
        ("ONNXRuntime", "CosyVoice3", ("onnxruntime",)),
        ("Triton", "CosyVoice3", ("tensorrt", "tensorrt-llm")),
        ("Triton", "CosyVoice2DiT", ("tensorrt", "tensorrt-llm")),
        ("Triton", "CosyVoice2UNet", ("tensorrt", "tensorrt-llm")),
    ],
)
def test_backend_and_family_decide_what_is_run(backend: str, family: str, wanted: tuple[str, ...]) -> None:
    assert parts(read(document(backend=backend, family=family))) == wanted
