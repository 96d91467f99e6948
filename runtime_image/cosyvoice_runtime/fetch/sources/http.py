"""One archive behind an address, with nothing but the standard library."""

from __future__ import annotations

import base64
import contextlib
import http.client
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from cosyvoice_runtime.fetch.errors import FetchError, Reason
from cosyvoice_runtime.fetch.request import HTTPSource
from cosyvoice_runtime.fetch.sources.base import (
    READ_CHUNK,
    READ_SECONDS,
    Checksum,
    RemoteFile,
    Stream,
    network,
    status_error,
)


class HTTPArchive:
    """An archive that is known by its digest. Proxies are those of the environment, authorities those of OpenSSL."""

    pinned = True
    archive = True

    def __init__(self, source: HTTPSource) -> None:
        self._source = source
        parts = urllib.parse.urlsplit(source.url)
        self._host = parts.hostname or ""
        self._login = urllib.parse.unquote(parts.netloc.rpartition("@")[0])
        self._url = urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self.name = PurePosixPath(parts.path).name or "archive"
        self.title = f"http {parts.scheme}://{self._host}{parts.path}"

    def files(self) -> Sequence[RemoteFile]:
        """The archive. Its size is asked for with a GET of one byte: a signed address allows no other method."""
        with self._open("bytes=0-0") as response:
            length = response.headers.get("Content-Length")
            if response.status == 206:
                length = response.headers.get("Content-Range", "").rpartition("/")[2]
        size = int(length) if length and length.isdigit() else None
        return [RemoteFile(self.name, size, Checksum("sha256", self._source.sha256))]

    @contextlib.contextmanager
    def read(self, file: RemoteFile, offset: int) -> Iterator[Stream]:
        """Open the archive at an offset; at its start where its size is unknown, since then nobody knows what is missing."""
        with self._open(f"bytes={offset}-" if offset and file.size is not None else None) as response:
            start = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
            yield Stream(int(start[1]) if start else 0, iter(lambda: response.read1(READ_CHUNK), b""))

    @contextlib.contextmanager
    def _open(self, span: str | None) -> Iterator[http.client.HTTPResponse]:
        request = urllib.request.Request(self._url, headers={"Accept-Encoding": "identity"})  # noqa: S310 - the CRD allows http and https only
        if span:
            request.add_header("Range", span)
        if self._login:
            # Not repeated when the server sends us elsewhere.
            credentials = base64.b64encode(self._login.encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {credentials}")
        try:
            with urllib.request.urlopen(request, timeout=READ_SECONDS) as response:  # noqa: S310
                yield response
        except urllib.error.HTTPError as error:
            raise self._refused(error.code) from None
        except (urllib.error.URLError, http.client.HTTPException, ssl.SSLError, TimeoutError, ConnectionError) as error:
            raise network(error, self._host) from None

    def _refused(self, status: int) -> FetchError:
        if status in {401, 403}:
            return FetchError(
                Reason.UNAUTHORIZED,
                f"{self.title}: the server answered {status}; a signed address may have expired: write a new one in "
                "spec.model.source.http.url",
            )
        if status in {404, 410}:
            return FetchError(
                Reason.NOT_FOUND, f"{self.title}: the server answered {status}; check spec.model.source.http.url"
            )
        return status_error(status, self._host)
