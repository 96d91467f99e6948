"""The manifest of an engine directory: written last, so that a directory that has a valid one is complete.

Serving pods check it before they load anything; it needs nothing but the standard library.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from cosyvoice_runtime.builder.reasons import BuildError, Reason

NAME = "manifest.json"
VERSION = 1
_CHUNK = 1 << 20


@dataclass(frozen=True)
class FileEntry:
    """A file of an engine: its path relative to the directory, its bytes and its digest."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """A manifest that was read; `document` is all of it."""

    key: str
    files: tuple[FileEntry, ...]
    document: dict[str, Any]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)

    @property
    def request(self) -> dict[str, Any]:
        """What was asked for: backend, family, model, target, profile."""
        found: dict[str, Any] = self.document.get("request", {})
        return found


def regular_files(folder: Path) -> Iterator[Path]:
    """All regular files of a directory in a fixed order, without the manifest; symbolic links are left out."""
    for path in sorted(folder.rglob("*")):
        if stat.S_ISREG(path.lstat().st_mode) and path.relative_to(folder).as_posix() != NAME:
            yield path


def digest(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()


def entries(folder: Path) -> tuple[FileEntry, ...]:
    """Every regular file of a directory with its size and digest."""
    return tuple(
        FileEntry(path.relative_to(folder).as_posix(), path.stat().st_size, digest(path))
        for path in regular_files(folder)
    )


def write(folder: Path, document: dict[str, Any]) -> None:
    """Write it to disk, beyond the caches of this node, and make it appear at once and whole."""
    temporary = folder / f".{NAME}"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(document, file, ensure_ascii=False, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.chmod(0o644)
    temporary.rename(folder / NAME)


def read(folder: Path) -> Manifest:
    """Read a manifest, without looking at the files.

    Raises:
        BuildError: CorruptEngine, when there is none or it cannot be used.
    """
    path = folder / NAME
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        version = document["version"]
        if version != VERSION:
            raise BuildError(
                Reason.CORRUPT_ENGINE,
                f"{path} has version {version}, this program reads {VERSION}; build the engine again",
            )
        files = tuple(FileEntry(str(one["path"]), int(one["bytes"]), str(one["sha256"])) for one in document["files"])
        return Manifest(str(document["key"]), files, document)
    except FileNotFoundError:
        raise _corrupt(f"{path} is not there, so the engine was never finished") from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise _corrupt(f"{path} cannot be read: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise _corrupt(f"{path} has no usable {error}") from None


def verify(folder: Path) -> Manifest:
    """Read a manifest and every byte of the files that it names.

    Raises:
        BuildError: CorruptEngine, with the file and what is wrong with it.
    """
    manifest = read(folder)
    for entry in manifest.files:
        relative = PurePosixPath(entry.path)
        path = folder / relative
        if relative.is_absolute() or ".." in relative.parts:
            raise _corrupt(f"{folder / NAME} names {entry.path}, which is outside the directory")
        try:
            size = path.stat().st_size
            if size != entry.size:
                raise _corrupt(f"{path} has {size} bytes in place of {entry.size}")
            if digest(path) != entry.sha256:
                raise _corrupt(f"{path} has changed since it was built (its SHA-256 differs)")
        except OSError as error:
            raise _corrupt(f"{path} cannot be read: {error.strerror}") from None
    return manifest


def _corrupt(what: str) -> BuildError:
    return BuildError(Reason.CORRUPT_ENGINE, f"{what}; remove it and build it again")
