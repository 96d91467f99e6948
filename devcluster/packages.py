"""What this tool needs from the distribution: programs to run here, and packages to unpack into images."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import DevClusterError, MissingToolError
from devcluster.locks import exclusive
from devcluster.paths import cache_home
from devcluster.progress import Progress

CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Tool:
    """A program and the Debian package that has it; CNI plugins lie in folders of their own."""

    program: str
    package: str
    cni: bool = False

    def find(self) -> Path | None:
        """Path of the program, None when it is not installed."""
        if self.cni:
            return next((folder / self.program for folder in CNI_FOLDERS if (folder / self.program).exists()), None)
        found = shutil.which(self.program, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")
        return Path(found) if found else None


OPENSSL = Tool("openssl", "openssl")
IP = Tool("ip", "iproute2")
CONTAINERD = Tool("containerd", "containerd")
PTP = Tool("ptp", "containernetworking-plugins", cni=True)
FOR_CONTROL_PLANE = (OPENSSL,)
FOR_ROUTES = (IP,)
FOR_NODE = (
    IP,
    CONTAINERD,
    Tool("ctr", "containerd"),
    Tool("runc", "runc"),
    PTP,
    Tool("host-local", "containernetworking-plugins", cni=True),
    Tool("nft", "nftables"),
    Tool("unshare", "util-linux"),
)
FOR_IMAGES = (Tool("dpkg-deb", "dpkg"),)


def ensure(tools: Iterable[Tool], progress: Progress) -> None:
    """Install the tools that are missing, as root on Debian and its relatives.

    Raises:
        MissingToolError: Something is missing and this process may not, or cannot, install it.
    """
    missing = [tool for tool in tools if tool.find() is None]
    if not missing:
        return
    packages = sorted({tool.package for tool in missing})
    programs = ", ".join(sorted({tool.program for tool in missing}))
    command = f"apt-get install -y --no-install-recommends {' '.join(packages)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise MissingToolError(f"missing programs: {programs}", hint=f"on Debian or Ubuntu: sudo {command}")
    with progress.step(f"Installing {' '.join(packages)}"), exclusive(cache_home() / ".apt.lock"):
        if _apt(command.split()[1:]).returncode != 0:
            _update()
            result = _apt(command.split()[1:])
            if result.returncode != 0:
                raise MissingToolError(f"{command} failed: {result.stderr.strip()[-1000:]}", hint=f"run: {command}")
    if still := [tool.program for tool in missing if tool.find() is None]:
        raise MissingToolError(f"{', '.join(still)} not found though {' '.join(packages)} is installed")


def download_debs(names: Sequence[str], progress: Progress) -> list[Path]:
    """Debian packages by exact name, without their dependencies, from the cache or the distribution's mirror.

    Raises:
        DevClusterError: A package is unknown, or cannot be fetched.
    """
    if not names:
        return []
    ensure(FOR_IMAGES, progress)
    folder = cache_home() / "debs"
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder / ".lock"):
        files = _locate(names)
        if all((folder / file).exists() for file in files):
            return [folder / file for file in files]
        with progress.step(f"Downloading {len(names)} Debian packages"):
            missing = [name for name, file in zip(names, files, strict=True) if not (folder / file).exists()]
            result = _apt(["download", *missing], folder)
            if result.returncode != 0 and os.geteuid() == 0:  # the lists may name versions that the mirror dropped
                _update()
                files = _locate(names)
                result = _apt(["download", *missing], folder)
            if result.returncode != 0:
                raise DevClusterError(f"apt-get download failed: {result.stderr.strip()[-1000:]}")
        return [folder / file for file in files]


def _locate(names: Sequence[str]) -> list[str]:
    """File names of packages, in the order of the names."""
    located: dict[str, str] = {}
    for attempt in (1, 2):
        result = _apt(["download", "--print-uris", *names])
        for line in result.stdout.splitlines():
            file = line.split()[1]
            located[file.split("_")[0]] = file
        if all(name in located for name in names):
            return [located[name] for name in names]
        if attempt == 1 and os.geteuid() == 0:
            _update()
    unknown = sorted(set(names) - set(located))
    raise DevClusterError(
        f"apt knows no package {', '.join(unknown)}: {result.stderr.strip()[-500:]}",
        hint="run: sudo apt-get update; the image descriptions name packages of Debian 12",
    )


def _update() -> None:
    result = _apt(["update"])
    if result.returncode != 0:
        raise DevClusterError(f"apt-get update failed: {result.stderr.strip()[-1000:]}")


def _apt(arguments: Sequence[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    # As root, apt would fetch as a user that may not write into this folder, and warn about it.
    command = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", *arguments]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    try:
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise MissingToolError("apt-get not found", hint="images are made of Debian packages: use Debian 12") from error
