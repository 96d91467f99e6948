"""A repository on Hugging Face, spoken to through the hub's own library.

The library lists, authenticates, follows redirects and names errors. Bytes are written by this program: the library's downloader
gives each process a file of its own and removes it when it fails, so a restarted pod would begin at zero. For the same reason
files come over HTTP and not through Xet, which has no byte ranges.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence

from cosyvoice_runtime.fetch.errors import FetchError, Reason
from cosyvoice_runtime.fetch.request import HubSource
from cosyvoice_runtime.fetch.sources.base import (
    CONNECT_SECONDS,
    READ_SECONDS,
    Checksum,
    RemoteFile,
    Stream,
    checked,
    network,
    status_error,
)

# Read when the library is imported. The root is read-only, and a token comes from the Secret or not at all.
os.environ |= {
    "HF_HUB_DISABLE_XET": "1",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_VERBOSITY": "error",
}
os.environ.setdefault("HF_HOME", f"{tempfile.gettempdir()}/huggingface")

import httpx2
from huggingface_hub import HfApi, get_session, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]


class HuggingFaceRepository:
    """The files of one commit."""

    archive = False

    def __init__(self, source: HubSource, token: str | None) -> None:
        self._source = source
        self._token = token
        self._api = HfApi(token=token or False)
        self._host = httpx2.URL(self._api.endpoint).host
        self._commit = source.revision
        self.title = f"huggingFace {source.repo}@{source.revision}"
        self.pinned = source.pinned

    def files(self) -> Sequence[RemoteFile]:
        """What the commit holds. A tag is resolved here, once: all files come from the commit that it names now."""
        with self._translated():
            info = self._api.model_info(
                self._source.repo, revision=self._source.revision, files_metadata=True, timeout=READ_SECONDS
            )
        self._commit = info.sha or self._source.revision
        found = []
        for sibling in info.siblings or ():
            checksum = None
            if sibling.lfs is not None:
                checksum = Checksum("sha256", sibling.lfs.sha256)
            elif sibling.blob_id is not None and sibling.size is not None:
                checksum = Checksum("git-sha1", sibling.blob_id)
            found.append(RemoteFile(sibling.rfilename, sibling.size, checksum))
        return checked(found, self.title)

    @contextlib.contextmanager
    def read(self, file: RemoteFile, offset: int) -> Iterator[Stream]:
        """Open a file at an offset. The token goes to the hub only: the client drops it where it is sent on to storage."""
        headers = build_hf_headers(token=self._token or False) | {"Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        url = hf_hub_url(self._source.repo, file.path, revision=self._commit, endpoint=self._api.endpoint)
        limits = httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
        with self._translated(), get_session().stream("GET", url, headers=headers, timeout=limits) as response:
            hf_raise_for_status(response)
            start = offset if response.status_code == 206 else 0
            yield Stream(start, response.iter_bytes())

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except HfHubHTTPError as error:
            raise self._refused(error) from None
        except httpx2.HTTPError as error:
            raise network(error, self._host) from None

    def _refused(self, error: HfHubHTTPError) -> FetchError:
        status = error.response.status_code
        if isinstance(error, GatedRepoError):
            return self._unauthorized(
                f"it is gated: accept its licence on {self._api.endpoint}/{self._source.repo} with the account of the token"
            )
        if isinstance(error, RevisionNotFoundError):
            return FetchError(
                Reason.NOT_FOUND,
                f"{self.title}: the repository has no such revision; write one of its commits or tags in "
                "spec.model.source.huggingFace.revision",
            )
        if isinstance(error, RemoteEntryNotFoundError):
            return FetchError(
                Reason.NOT_FOUND,
                f"{self.title}: a file that it lists is not there; try again, or take another revision",
            )
        if status in {401, 403} and not (isinstance(error, RepositoryNotFoundError) and status == 403):
            return self._unauthorized(
                "it is private, or not there at all" if not self._token else "the token is refused"
            )
        if isinstance(error, RepositoryNotFoundError):
            return FetchError(
                Reason.NOT_FOUND,
                f"{self.title}: there is no such repository, or the token may not see it; check "
                "spec.model.source.huggingFace.repo",
            )
        return status_error(status, self._host)

    def _unauthorized(self, what: str) -> FetchError:
        step = (
            "its token may have expired or lack read access: put a new one into the Secret that "
            "spec.model.source.huggingFace.tokenSecretRef names"
            if self._token
            else "no token was given: put one into a Secret and name it in spec.model.source.huggingFace.tokenSecretRef"
        )
        return FetchError(Reason.UNAUTHORIZED, f"{self.title}: {what}; {step}")
