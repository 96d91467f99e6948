"""The manifest of a model: written last, so that a directory that has a valid one is complete."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

NAME = "manifest.json"
VERSION = 1
CHUNK = 1 << 20


@dataclass(frozen=True)
class ModelFile:
    """A file of a model: path relative to its directory, bytes, digest."""

    path: str
    size: int
    sha256: str


def content_digest(files: Iterable[ModelFile]) -> str:
    """The digest of a model. The same files give the same digest, wherever they came from."""
    listing = sorted([file.path, file.size, file.sha256] for file in files)
    text = json.dumps(listing, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


@dataclass(frozen=True)
class Manifest:
    """What a model consists of and where it came from; `source` holds no secrets, `fetched_at` is ISO 8601 in UTC."""

    family: str
    source: dict[str, Any]
    files: tuple[ModelFile, ...]
    fetched_at: str

    @property
    def digest(self) -> str:
        """Digest of the content."""
        return content_digest(self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def write(self, folder: Path) -> None:
        """Write it durably: a manifest that outlives a crash must not tell of files that did not."""
        document = {
            "version": VERSION,
            "digest": self.digest,
            "family": self.family,
            "source": self.source,
            "files": [{"path": file.path, "bytes": file.size, "sha256": file.sha256} for file in self.files],
            "fetchedAt": self.fetched_at,
            "bytes": self.size,
        }
        with (folder / NAME).open("w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(folder)

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """Read it; None where there is none that is whole and agrees with its own digest."""
        try:
            document = json.loads((folder / NAME).read_bytes())
            files = tuple(ModelFile(one["path"], one["bytes"], one["sha256"]) for one in document["files"])
            manifest = cls(document["family"], document["source"], files, document["fetchedAt"])
            valid = document["version"] == VERSION and document["digest"] == manifest.digest
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return manifest if valid else None


def difference(folder: Path, manifest: Manifest, read: Callable[[int], None] = lambda _: None) -> str | None:
    """The first file that is not as the manifest says; None if all are. `read` is told of bytes as they are read."""
    for file in manifest.files:
        try:
            if (found := (folder / file.path).stat().st_size) != file.size:
                return f"{file.path} has {found} bytes instead of {file.size}"
            if sha256(folder / file.path, read) != file.sha256:
                return f"{file.path} has other bytes than its checksum says"
        except OSError as error:
            return f"{file.path}: {error.strerror}"
    return None


def sha256(path: Path, read: Callable[[int], None] = lambda _: None) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    hashed = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            hashed.update(chunk)
            read(len(chunk))
    return hashed.hexdigest()


def belongs(path: str) -> bool:
    """Whether a path is part of a model.

    Hidden files are what tools keep beside one (`.gitattributes`, caches of the hubs' own downloaders), and a copy of a model
    with or without them is the same model.
    """
    parts = PurePosixPath(path).parts
    return path != NAME and not any(part.startswith(".") or part == "lost+found" for part in parts)


def regular_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files of a model in a directory, in a fixed order: relative path and path. Links to files count as files."""
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder).as_posix()
        if belongs(relative) and path.exists() and stat.S_ISREG(path.stat().st_mode):
            yield relative, path


def sync_folder(folder: Path) -> None:
    """Make names in a directory durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
