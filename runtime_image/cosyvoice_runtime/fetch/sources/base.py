"""What every source offers, whatever protocol it speaks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, Protocol

from cosyvoice_runtime.fetch.errors import FetchError, Reason
from cosyvoice_runtime.fetch.manifest import belongs

CONNECT_SECONDS = 15.0
READ_SECONDS = 60.0
"""A server that sends nothing for this long is taken to be lost: the read is tried again where it stopped."""
READ_CHUNK = 1 << 16
"""What a library hands over at once, in bytes, and may lose when the connection breaks."""


@dataclass(frozen=True)
class Checksum:
    """What the source says that a file hashes to; `git-sha1` is the name of a blob in Git."""

    algorithm: Literal["sha256", "git-sha1"]
    value: str


@dataclass(frozen=True)
class RemoteFile:
    """A file at its source: `size` in bytes, None where only the transfer tells; `tag` changes when the content does."""

    path: str
    size: int | None
    checksum: Checksum | None = None
    tag: str = ""


@dataclass(frozen=True)
class Stream:
    """The bytes of a file from `offset` on."""

    offset: int
    chunks: Iterable[bytes]


class Source(Protocol):
    """One pinned model at one place. Everything raises FetchError, with `transient` where another try may help."""

    @property
    def title(self) -> str:
        """How messages name it."""

    @property
    def pinned(self) -> bool:
        """Whether it can never mean other files than it does now."""

    @property
    def archive(self) -> bool:
        """Whether its one file is an archive of the model."""

    def files(self) -> Sequence[RemoteFile]:
        """All its files."""

    def read(self, file: RemoteFile, offset: int) -> AbstractContextManager[Stream]:
        """Open a file at an offset. A server that cannot do that gives the file from its start."""


def checked(files: Iterable[RemoteFile], title: str) -> list[RemoteFile]:
    """Leave out what is no part of a model.

    Raises:
        FetchError: Nothing is left, or a path leads out of the model's directory.
    """
    kept = [file for file in files if belongs(file.path)]
    for file in kept:
        if not safe(file.path):
            raise FetchError(Reason.INTERNAL, f"{title} lists {file.path!r}, which leads out of the model's directory")
    if not kept:
        raise FetchError(Reason.NOT_FOUND, f"{title} has no files; check its name, revision and path")
    return kept


def safe(path: str) -> bool:
    """Whether a relative path stays in the directory it is relative to."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\0" not in path and "\\" not in path


def fingerprint(files: Iterable[RemoteFile]) -> str:
    """A digest of a listing: equal as long as the source has the same files."""
    listing = sorted([file.path, file.size or -1, file.checksum.value if file.checksum else file.tag] for file in files)
    return hashlib.sha256(json.dumps(listing).encode()).hexdigest()


def network(error: BaseException, host: str) -> FetchError:
    """A connection that could not be made or broke: worth another try, unless the certificate is at fault."""
    text = f"{error} {error.__cause__ or ''} {error.__context__ or ''}"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return FetchError(
            Reason.NETWORK,
            f"the certificate of {host} is not trusted; mount a bundle with your authority and name it in SSL_CERT_FILE",
        )
    return FetchError(Reason.NETWORK, f"{host}: {type(error).__name__}", transient=True)


def status_error(status: int, host: str) -> FetchError:
    """An answer that is no file and that the source has no better words for."""
    transient = status >= 500 or status in {408, 425, 429}
    return FetchError(Reason.NETWORK, f"{host} answered {status}", transient=transient)
