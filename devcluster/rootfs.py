"""Fills the folders that become an image's layers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from devcluster import packages
from devcluster.errors import DevClusterError, MissingToolError
from devcluster.imagespec import ImageSpec
from devcluster.oci import copy_file
from devcluster.paths import cache_home
from devcluster.progress import Progress

MERGED = ("bin", "sbin", "lib", "lib64")
# Of no use to a program; licences (copyright files) stay.
NEVER = (
    "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian", "usr/share/menu", "usr/share/bug",
    "usr/share/doc/*/changelog*", "usr/share/doc/*/NEWS*", "usr/share/doc/*/README*", "usr/share/doc/*/examples",
    "etc/skel", "etc/cron.d", "etc/logrotate.d",
)  # fmt: skip


def project_files(root: Path) -> Iterator[Path]:
    """The files of a source folder (or the one file) in a fixed order, without caches of Python and tools."""
    if root.is_file():
        yield root
        return
    for path in sorted(root.rglob("*")):
        below = path.relative_to(root).parts
        if path.is_file() and not any(part == "__pycache__" or part.startswith(".") for part in below):
            yield path


def make_system(spec: ImageSpec, project: Path, scratch: Path, progress: Progress) -> None:
    """Fill `scratch/system` with Debian packages, wheels and what the assemble script makes of them."""
    root = scratch / "system"
    site = root / spec.site_packages
    debs = packages.download_debs(spec.debs, progress)
    with progress.step(f"Unpacking {len(debs)} Debian packages for {spec.name}"):
        _skeleton(root)
        _unpack(debs, root, scratch)
        _python_link(root, spec.python)
        _certificates(root)
    if spec.requirements:
        with progress.step(f"Installing the wheels of {spec.requirements}"):
            _install(project / spec.requirements, site, spec.python)
    if spec.assemble:
        wheels = scratch / "wheels"
        with progress.step(f"Assembling {spec.name}") as report:
            wheels.mkdir()
            report("fetching wheels")
            if source := spec.wheels or spec.requirements:
                _download(project / source, wheels, spec.python)
            report(spec.assemble)
            _run([sys.executable, str(project / spec.assemble), str(root), str(wheels)], spec.assemble)
    _exclude(root, NEVER)
    for pattern in _exclude(root, spec.exclude):
        progress.note(f"{spec.name}: exclude {pattern!r} matches nothing (globs as in pathlib, without braces)")
    if spec.bytecode and spec.python:
        with progress.step(f"Compiling Python files of {spec.name}"):
            _compile(root, [site, root / f"usr/lib/python{spec.python}", root / "usr/lib/python3"], spec.python)


def make_project(spec: ImageSpec, project: Path, root: Path) -> None:
    """Fill a folder with the project's own packages and files, links, and the user they run as."""
    root.mkdir(parents=True)
    targets = [(source, f"{spec.site_packages}/{Path(source).name}") for source in spec.packages]
    targets += [(copy.source, copy.target.strip("/")) for copy in spec.copies]
    for source, target in targets:
        origin = project / source
        for file in project_files(origin):
            copy_file(file, root / target / file.relative_to(origin) if origin.is_dir() else root / target)
    for path, link_target in spec.links.items():
        link = root / path.strip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(link_target)
    _users(root, spec.user)
    if spec.bytecode and spec.python:
        _compile(root, [root / target for _, target in targets], spec.python)


def _skeleton(root: Path) -> None:
    """Debian's merged layout, with the mount points that a read-only root needs."""
    for folder in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc", "dev", "proc", "sys", "run", "var/lib",
                   "var/lib/dpkg/status.d", "tmp"):  # fmt: skip
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for name in MERGED:
        (root / name).symlink_to(f"usr/{name}")


def _unpack(debs: Sequence[Path], root: Path, scratch: Path) -> None:
    def extract(deb: Path) -> tuple[Path, str, str]:
        # Old packages still hold /lib and /bin, which would replace the links of the merged layout.
        folder = scratch / "debs" / deb.stem
        folder.parent.mkdir(exist_ok=True)
        _run(["dpkg-deb", "-x", str(deb), str(folder)], deb.name)
        for name in MERGED:
            old = folder / name
            if old.is_dir() and not old.is_symlink():
                shutil.copytree(old, folder / "usr" / name, symlinks=True, dirs_exist_ok=True)
                shutil.rmtree(old)
            elif old.is_symlink():
                old.unlink()
        control = _run(["dpkg-deb", "-f", str(deb)], deb.name)
        return folder, deb.stem.split("_")[0], control

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for folder, package, control in pool.map(extract, debs):
            _run(["cp", "-a", f"{folder}/.", str(root)], package)
            # Vulnerability scanners read the installed packages from here.
            (root / "var/lib/dpkg/status.d" / package).write_text(control)
    shutil.rmtree(scratch / "debs", ignore_errors=True)


def _python_link(root: Path, version: str) -> None:
    link = root / "usr/bin/python3"
    if version and not link.is_symlink():
        link.symlink_to(f"python{version}")


def _certificates(root: Path) -> None:
    """What the package ca-certificates does when it is configured: one file with all authorities."""
    authorities = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    if authorities:
        bundle = root / "etc/ssl/certs/ca-certificates.crt"
        bundle.parent.mkdir(parents=True, exist_ok=True)
        bundle.write_text("".join(path.read_text().rstrip("\n") + "\n" for path in authorities))


def _users(root: Path, user: str) -> None:
    uid, _, gid = user.partition(":")
    (root / "etc").mkdir(parents=True, exist_ok=True)
    shell = "/usr/sbin/nologin"
    (root / "etc/passwd").write_text(f"root:x:0:0:root:/root:{shell}\napp:x:{uid}:{gid or uid}::/tmp:{shell}\n")
    (root / "etc/group").write_text(f"root:x:0:\napp:x:{gid or uid}:\n")


def _install(requirements: Path, site: Path, python: str) -> None:
    """Install wheels with their hashes checked, and nothing that the file does not name."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    # The programs of the wheels would name this machine's Python in their first line.
    if uv:
        # Copied, not linked: an assemble script that strips a library must not strip the one in uv's cache.
        command = [uv, "pip", "install", "--quiet", "--link-mode", "copy", "--python", _interpreter(python)]
    else:
        command = [
            _interpreter(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-compile",
            "--disable-pip-version-check",
        ]
    _run([*command, "--no-deps", "--require-hashes", "--only-binary", ":all:", "--target", str(site),
          "-r", str(requirements)], requirements.name)  # fmt: skip
    shutil.rmtree(site / "bin", ignore_errors=True)
    for left in (".lock", ".gitignore"):
        (site / left).unlink(missing_ok=True)


def _download(requirements: Path, target: Path, python: str) -> None:
    """Fetch wheels with their hashes checked; they stay in the cache for the next build."""
    kept = cache_home() / "wheels"
    kept.mkdir(parents=True, exist_ok=True)
    before = {path.name for path in target.iterdir()}
    _run([_interpreter(python), "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
          "--require-hashes", "--only-binary", ":all:", "--find-links", str(kept), "-d", str(target),
          "-r", str(requirements)], requirements.name)  # fmt: skip
    for wheel in target.iterdir():
        if wheel.name not in before and not (kept / wheel.name).exists():
            shutil.copyfile(wheel, kept / wheel.name)


def _compile(root: Path, folders: Iterable[Path], python: str) -> None:
    existing = [str(folder) for folder in folders if folder.exists()]
    # Checked by nothing at run time: the root is read-only, and dates are not those of the sources.
    _run([_interpreter(python), "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash",
          "-s", str(root), "-p", "/", *existing], "compileall", check=False)  # fmt: skip


def _interpreter(version: str) -> str:
    """A Python of the image's version on this machine: it chooses wheels and writes bytecode that the image reads."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}" or not version:
        return sys.executable
    found = shutil.which(f"python{version}")
    if found is None:
        raise MissingToolError(
            f"the image has Python {version}, and this machine has no python{version}",
            hint=f"sudo apt-get install python{version}",
        )
    return found


def _exclude(root: Path, globs: Iterable[str]) -> list[str]:
    """Remove what the globs match; returns the globs that match nothing."""
    idle = []
    for pattern in globs:
        matches = list(root.glob(pattern.strip("/")))
        if not matches:
            idle.append(pattern)
        for path in matches:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    return idle


def _run(command: Sequence[str], what: str, *, check: bool = True) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and result.returncode != 0:
        raise DevClusterError(f"{what}: {(result.stderr.strip() or result.stdout.strip())[-2000:]}")
    return result.stdout
