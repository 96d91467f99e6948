"""Builders in their own read-only roots: the CPU pod's image builds the default engine itself, the larger one all others too."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.runtime.conftest import image_root
from tests.e2e.runtime.processes import TritonServer, contained, gateway
from tests.e2e.runtime.sound import SHORT, assert_speech
from tests.unit.builder.setting import KEY, Builder, document

# The image has no shell: Python starts what a Job and then an init container would run.
PROGRAM = """
import json, subprocess, sys
base = [sys.executable, "-m", "cosyvoice_runtime.builder"]
answers = [subprocess.run(base + list(rest), stdout=subprocess.PIPE) for rest in (["build"], ["build"], ["verify", sys.argv[1]])]
print(json.dumps([json.loads(answer.stdout.splitlines()[-1]) for answer in answers]))
"""


@pytest.fixture(scope="module")
def builder_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_root("cosyvoice-builder", tmp_path_factory)


def build_twice_and_verify(root: Path, request: dict[str, Any]) -> list[dict[str, Any]]:
    environment = {
        "COSYVOICE_BUILD_REQUEST": json.dumps(request),
        "COSYVOICE_CACHE": "/tmp/cache",
        "COSYVOICE_PORT": "0",
    }
    done = subprocess.run(
        contained(root, ["/usr/bin/python", "-c", PROGRAM, f"/tmp/cache/engines/{request['key']}"]),
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], **environment},
    )
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def test_the_cpu_image_builds_the_engine_that_it_serves_from(cpu_root: Path) -> None:
    built, again, verified = build_twice_and_verify(cpu_root, document())

    assert (built["outcome"], built["reused"]) == ("Succeeded", False), built
    assert (again["outcome"], again["reused"]) == ("Succeeded", True)
    assert (verified["outcome"], verified["key"]) == ("Succeeded", built["key"])


def test_the_cpu_image_says_which_image_converts(cpu_root: Path) -> None:
    refused, _, _ = build_twice_and_verify(cpu_root, document(profile={"precision": "INT8"}))

    assert (refused["outcome"], refused["reason"]) == ("Failed", "Internal")
    assert "cosyvoice-builder" in refused["message"]


def test_the_builder_image_converts(builder_root: Path) -> None:
    lost, _, _ = build_twice_and_verify(builder_root, document(profile={"precision": "INT8"}))

    # It comes as far as the comparison, which is what the conversion of this voice to 7 bits does not survive.
    assert (lost["outcome"], lost["reason"]) == ("Failed", "AccuracyLost")


async def test_triton_and_its_gateway_serve_from_one_engine(triton: TritonServer, tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    assert builder.run(document(backend="Triton"))[0] == 0
    mounted = triton.root / "engine"
    shutil.copytree(builder.engines / KEY, mounted)
    try:
        triton.environment["COSYVOICE_ENGINE_DIR"] = "/engine"
        triton.start()
        await triton.ready()
        async with gateway(tmp_path, engine_dir=builder.engines / KEY, **triton.settings) as server:
            answer = await server.speak(SHORT)
            status = await server.status()
    finally:
        triton.kill()
        shutil.rmtree(mounted)

    assert_speech(answer.content, SHORT)
    assert status["engineKey"] == KEY


def test_triton_refuses_the_engine_of_another_backend(triton: TritonServer, tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    assert builder.run(document(backend="ONNXRuntime"))[0] == 0
    mounted = triton.root / "engine"
    shutil.copytree(builder.engines / KEY, mounted)
    try:
        triton.environment["COSYVOICE_ENGINE_DIR"] = "/engine"
        triton.start()
        assert triton.process is not None
        assert triton.process.wait(timeout=60) != 0
    finally:
        triton.kill()
        shutil.rmtree(mounted)

    assert "was built for backend ONNXRuntime, but this pod serves Triton" in triton.log.read_text()
