"""A repository on ModelScope, spoken to through the hub's own library.

`modelscope-hub` is what the large `modelscope` package itself uses to talk to the hub. It lists, authenticates and names errors;
bytes are written by this program, as for the other sources.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

# Read when the library is imported. What is worth another try is decided in one place, for all sources alike.
os.environ |= {"MODELSCOPE_LOG_LEVEL": "ERROR", "MODELSCOPE_REPO_TREE_PAGE_MAX_ATTEMPTS": "1"}

import requests
from modelscope_hub import HubApi, HubConfig
from modelscope_hub.errors import (
    APIError,
    AuthenticationError,
    HubError,
    NetworkError,
    NotExistError,
    PermissionDeniedError,
)

from cosyvoice_runtime.fetch.errors import FetchError, Reason
from cosyvoice_runtime.fetch.request import HubSource
from cosyvoice_runtime.fetch.sources.base import (
    READ_CHUNK,
    Checksum,
    RemoteFile,
    Stream,
    checked,
    network,
    status_error,
)


class ModelScopeRepository:
    """The files of one revision."""

    archive = False

    def __init__(self, source: HubSource, token: str | None) -> None:
        self._source = source
        self._token = token
        # It keeps an identifier of the installation; the root is read-only.
        home = Path(tempfile.gettempdir()) / "modelscope"
        self._api = HubApi(HubConfig(config_dir=home, cache_dir=home, token=token or ""))
        self._host = urlsplit(self._api.legacy.endpoint).hostname or ""
        self.title = f"modelScope {source.repo}@{source.revision}"
        self.pinned = source.pinned

    def files(self) -> Sequence[RemoteFile]:
        """What the revision holds."""
        with self._translated():
            listed = self._api.list_repo_files(self._source.repo, "model", revision=self._source.revision)
        found = [
            RemoteFile(
                entry.path,
                entry.size,
                Checksum("sha256", entry.sha256.lower()) if entry.sha256 else None,
                entry.blob_id or "",
            )
            for entry in listed
            if not entry.is_dir
        ]
        return checked(found, self.title)

    @contextlib.contextmanager
    def read(self, file: RemoteFile, offset: int) -> Iterator[Stream]:
        """Open a file at an offset."""
        headers = {"Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        with self._translated():
            response = self._api.legacy.download_stream(
                self._source.repo, "model", file.path, self._source.revision, headers=headers
            )
            with response:
                yield Stream(offset if response.status_code == 206 else 0, response.iter_content(READ_CHUNK))

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (AuthenticationError, PermissionDeniedError):
            raise self._unauthorized() from None
        except NotExistError:
            raise FetchError(
                Reason.NOT_FOUND,
                f"{self.title}: there is no such repository, revision or file; check spec.model.source.modelScope. A private "
                "one also looks like this without its token",
            ) from None
        except (NetworkError, requests.RequestException) as error:
            raise network(error, self._host) from None
        except APIError as error:
            raise status_error(error.status_code or 500, self._host) from None
        except HubError as error:
            raise FetchError(Reason.NETWORK, f"{self.title}: {error.message}", transient=True) from None

    def _unauthorized(self) -> FetchError:
        step = (
            "its token may have expired: put a new one into the Secret that spec.model.source.modelScope.tokenSecretRef names"
            if self._token
            else "no token was given: put one into a Secret and name it in spec.model.source.modelScope.tokenSecretRef"
        )
        page = f"{self._api.legacy.endpoint}/models/{self._source.repo}"
        return FetchError(
            Reason.UNAUTHORIZED,
            f"{self.title}: access is refused; {step}. If the model has a licence, accept it on {page}",
        )
