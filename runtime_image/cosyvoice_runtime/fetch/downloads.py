"""Brings the files of a source into a directory: several at a time, each going on where it stopped, each checked."""

from __future__ import annotations

import hashlib
import logging
import os
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from cosyvoice_runtime.fetch import figures
from cosyvoice_runtime.fetch.cache import WORK
from cosyvoice_runtime.fetch.errors import FetchError, Reason, disk_error
from cosyvoice_runtime.fetch.manifest import CHUNK, ModelFile
from cosyvoice_runtime.fetch.progress import Progress
from cosyvoice_runtime.fetch.sources.base import Checksum, RemoteFile, Source

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Retries:
    """How often in a row a file may fail without a single new byte, and the seconds between tries: doubled each time."""

    attempts: int = 6
    first: float = 1.0
    longest: float = 30.0

    def delay(self, failed: int) -> float:
        """Seconds to wait after so many failures in a row."""
        return min(self.first * 2.0 ** max(failed - 1, 0), self.longest)


def listed(source: Source, retries: Retries) -> Sequence[RemoteFile]:
    """The files of a source, asked for again where that may help."""
    for failed in range(1, retries.attempts):
        try:
            return source.files()
        except FetchError as error:
            if not error.transient:
                raise
            _log.warning("the listing failed and is asked for again", extra={"data": {"reason": error.message}})
            time.sleep(retries.delay(failed))
    return source.files()


class Part:
    """A file being fetched: what is on disk, and its digests, which go on where an earlier process stopped."""

    def __init__(self, path: Path, remote: RemoteFile, progress: Progress) -> None:
        self._path = path
        self._remote = remote
        self._progress = progress
        self.size = 0
        self._hash(remote.checksum)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: what has come is there for the next process, however this one ends.
        self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
        while chunk := self._file.read(CHUNK):
            self._take(chunk)
        progress.correct(self.size)
        if remote.size is not None and self.size > remote.size:
            self.restart()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def complete(self) -> bool:
        """Whether all bytes are there; unknown, hence False, where the source does not tell how many there are."""
        return self.size == self._remote.size

    def write(self, chunk: bytes) -> None:
        """Append bytes."""
        left = memoryview(chunk)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise disk_error(error, self._path) from error
        self._take(chunk)
        self._progress.advance(len(chunk))

    def restart(self) -> None:
        """Throw away what is there."""
        self._progress.correct(-self.size)
        self._file.seek(0)
        self._file.truncate()
        self.size = 0
        self._hash(self._remote.checksum)

    def finish(self, target: Path) -> ModelFile:
        """Check the file and give it its name.

        Raises:
            FetchError: It is not what the source promised.
        """
        wrong = self._wrong()
        if wrong:
            self.restart()
            raise FetchError(Reason.CHECKSUM_MISMATCH, f"{self._remote.path}: {wrong}")
        try:
            os.fsync(self._file.fileno())
            target.parent.mkdir(parents=True, exist_ok=True)
            self._path.rename(target)
        except OSError as error:
            raise disk_error(error, self._path) from error
        return ModelFile(self._remote.path, self.size, self._sha256.hexdigest())

    def _hash(self, checksum: Checksum | None) -> None:
        self._sha256 = hashlib.sha256()
        self._git = hashlib.sha1(usedforsecurity=False)
        if checksum and checksum.algorithm == "git-sha1":
            self._git.update(f"blob {self._remote.size}\0".encode())

    def _take(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self._sha256.update(chunk)
        if self._remote.checksum and self._remote.checksum.algorithm == "git-sha1":
            self._git.update(chunk)

    def _wrong(self) -> str:
        if self._remote.size is not None and self.size != self._remote.size:
            return f"{self.size} bytes came, and the source lists {self._remote.size}"
        checksum = self._remote.checksum
        if checksum is None:
            return ""
        found = (self._git if checksum.algorithm == "git-sha1" else self._sha256).hexdigest()
        if found == checksum.value:
            return ""
        return f"its {checksum.algorithm} is {found}, and the source lists {checksum.value}"


class Downloader:
    """Fetches the files of one source into one directory. Threads end with the process: nothing waits for a server that hangs."""

    def __init__(self, source: Source, folder: Path, progress: Progress, retries: Retries, streams: int = 4) -> None:
        self._source = source
        self._folder = folder
        self._progress = progress
        self._retries = retries
        self._streams = streams
        self._over = threading.Event()

    def fetch(self, remotes: Sequence[RemoteFile]) -> list[ModelFile]:
        """Fetch files; those that are there already are read and checked.

        Raises:
            FetchError: The first that could not be fetched; what has come is kept.
        """
        waiting: queue.SimpleQueue[RemoteFile] = queue.SimpleQueue()
        done: queue.SimpleQueue[ModelFile | Exception] = queue.SimpleQueue()
        # The largest first: they decide how long it takes.
        for remote in sorted(remotes, key=lambda one: one.size or 0, reverse=True):
            waiting.put(remote)
        for number in range(min(self._streams, len(remotes))):
            threading.Thread(target=self._work, args=(waiting, done), name=f"fetch-{number}", daemon=True).start()
        found: list[ModelFile] = []
        try:
            while len(found) < len(remotes):
                outcome = done.get()
                if isinstance(outcome, Exception):
                    raise outcome
                found.append(outcome)
        finally:
            self._over.set()
        return found

    def _work(self, waiting: queue.SimpleQueue[RemoteFile], done: queue.SimpleQueue[ModelFile | Exception]) -> None:
        while not self._over.is_set():
            try:
                remote = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put(self._one(remote))
            except Exception as error:  # noqa: BLE001 - raised again where it is awaited
                done.put(error)

    def _one(self, remote: RemoteFile) -> ModelFile:
        target = self._folder / remote.path
        unfinished = self._folder / WORK / "parts" / remote.path
        if target.exists():
            # It was checked before it got its name. It is read again for its digest, so it is checked again.
            unfinished.parent.mkdir(parents=True, exist_ok=True)
            target.rename(unfinished)
        with Part(unfinished, remote, self._progress) as part:
            failed, fresh = 0, False
            while True:
                before = part.size
                try:
                    self._read(remote, part)
                    return part.finish(target)
                except FetchError as error:
                    if error.reason == Reason.CHECKSUM_MISMATCH and before and not fresh:
                        # What came from an earlier try may be at fault: once more, from the start.
                        fresh = True
                        _log.warning(
                            "fetching a file anew", extra={"data": {"file": remote.path, "reason": error.message}}
                        )
                        continue
                    if not error.transient:
                        raise
                    failed = 0 if part.size > before else failed + 1
                    self._wait(remote, part, error, failed)

    def _read(self, remote: RemoteFile, part: Part) -> None:
        if part.complete:
            return
        with self._source.read(remote, part.size) as stream:
            if stream.offset != part.size:
                part.restart()  # the server does not give parts of a file
            for chunk in stream.chunks:
                if self._over.is_set():
                    raise FetchError(Reason.INTERNAL, "another file could not be fetched")
                part.write(chunk)
                if remote.size is not None and part.size > remote.size:
                    return
        if remote.size is not None and part.size < remote.size:
            raise FetchError(Reason.NETWORK, "the connection ended early", transient=True)

    def _wait(self, remote: RemoteFile, part: Part, error: FetchError, failed: int) -> None:
        have = figures.size(part.size) + (f" of {figures.size(remote.size)}" if remote.size is not None else "")
        if failed >= self._retries.attempts:
            raise FetchError(
                error.reason,
                f"{remote.path}: {error.message}; gave up after {failed} tries without a new byte. {have} are kept, "
                "and the next try goes on there",
            ) from error
        _log.warning(
            "a download broke off and goes on",
            extra={"data": {"file": remote.path, "have": have, "reason": error.message, "failed": failed}},
        )
        self._over.wait(self._retries.delay(failed))
