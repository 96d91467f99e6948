"""Gateways and a Triton as real processes, on free ports of the loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from devcluster.images import load_source
from devcluster.progress import ConsoleProgress
from tests.e2e.runtime.processes import Gateway, TritonServer, gateway, namespaces_work, unpack


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cpu(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """A gateway with ONNX Runtime in two workers, shared by a module."""
    async with gateway(tmp_path_factory.mktemp("cpu"), tier="cpu", pool="cpu", log_level="info") as server:
        yield server


def image_root(name: str, factory: pytest.TempPathFactory) -> Path:
    """The root folder of an image, built if need be."""
    if not namespaces_work():
        pytest.skip("this machine gives no mount namespaces; run as root")
    return unpack(load_source(name, ConsoleProgress()).archive, factory.mktemp(name))


@pytest.fixture(scope="session")
def triton_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root folder of the Triton image."""
    return image_root("cosyvoice-triton-demo", tmp_path_factory)


@pytest.fixture(scope="session")
def cpu_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root folder of the CPU image."""
    return image_root("cosyvoice-runtime-cpu", tmp_path_factory)


@pytest.fixture(scope="session")
def gateway_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root folder of the gateway's image."""
    return image_root("cosyvoice-runtime-gateway", tmp_path_factory)


@pytest.fixture
def triton(triton_root: Path, tmp_path: Path) -> Iterator[TritonServer]:
    """A Triton of its own for a test that hurts it; started by the test."""
    server = TritonServer(triton_root, tmp_path / "triton.log")
    yield server
    server.kill()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gpu(
    triton_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Gateway, TritonServer]]:
    """A gateway in front of a Triton, shared by a module."""
    folder = tmp_path_factory.mktemp("gpu")
    server = TritonServer(triton_root, folder / "triton.log")
    server.start()
    try:
        await server.ready()
        async with gateway(folder, tier="gpu", pool="gpu-nvidia-l4", **server.settings) as front:
            yield front, server
    finally:
        server.kill()
