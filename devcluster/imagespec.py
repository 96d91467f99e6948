"""What an image is made of, as its `image.toml` says it: known to the builder and to what fills its layers."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from devcluster.errors import DevClusterError
from devcluster.paths import PROJECT


@dataclass(frozen=True)
class Copy:
    """A file or folder of the project that goes into the image."""

    source: str
    target: str


@dataclass(frozen=True)
class ImageSpec:
    """What an `image.toml` says; all sources are relative to the project's root.

    Args:
        name: Name of the image.
        debs: Debian packages by exact name; no dependency is added.
        requirements: File with the wheels to install, with hashes; no dependency is added.
        wheels: File with wheels that are only fetched, for `assemble`; default: those of `requirements`.
        site: Folder for Python packages; default: where Debian's Python looks for local packages.
        exclude: Globs, relative to the image's root, of what to drop from the system layer.
        packages: Python packages of the project.
        copies: Further files of the project.
        links: Symbolic links: path to target.
        assemble: Script that finishes the system layer: run with the root folder and the folder of wheels.
        entrypoint: What a container runs.
        env: Its environment.
        user: `uid:gid` that it runs as.
        workdir: Its working directory.
        bytecode: Whether Python files are compiled: roots are read-only, so nothing is compiled later.
    """

    name: str
    entrypoint: tuple[str, ...]
    debs: tuple[str, ...] = ()
    requirements: str = ""
    wheels: str = ""
    site: str = ""
    exclude: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    copies: tuple[Copy, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    assemble: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = "10001:10001"
    workdir: str = "/"
    bytecode: bool = True

    @property
    def python(self) -> str:
        """Version of the Python among the Debian packages, for example `3.11`; empty without one."""
        return python_version(self.debs)

    @property
    def site_packages(self) -> str:
        """Folder in the image for Python packages, without the leading slash."""
        default = f"usr/local/lib/python{self.python}/dist-packages"
        return (self.site or default).strip("/")


def read_spec(path: Path) -> ImageSpec:
    """Read an `image.toml`.

    Raises:
        DevClusterError: It cannot be read, lacks a field or has one that is unknown.
    """
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise DevClusterError(f"{path}: {error}") from error
    try:
        copies = tuple(Copy(entry["from"], entry["to"]) for entry in document.pop("copy", []))
        links = {entry["path"]: entry["target"] for entry in document.pop("links", [])}
        frozen: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in document.items()
        }
        if unknown := sorted(set(frozen) - {known.name for known in fields(ImageSpec)}):
            raise DevClusterError(f"{path}: unknown fields {', '.join(unknown)}")
        return ImageSpec(copies=copies, links=links, **frozen)
    except (KeyError, TypeError) as error:
        raise DevClusterError(f"{path}: {error}") from error


def find_specs(project: Path = PROJECT) -> dict[str, Path]:
    """All image descriptions of a project by the name of their image."""
    found = [*project.glob("*/image.toml"), *project.glob("*/*/image.toml")]
    return {read_spec(path).name: path for path in sorted(found) if not path.parts[-2].startswith(".")}


def python_version(debs: Iterable[str]) -> str:
    """Version of the Python among Debian packages, empty without one."""
    found = [match[1] for name in debs if (match := re.fullmatch(r"python(3\.\d+)-minimal", name))]
    return found[0] if found else ""
