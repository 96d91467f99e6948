"""What is installed where: each image holds what it needs, and an install is the same everywhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


def locked(name: str) -> set[str]:
    """Give the names of the distributions in one lock file."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return set(re.findall(r"^([a-z0-9][a-z0-9._-]*)==", text, re.MULTILINE))


def test_the_operators_image_holds_no_machine_learning_library() -> None:
    assert not locked("operator") & {"numpy", "onnxruntime", "torch", "tritonclient", "hibari-tts", "tensorrt"}


def test_the_speech_images_hold_no_kubernetes_client() -> None:
    for image in ("gateway", "cpu", "triton-demo"):
        assert not locked(image) & {"kubernetes", "kopf"}, image


def test_the_gateway_beside_triton_holds_no_inference_library() -> None:
    assert not locked("gateway") & {"onnxruntime", "hibari-tts"}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_each_locked_distribution_has_hashes_and_no_address(lock: Path) -> None:
    text = lock.read_text()
    requirements = re.findall(r"^[a-z0-9].*(?:\n    .*)*", text, re.MULTILINE)
    assert requirements
    assert all("--hash=sha256:" in requirement for requirement in requirements)
    assert "://" not in text
