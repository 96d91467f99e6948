"""Where models live, and how one gets there: whole or not at all, whoever else fetches or dies at the same time.

models/<digest>/                 complete: its manifest is valid
models/<source>.tmp-<pod uid>/   being fetched, renamed when complete; `.fetch/` inside holds unfinished files
models/<digest>.bad-<pod uid>/   was not valid, moved aside until its successor is there
models/.sources/<source>.json    which model a source led to last
models/.locks/<source>           held by the one who fetches that source; the others wait

Locks save a second download where the file system has them. Nothing relies on them: fetchers write to directories of their own,
and only one rename to a digest succeeds.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cosyvoice_runtime.fetch import manifest as manifests
from cosyvoice_runtime.fetch.errors import disk_error
from cosyvoice_runtime.fetch.manifest import Manifest

_log = logging.getLogger(__name__)

LEFTOVER_SECONDS = 24 * 3600.0
"""What has not changed for a day has no fetcher any more."""
ABANDONED_SECONDS = 600.0
"""Where locks do not work: a fetcher that wrote nothing for this long is taken to be dead. Reads time out long before."""
WORK = ".fetch"
_LEFTOVER = re.compile(r"([0-9a-f]{16})\.(tmp|bad)-.+")


@dataclass(frozen=True)
class Known:
    """What a source led to the last time it was fetched."""

    digest: str
    fingerprint: str


class ModelCache:
    """The models of one cache, seen from one pod; `now` is seconds since the epoch."""

    def __init__(self, root: Path, pod_uid: str, now: Callable[[], float]) -> None:
        self.models = root / "models"
        self._pod_uid = pod_uid
        self._now = now

    def prepare(self) -> None:
        """Make the directories, and remove what fetchers left behind a day ago.

        Raises:
            FetchError: The cache cannot be written.
        """
        try:
            for folder in (self.models, self.models / ".sources", self.models / ".locks"):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(error, self.models) from error
        for path in self.models.iterdir():
            if (found := _LEFTOVER.fullmatch(path.name)) and self._idle(path) > LEFTOVER_SECONDS:
                with self.lock(found[1], wait=False) as held:
                    if held is not False or found[2] == "bad":
                        _log.info("removing a leftover", extra={"data": {"folder": path.name}})
                        shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def lock(self, key: str, *, wait: bool = True, waiting: Callable[[], None] = lambda: None) -> Iterator[bool | None]:
        """Hold the lock of a source until the end of the block or of the process.

        Yields:
            True: held. False: another holds it. None: this file system has no locks.
        """
        with (self.models / ".locks" / key).open("a") as file:
            yield _flock(file, wait=wait, waiting=waiting)

    def workspace(self, key: str, fingerprint: str, *, locked: bool) -> Path:
        """The directory to fetch a source into: with what this pod, or one that died, has fetched of it before.

        Args:
            key: Of the source.
            fingerprint: Of the source's listing. What was fetched of another listing is thrown away.
            locked: Whether no other fetcher of the source can be alive.
        """
        own = self.models / f"{key}.tmp-{self._pod_uid}"
        others = [path for path in self.models.glob(f"{key}.tmp-*") if path != own]
        if not locked:
            others = [path for path in others if self._idle(path) > ABANDONED_SECONDS]
        others.sort(key=_bytes_in, reverse=True)
        for other in others:
            with contextlib.suppress(OSError):  # another fetcher was faster
                if own.exists():
                    shutil.rmtree(other)
                else:
                    other.rename(own)
        mark = own / WORK / "fingerprint"
        if not (mark.exists() and mark.read_text() == fingerprint):
            shutil.rmtree(own, ignore_errors=True)
            mark.parent.mkdir(parents=True)
            mark.write_text(fingerprint)
        return own

    def known(self, key: str) -> Known | None:
        """What a source led to the last time."""
        try:
            document = json.loads((self.models / ".sources" / f"{key}.json").read_bytes())
            return Known(document["digest"], document["fingerprint"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def remember(self, key: str, known: Known) -> None:
        """Keep what a source led to."""
        path = self.models / ".sources" / f"{key}.json"
        draft = path.with_suffix(f".tmp-{self._pod_uid}")
        draft.write_text(json.dumps({"version": 1, "digest": known.digest, "fingerprint": known.fingerprint}))
        draft.rename(path)

    def folder(self, digest: str) -> Path:
        """Where the model of a digest is, or would be."""
        return self.models / digest.removeprefix("sha256:")[:16]

    def publish(self, workspace: Path, manifest: Manifest, read: Callable[[int], None]) -> bool:
        """Make a fetched model visible under its digest.

        Args:
            workspace: Holds all files of the manifest.
            manifest: Is written last.
            read: Told of bytes read, where another's copy has to be checked.

        Returns:
            Whether a valid one was there already; then it stays, and the workspace goes.
        """
        for unfinished in (workspace / WORK).iterdir():
            if unfinished.is_dir():
                shutil.rmtree(unfinished)
        manifest.write(workspace)
        target = self.folder(manifest.digest)
        while True:
            try:
                workspace.rename(target)
            except OSError as error:
                if error.errno not in {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}:
                    raise disk_error(error, target) from error
            else:
                # Only now: a workspace that loses its mark is thrown away by the next fetcher.
                shutil.rmtree(target / WORK, ignore_errors=True)
                manifests.sync_folder(self.models)
                return False
            existing = Manifest.read(target)
            wrong = "it has no valid manifest"
            if existing is not None and existing.digest == manifest.digest:
                wrong = manifests.difference(target, existing, read) or ""
            if not wrong:
                shutil.rmtree(workspace)
                return True
            _log.warning("replacing a damaged model", extra={"data": {"folder": target.name, "reason": wrong}})
            bad = target.with_name(f"{target.name}.bad-{self._pod_uid}")
            with contextlib.suppress(FileNotFoundError):  # another pod moved it aside
                target.rename(bad)
            shutil.rmtree(bad, ignore_errors=True)

    def _idle(self, folder: Path) -> float:
        """Seconds since something in a directory changed."""
        changed = 0.0
        for path in (folder, *folder.rglob("*")):
            with contextlib.suppress(OSError):
                changed = max(changed, path.lstat().st_mtime)
        return self._now() - changed


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.lstat().st_size
    return total


def _flock(file: IO[str], *, wait: bool, waiting: Callable[[], None]) -> bool | None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not wait:
            return False
        waiting()
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        _log.warning(
            "the cache's file system has no locks; a model may be fetched twice, and is kept once",
            extra={"data": {"reason": os.strerror(error.errno or 0)}},
        )
        return None
    return True
