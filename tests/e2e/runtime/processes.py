"""Real processes for tests and measurements: gateways on free ports, and a Triton in the root folder of its image."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

PROJECT = Path(__file__).parents[3]
TRITON_IMAGE = PROJECT / "runtime_image/triton-demo/image.toml"


def free_port() -> int:
    """A TCP port on the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Gateway:
    """A gateway process; its log is a file of JSON lines."""

    process: asyncio.subprocess.Process
    port: int
    log: Path
    client: httpx.AsyncClient
    ready_seconds: float = 0.0

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the gateway itself."""
        return self.process.pid

    def workers(self) -> list[psutil.Process]:
        """Its worker processes that are alive."""
        children = psutil.Process(self.pid).children()
        return [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]

    async def status(self) -> dict[str, Any]:
        """Its `/status`."""
        answer = await self.client.get("/status")
        document: dict[str, Any] = answer.json()
        return document

    async def speak(self, text: str, **fields: object) -> httpx.Response:
        """A whole answer of the speech API."""
        return await self.client.post("/v1/audio/speech", json={"input": text, **fields})

    def entries(self) -> list[dict[str, Any]]:
        """The log so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    async def until(self, condition: str, seconds: float = 60.0) -> None:
        """Wait until a probe such as `/readyz` answers 200."""
        await eventually(lambda: self._answers(condition), seconds, f"{condition} of the gateway, see {self.log}")

    async def _answers(self, path: str) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return (await self.client.get(path)).status_code == 200
        return False

    async def stop(self, seconds: float = 90.0) -> int:
        """SIGTERM, and the exit code."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(seconds):
            return await self.process.wait()


async def eventually(condition: Any, seconds: float, what: str) -> None:
    """Wait until an async condition holds; it is asked often, since nothing tells when it changes."""
    deadline = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:g} s still not: {what}")
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def gateway(
    folder: Path, *, wait: bool = True, root: Path | None = None, **settings: object
) -> AsyncIterator[Gateway]:
    """A gateway with settings given without their prefix, for example `workers=2`; killed at the end if it still runs.

    With `root` it is the one in that root folder of an image, else this environment's.
    """
    port = free_port()
    log = folder / f"gateway-{port}.log"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COSYVOICE_")}
    values: dict[str, object] = {"host": "127.0.0.1", "port": port, "workers": 2, "drain_linger_seconds": 1, **settings}
    environment |= {f"COSYVOICE_{name.upper()}": str(value) for name, value in values.items()}
    with log.open("wb") as output:
        begun = time.perf_counter()
        command = [sys.executable if root is None else "/usr/bin/python3.11", "-m", "cosyvoice_runtime"]
        process = await asyncio.create_subprocess_exec(
            *(command if root is None else contained(root, command)),
            env=environment,
            stdout=output,
            stderr=output,
            cwd=PROJECT,
        )
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", timeout=90, limits=limits, trust_env=False
    ) as client:
        server = Gateway(process, port, log, client)
        try:
            if wait:
                await server.until("/readyz")
                server.ready_seconds = time.perf_counter() - begun
            yield server
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@dataclass
class TritonServer:
    """A Triton process in its own mount namespace."""

    root: Path
    log: Path
    http: int = field(default_factory=free_port)
    grpc: int = field(default_factory=free_port)
    metrics: int = field(default_factory=free_port)
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> dict[str, str]:
        """What a gateway needs to find it."""
        return {
            "backend": "triton",
            "triton_url": f"127.0.0.1:{self.grpc}",
            "triton_metrics_url": f"http://127.0.0.1:{self.metrics}/metrics",
        }

    def start(self) -> None:
        """Start it as the image's entry point says, on its free ports, as the image's user where this is root."""
        image = tomllib.loads(TRITON_IMAGE.read_text())
        ports = [f"--http-port={self.http}", f"--grpc-port={self.grpc}", f"--metrics-port={self.metrics}"]
        local = ["--http-address=127.0.0.1", "--metrics-address=127.0.0.1"]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                contained(self.root, [*image["entrypoint"], *local, *ports]),
                env={"PATH": "/usr/bin:/bin", **image["env"], **self.environment},
                stdout=output,
                stderr=output,
            )

    async def ready(self, seconds: float = 90.0) -> None:
        """Wait for its own readiness."""
        async with httpx.AsyncClient(trust_env=False) as client:

            async def answers() -> bool:
                assert self.process is not None
                assert self.process.poll() is None, f"Triton ended, see {self.log}"
                with contextlib.suppress(httpx.TransportError):
                    return (await client.get(f"http://127.0.0.1:{self.http}/v2/health/ready")).status_code == 200
                return False

            await eventually(answers, seconds, f"Triton ready, see {self.log}")

    def stubs(self) -> list[psutil.Process]:
        """The processes that hold the model and are alive."""
        assert self.process is not None
        children = psutil.Process(self.process.pid).children(recursive=True)
        alive = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
        return [child for child in alive if any("triton_python_backend_stub" in part for part in child.cmdline()[:1])]

    def kill(self) -> None:
        """Kill it with what it has started."""
        if self.process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        self.process.kill()
        self.process.wait()


def contained(root: Path, command: Sequence[str]) -> list[str]:
    """A command that runs in an image's root folder as a pod would run it: read-only, with its own /tmp, as the image's user.

    The process that is started becomes the command itself, so that signals reach it; its mounts go with it.
    """
    mounts = (
        'mount --bind "$0" "$0" && for d in proc dev; do mount --rbind /$d "$0/$d" || exit 70; done; '
        'mount -t tmpfs -o mode=1777 tmpfs "$0/tmp" && mount -o remount,bind,ro "$0" && exec "$@"'
    )
    privileged = os.geteuid() == 0
    namespaces = ["unshare", "--mount", *([] if privileged else ["--user", "--map-root-user"])]
    chroot = [
        shutil.which("chroot") or "/usr/sbin/chroot",
        *(["--userspec=10001:10001"] if privileged else []),
        str(root),
    ]
    return [*namespaces, "sh", "-c", mounts, str(root), *chroot, *command]


def namespaces_work() -> bool:
    """Whether this machine lets a process have mounts of its own."""
    extra = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    tool = shutil.which("unshare")
    return tool is not None and subprocess.run([tool, "--mount", *extra, "true"], check=False).returncode == 0


def unpack(archive: Path, target: Path) -> Path:
    """The root folder of an image from its OCI archive."""
    target.mkdir(exist_ok=True)
    target.chmod(0o755)  # the server runs as another user
    with tarfile.open(archive) as tar:

        def blob(digest: str) -> bytes:
            member: Mapping[str, str] | Any = tar.extractfile("blobs/" + digest.replace(":", "/"))
            return bytes(member.read())

        index = tar.extractfile("index.json")
        assert index is not None
        manifest = json.loads(blob(json.load(index)["manifests"][0]["digest"]))
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(blob(layer["digest"]))) as content:
                content.extractall(target, filter="tar")
    return target
