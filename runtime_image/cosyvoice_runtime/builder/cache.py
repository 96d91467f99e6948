"""Where engines live, and how one gets there: whole or not at all, whoever else builds or dies at the same time.

engines/<key>/                  complete: its manifest is valid
engines/<key>.tmp-<pod uid>/    being written, renamed when complete
engines/<key>.bad-<pod uid>/    was not valid, moved aside until its successor is there
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cosyvoice_runtime.builder import manifest as manifests
from cosyvoice_runtime.builder.manifest import Manifest
from cosyvoice_runtime.builder.reasons import BuildError, Reason
from cosyvoice_runtime.builder.request import ENGINE_KEY

_log = logging.getLogger(__name__)

LEFTOVER_SECONDS = 24 * 3600.0
"""A build takes an hour at most; what has not changed for a day has no builder any more."""

_LEFTOVER = re.compile(ENGINE_KEY[1:-1] + r"\.(?:tmp|bad)-.+")


class EngineCache:
    """The engines of one cache, seen from one pod."""

    def __init__(self, root: Path, pod_uid: str) -> None:
        self._engines = root / "engines"
        self._pod_uid = pod_uid

    def folder(self, key: str) -> Path:
        """Where the engine of a key is, or would be."""
        return self._engines / key

    def prepare(self, now: float) -> None:
        """Make the directory, and remove what other pods left behind a day ago and this pod before it was restarted.

        Args:
            now: Seconds since the epoch.

        Raises:
            BuildError: The cache cannot be written.
        """
        try:
            self._engines.mkdir(parents=True, exist_ok=True)
            probe = self._engines / f".probe-{self._pod_uid}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            full = error.errno in {errno.ENOSPC, errno.EDQUOT}
            raise BuildError(
                Reason.DISK_FULL if full else Reason.INTERNAL,
                f"{self._engines} cannot be written by user {os.getuid()}: {error.strerror}; "
                + (
                    "make the volume larger, or remove engines that nothing uses"
                    if full
                    else "see the claim's access mode"
                ),
            ) from None
        for path in self._engines.iterdir():
            if _LEFTOVER.fullmatch(path.name) and (
                path.name.endswith(f"-{self._pod_uid}") or now - newest_change(path) > LEFTOVER_SECONDS
            ):
                _log.warning("removing what an earlier build left behind", extra={"data": {"path": str(path)}})
                remove_tree(path)

    def find(self, key: str) -> Manifest | None:
        """The engine of a key, if it is complete and every byte of it is right. One that is not is moved aside."""
        if not self.folder(key).exists():
            return None
        try:
            return _verified(self.folder(key), key)
        except BuildError as error:
            _log.warning(
                "the engine in the cache cannot be used", extra={"data": {"key": key, "reason": error.message}}
            )
        return self._move_aside(key)

    @contextlib.contextmanager
    def writing(self, key: str) -> Iterator[Path]:
        """A new directory to write an engine to; gone at the end unless it was completed."""
        folder = self._engines / f"{key}.tmp-{self._pod_uid}"
        folder.mkdir()
        try:
            yield folder
        finally:
            remove_tree(folder)
            remove_tree(self._aside(key))

    def complete(self, key: str, folder: Path, document: dict[str, Any]) -> tuple[Manifest, bool]:
        """Make a written directory the engine of its key.

        Args:
            key: Of the engine.
            folder: From :meth:`writing`, with all files in place.
            document: The manifest, but for the list of files.

        Returns:
            The engine that the key has now, and whether another pod made it first.
        """
        open_to_readers(folder)
        flush(folder)
        files = [{"path": one.path, "bytes": one.size, "sha256": one.sha256} for one in manifests.entries(folder)]
        manifests.write(folder, document | {"files": files})
        flush_directory(folder)
        while True:
            try:
                # Onto a name that does not exist or an empty directory; a complete engine is never replaced.
                folder.rename(self.folder(key))
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise
                if (theirs := self.find(key)) is not None:
                    return theirs, True
            else:
                flush_directory(self._engines)
                return manifests.read(self.folder(key)), False

    def remove(self, key: str) -> bool:
        """Remove the engine of a key; false when there is none.

        It gets a name that no reader knows first, so that none ever sees half of it.
        """
        aside = self._aside(key)
        try:
            self.folder(key).rename(aside)
        except FileNotFoundError:
            return False
        remove_tree(aside)
        flush_directory(self._engines)
        return True

    def _move_aside(self, key: str) -> Manifest | None:
        """Give a bad engine another name. If another pod put a good one there meanwhile, it is put back and returned."""
        aside = self._aside(key)
        remove_tree(aside)
        with contextlib.suppress(FileNotFoundError):
            self.folder(key).rename(aside)
            with contextlib.suppress(BuildError, OSError):
                found = _verified(aside, key)
                aside.rename(self.folder(key))
                return found
        return None

    def _aside(self, key: str) -> Path:
        return self._engines / f"{key}.bad-{self._pod_uid}"


def _verified(folder: Path, key: str) -> Manifest:
    found = manifests.verify(folder)
    if found.key != key:
        raise BuildError(Reason.CORRUPT_ENGINE, f"{folder} holds the engine {found.key}")
    return found


def newest_change(folder: Path) -> float:
    """When anything in a directory was last changed, in seconds since the epoch."""
    newest = 0.0
    for path in (folder, *folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError):
            newest = max(newest, path.lstat().st_mtime)
    return newest


def remove_tree(folder: Path) -> None:
    """Remove a directory if it is there. What cannot be removed is told, and stays for the next build."""
    if folder.exists():
        if folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
        else:
            folder.unlink()
        if folder.exists():
            _log.warning("cannot be removed", extra={"data": {"path": str(folder)}})


def open_to_readers(folder: Path) -> None:
    """Let pods that run as other users read it, whatever mask this one has (Triton's image has a user of its own)."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | (0o755 if path.is_dir() else 0o644))


def flush(folder: Path) -> None:
    """Write all files and directories to disk: a rename may survive a lost node while the data that it names does not."""
    for path in manifests.regular_files(folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    for path in folder.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            flush_directory(path)
    flush_directory(folder)


def flush_directory(folder: Path) -> None:
    """Write a directory's names to disk. Some network file systems refuse that, and then do it by themselves."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)
