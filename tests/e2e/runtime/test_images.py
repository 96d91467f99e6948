"""The images themselves: read-only, as an unprivileged user, with nothing in them that is not needed and all that is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.e2e.runtime.processes import TritonServer, contained, gateway
from tests.e2e.runtime.sound import LONG, SHORT, assert_speech


async def test_the_cpu_image_speaks_on_a_read_only_root_as_nobody_in_particular(cpu_root: Path, tmp_path: Path) -> None:
    async with gateway(tmp_path, root=cpu_root) as server:
        answer = await server.speak(LONG)
        status = await server.status()

        processes = [psutil.Process(server.pid), *server.workers()]
        if os.geteuid() == 0:
            assert {process.uids().real for process in processes} == {10001}
        assert len(processes) == 3
        assert await server.stop() == 0

    assert_speech(answer.content, LONG)
    assert status["executionProvider"] == "CPU"
    # One line for each event, and no warning of any library.
    assert all(line.startswith("{") for line in server.log.read_text().splitlines())


async def test_the_gateway_image_speaks_through_the_triton_image(
    gateway_root: Path, triton: TritonServer, tmp_path: Path
) -> None:
    triton.start()
    await triton.ready()
    async with gateway(tmp_path, root=gateway_root, **triton.settings) as server:
        answer = await server.speak(SHORT)
        assert server.workers() == []

    assert_speech(answer.content, SHORT)
    assert all(line.startswith("{") for line in server.log.read_text().splitlines())


@pytest.mark.parametrize(
    ("image", "absent"),
    [
        ("cpu_root", ("tritonclient", "grpc", "kopf", "kubernetes")),
        ("gateway_root", ("onnxruntime", "hibari", "kopf", "kubernetes")),
    ],
)
def test_an_image_holds_no_library_of_another(
    image: str, absent: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    root: Path = request.getfixturevalue(image)

    packages = {path.name for path in (root / "usr/local/lib/python3.11/dist-packages").iterdir()}

    assert not packages & set(absent)
    assert "cosyvoice_runtime" in packages
    assert not list(root.glob("usr/bin/*sh"))


def test_triton_holds_no_package_manager_and_an_unprivileged_user_can_read_all_of_it(triton_root: Path) -> None:
    assert not list(triton_root.glob("usr/bin/apt*")) + list(triton_root.glob("usr/bin/pip*"))
    command = contained(triton_root, ["/usr/bin/bash", "-c", "exec 3</models/cosyvoice/config.pbtxt && ! : >/usr/x"])
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
