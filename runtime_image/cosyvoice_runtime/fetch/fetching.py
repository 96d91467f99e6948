"""From a request to a model in the cache: finds it, or fetches, checks and publishes it."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cosyvoice_runtime.fetch import archive, families, figures
from cosyvoice_runtime.fetch import manifest as manifests
from cosyvoice_runtime.fetch.cache import WORK, Known, ModelCache
from cosyvoice_runtime.fetch.downloads import Downloader, Retries, listed
from cosyvoice_runtime.fetch.errors import FetchError, Reason
from cosyvoice_runtime.fetch.manifest import Manifest, ModelFile
from cosyvoice_runtime.fetch.progress import Progress
from cosyvoice_runtime.fetch.request import FetchRequest
from cosyvoice_runtime.fetch.result import Result
from cosyvoice_runtime.fetch.sources import open_source
from cosyvoice_runtime.fetch.sources.base import RemoteFile, Source, fingerprint

RESERVE_BYTES = 64 * 10**6
"""Room that must be left beside a model: for its manifest, and for file systems that need some to live."""
_POINTER = b"version https://git-lfs"


def free_space(folder: Path) -> int:
    """Bytes that this process may still write to a directory's file system."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


@dataclass(frozen=True)
class Fetcher:
    """Fetches models into one cache. Clock, free space and patience are passed in."""

    cache: ModelCache
    progress: Progress
    environment: Mapping[str, str]
    now: Callable[[], dt.datetime]
    free_space: Callable[[Path], int] = free_space
    retries: Retries = field(default_factory=Retries)

    def fetch(self, request: FetchRequest) -> Result:
        """Bring a model into the cache, or find it there, or look at it where it is mounted.

        Raises:
            FetchError: It is not there and cannot be brought; what has come is kept for the next try.
        """
        if request.mounted is not None:
            return self._inspect(request, request.mounted)
        source = open_source(request.source, self.environment)
        self.cache.prepare()
        key = request.source.key
        known = self.cache.known(key)
        if source.pinned and known is not None and (found := self._reuse(request, known)):
            return found
        with self.cache.lock(key, waiting=lambda: self.progress.enter("waiting for another pod")) as locked:
            known = self.cache.known(key)
            if source.pinned and known is not None and (found := self._reuse(request, known)):
                return found
            self.progress.enter("listing")
            remotes = listed(source, self.retries)
            print_of = fingerprint(remotes)
            if known is not None and known.fingerprint == print_of and (found := self._reuse(request, known)):
                return found
            if not source.archive:
                families.check(request.family, {remote.path: remote.size for remote in remotes}, source.title)
            workspace = self.cache.workspace(key, print_of, locked=locked is True)
            files = self._bring(source, remotes, workspace)
            return self._publish(request, workspace, files, print_of, source.title)

    def _reuse(self, request: FetchRequest, known: Known) -> Result | None:
        folder = self.cache.folder(known.digest)
        manifest = Manifest.read(folder)
        if manifest is None or manifest.digest != known.digest:
            return None
        self.progress.enter("verifying", manifest.size)
        if manifests.difference(folder, manifest, self.progress.advance) is not None:
            return None
        families.check(request.family, {file.path: file.size for file in manifest.files}, f"models/{folder.name}")
        return Result.of(manifest, f"models/{folder.name}", reused=True, message="the cache has it already")

    def _bring(self, source: Source, remotes: Sequence[RemoteFile], workspace: Path) -> list[ModelFile]:
        packed = workspace / WORK / "archive"
        folder = packed if source.archive else workspace
        total = None if any(remote.size is None for remote in remotes) else sum(remote.size or 0 for remote in remotes)
        self._check_room(folder, total, source.title)
        self.progress.enter("fetching", total, done=0)
        files = Downloader(source, folder, self.progress, self.retries).fetch(remotes)
        if not source.archive:
            return files
        for path in workspace.iterdir():  # of an earlier try that was stopped while it unpacked
            if path.name != WORK:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        archive.unpack(packed / remotes[0].path, workspace, self.progress, self._free)
        return self._hashed(workspace)

    def _check_room(self, folder: Path, total: int | None, title: str) -> None:
        if total is None:
            return
        there = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
        missing, free = max(total - there, 0), self._free(self.cache.models)
        if missing > free:
            raise FetchError(
                Reason.DISK_FULL,
                f"{title} needs {figures.size(total)}, of which {figures.size(there)} are there; the cache has "
                f"{figures.size(free)} left. Enlarge its claim by {figures.size(missing - free)} or more",
            )

    def _free(self, folder: Path) -> int:
        return max(self.free_space(folder) - RESERVE_BYTES, 0)

    def _publish(
        self, request: FetchRequest, workspace: Path, files: Sequence[ModelFile], print_of: str, title: str
    ) -> Result:
        _check_files(request.family, workspace, files, title)
        ordered = tuple(sorted(files, key=lambda file: file.path))
        fetched_at = self.now().isoformat(timespec="seconds")
        manifest = Manifest(request.family, request.source.record, ordered, fetched_at)
        self.progress.enter("publishing", None, done=0)
        # Before the model is there: whoever dies in between leaves a pointer to nothing, not a model that nothing points to.
        self.cache.remember(request.source.key, Known(manifest.digest, print_of))
        reused = self.cache.publish(workspace, manifest, self.progress.advance)
        message = "another source had brought the same files" if reused else ""
        return Result.of(manifest, f"models/{self.cache.folder(manifest.digest).name}", reused=reused, message=message)

    def _inspect(self, request: FetchRequest, folder: Path) -> Result:
        title = request.source.title
        if not folder.is_dir():
            raise FetchError(Reason.NOT_FOUND, f"{title} has no folder at its path; check spec.model.source")
        files = self._hashed(folder)
        if not files:
            raise FetchError(
                Reason.NOT_FOUND, f"{title} is empty at its path; put the model there, or correct the path"
            )
        _check_files(request.family, folder, files, title)
        manifest = Manifest(
            request.family, request.source.record, tuple(files), self.now().isoformat(timespec="seconds")
        )
        return Result.of(manifest, str(folder), reused=False)

    def _hashed(self, folder: Path) -> list[ModelFile]:
        with _readable(folder):
            found = [(relative, path, path.stat().st_size) for relative, path in manifests.regular_files(folder)]
            self.progress.enter("verifying", sum(size for _, _, size in found))
            return [
                ModelFile(relative, size, manifests.sha256(path, self.progress.advance))
                for relative, path, size in found
            ]


def _check_files(family: str, folder: Path, files: Sequence[ModelFile], title: str) -> None:
    families.check(family, {file.path: file.size for file in files}, title)
    for file in files:
        if file.size < 1024 and (folder / file.path).read_bytes().startswith(_POINTER):
            raise FetchError(
                Reason.MISSING_FILE,
                f"{title}: {file.path} is a pointer of Git LFS ({file.size} bytes), not the file; run git lfs pull where the "
                "model was cloned, and copy it again",
            )


@contextlib.contextmanager
def _readable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        name = Path(error.filename).name if error.filename else folder.name
        raise FetchError(
            Reason.INTERNAL,
            f"{name} cannot be read: {error.strerror}; the pod runs as user 10001, which must be able to read it",
        ) from error
