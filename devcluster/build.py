"""Builds the Go programs once, into a cache outside the tree, keyed by their sources and flags."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import DevClusterError
from devcluster.locks import exclusive
from devcluster.paths import SOURCE, cache_home
from devcluster.progress import Progress
from devcluster.toolchain import find_go


@dataclass(frozen=True)
class Program:
    """One Go program of this folder.

    Args:
        name: Name of its folder, of the built file and in the cache.
        package: What to build, as `go build` takes it.
        ldflags: Linker flags.
        module_files: Files of a module to keep beside the program: (module, globs below its folder).
    """

    name: str
    package: str = "."
    ldflags: str = "-s -w"
    module_files: tuple[str, tuple[str, ...]] = ("", ())

    @property
    def source(self) -> Path:
        """Folder of the module."""
        return SOURCE / self.name

    def key(self) -> str:
        """Content key of the sources, flags and architecture."""
        digest = hashlib.sha256(f"{platform.machine()}\0{self.package}\0{self.ldflags}\0{self.module_files}".encode())
        for path in sorted(self.source.glob("*")):
            if path.suffix in {".go", ".mod", ".sum"}:
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:16]

    def folder(self) -> Path:
        """Where the built program lies once it is built."""
        return cache_home() / "programs" / f"{self.name}-{self.key()}"


_VERSION = "k8s.io/component-base/version"
KUBE = Program(
    "kube",
    # Without these the server calls itself v0.0.0-master and clients mistrust it.
    ldflags=f"-s -w -X {_VERSION}.gitVersion=v1.37.2 -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=37",
)
KWOK = Program(
    "kwok",
    package="sigs.k8s.io/kwok/cmd/kwok",
    module_files=(
        "sigs.k8s.io/kwok",
        (
            "kustomize/stage/pod/fast/pod-*.yaml",
            "kustomize/stage/node/fast/node-*.yaml",
            "kustomize/stage/node/heartbeat-with-lease/node-*.yaml",
        ),
    ),
)
PAUSE = Program("pause")


def ensure(programs: Sequence[Program], progress: Progress) -> None:
    """Build what the cache does not hold yet, several programs at once.

    Raises:
        MissingToolError: There is no Go.
        DevClusterError: A build failed; the message holds the end of its output.
    """
    missing = [program for program in programs if not program.folder().is_dir()]
    if not missing:
        return
    go = find_go(progress)
    title = f"Building {' and '.join(program.name for program in missing)} (once; minutes, then cached)"
    with progress.step(title) as report, ThreadPoolExecutor() as pool:
        for built in [pool.submit(_build, go, program, report) for program in missing]:
            built.result()


def _build(go: str, program: Program, report: Callable[[str], None]) -> None:
    folder = program.folder()
    with exclusive(folder.with_name(f".{folder.name}.lock")):
        if folder.is_dir():  # another process built it while this one waited
            return
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{program.name}-") as scratch:
            _compile(go, program, Path(scratch) / program.name, report)
            _copy_module_files(go, program, Path(scratch) / "files")
            Path(scratch).chmod(0o755)
            shutil.copytree(scratch, f"{scratch}.done")
        Path(f"{scratch}.done").rename(folder)
        for old in folder.parent.glob(f"{program.name}-*"):
            if old != folder:
                shutil.rmtree(old)


def _compile(go: str, program: Program, target: Path, report: Callable[[str], None]) -> None:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    command = [go, "build", "-v", "-trimpath", "-ldflags", program.ldflags, "-o", str(target), program.package]
    report(f"{program.name}: fetching modules")
    with subprocess.Popen(
        command, cwd=program.source, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        lines: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            report(f"{program.name}: {len(lines)} packages, {lines[-1][:60]}")
    if process.returncode != 0:
        raise DevClusterError(
            f"building {program.name} failed:\n" + "\n".join(lines[-20:]), hint=f"in {program.source}"
        )


def _copy_module_files(go: str, program: Program, target: Path) -> None:
    module, globs = program.module_files
    if not module:
        return
    found = subprocess.run(
        [go, "list", "-m", "-f", "{{.Dir}}", module], cwd=program.source, capture_output=True, text=True, check=True
    )
    target.mkdir()
    for pattern in globs:
        for path in sorted(Path(found.stdout.strip()).glob(pattern)):
            shutil.copyfile(path, target / path.name)
