"""Unpacks an archive that a stranger may have made: only plain files, only inside the directory, only as much as there is room for."""

from __future__ import annotations

import contextlib
import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from cosyvoice_runtime.fetch import figures
from cosyvoice_runtime.fetch.errors import FetchError, Reason, disk_error
from cosyvoice_runtime.fetch.manifest import CHUNK, belongs
from cosyvoice_runtime.fetch.progress import Progress
from cosyvoice_runtime.fetch.sources.base import safe

MOST_FILES = 20_000
MOST_BYTES = 256 * 10**9
"""More than any model; what an archive unpacks to is known only while it is unpacked."""

_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError)


@dataclass(frozen=True)
class Member:
    """An entry of an archive that is no directory; `kind` says what it is if not a plain file."""

    path: str
    size: int
    kind: str
    open: Callable[[], IO[bytes]]


def unpack(archive: Path, target: Path, progress: Progress, free_space: Callable[[Path], int]) -> None:
    """Unpack an archive into an empty directory. If all is in one folder, that folder is the model.

    Args:
        archive: A .tar, .tar.gz, .tgz, .tar.zst or .zip file; the name tells.
        target: An empty directory.
        progress: Is told of bytes written.
        free_space: Gives the bytes that can still be written to a directory's file system.

    Raises:
        FetchError: It is damaged, not safe, or too large.
    """
    progress.enter("unpacking", None, done=0)
    seen: set[str] = set()
    total = 0
    try:
        with _members(archive) as members:
            for member in members:
                _check(member, archive.name, seen)
                total += member.size
                if len(seen) > MOST_FILES or total > MOST_BYTES:
                    raise FetchError(
                        Reason.INTERNAL,
                        f"{archive.name} unpacks to more than {MOST_FILES} files or {figures.size(MOST_BYTES)}; that is no model",
                    )
                if belongs(member.path):
                    _room(member, archive.name, free_space(target))
                    _write(member, target / member.path, progress)
    except _DAMAGED as error:
        raise _damaged(archive.name, type(error).__name__) from error
    _lift(target)


@contextlib.contextmanager
def _members(archive: Path) -> Iterator[Iterator[Member]]:
    name = archive.name.lower()
    if name.endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            yield _zipped(zipped)
    elif name.endswith(".tar.zst"):
        from backports import zstd  # noqa: PLC0415 - only here

        try:
            with zstd.ZstdFile(archive) as raw, tarfile.open(fileobj=raw, mode="r|") as packed:
                yield _packed(packed)
        except zstd.ZstdError as error:
            raise _damaged(archive.name, type(error).__name__) from error
    elif name.endswith((".tar", ".tar.gz", ".tgz")):
        with tarfile.open(archive, mode="r|" if name.endswith(".tar") else "r|gz") as packed:
            yield _packed(packed)
    else:
        raise FetchError(
            Reason.INTERNAL,
            f"{archive.name} is no .tar, .tar.gz, .tar.zst or .zip by its name; pack the model as one of these",
        )


def _damaged(name: str, what: str) -> FetchError:
    return FetchError(
        Reason.CHECKSUM_MISMATCH,
        f"{name} has the checksum that was asked for and cannot be unpacked ({what}); pack it anew and write the new sha256",
    )


def _packed(packed: tarfile.TarFile) -> Iterator[Member]:
    for entry in packed:
        if entry.isdir():
            continue
        kind = "" if entry.isreg() else "a link" if entry.issym() or entry.islnk() else "a device"

        def opened(entry: tarfile.TarInfo = entry) -> IO[bytes]:
            file = packed.extractfile(entry)
            if file is None:
                raise tarfile.ReadError(entry.name)
            return file

        yield Member(_plain(entry.name), entry.size, kind, opened)


def _zipped(zipped: zipfile.ZipFile) -> Iterator[Member]:
    for entry in zipped.infolist():
        if entry.is_dir():
            continue
        mode = entry.external_attr >> 16
        kind = "a link" if mode & 0o170000 == 0o120000 else "encrypted" if entry.flag_bits & 1 else ""
        yield Member(_plain(entry.filename), entry.file_size, kind, lambda entry=entry: zipped.open(entry))  # type: ignore[misc]


def _plain(name: str) -> str:
    return name.removeprefix("./")


def _check(member: Member, name: str, seen: set[str]) -> None:
    problem = member.kind and f"is {member.kind}"
    if not safe(member.path):
        problem = "leads out of the model's directory"
    elif member.path in seen:
        problem = "is there twice"
    if problem:
        raise FetchError(
            Reason.INTERNAL,
            f"{name}: {member.path!r} {problem}; pack plain files with relative paths only, for example with tar --dereference",
        )
    seen.add(member.path)


def _room(member: Member, name: str, free: int) -> None:
    if member.size > free:
        raise FetchError(
            Reason.DISK_FULL,
            f"{member.path} of {name} needs {figures.size(member.size)} and the cache has {figures.size(free)} left; "
            f"enlarge its claim by {figures.size(member.size - free)} or more",
        )


def _write(member: Member, path: Path, progress: Progress) -> None:
    with member.open() as source:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            target = path.open("xb")
        except OSError as error:
            raise disk_error(error, path) from error
        with target:
            while chunk := source.read(CHUNK):
                try:
                    target.write(chunk)
                except OSError as error:
                    raise disk_error(error, path) from error
                progress.advance(len(chunk))


def _lift(target: Path) -> None:
    """Move the content of a single folder up, again and again: archives are often packed from one folder above the model."""
    while len(found := [path for path in target.iterdir() if not path.name.startswith(".")]) == 1 and found[0].is_dir():
        lifted = found[0].rename(target / ".lifted")
        for path in list(lifted.iterdir()):
            path.rename(target / PurePosixPath(path.name))
        shutil.rmtree(lifted)
