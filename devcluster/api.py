"""The few API calls this tool makes itself, with nothing beyond the standard library."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.errors import DevClusterError

JSON_PATCH = "application/json-patch+json"
Json = dict[str, Any] | list[Any] | None
MERGE_PATCH = "application/merge-patch+json"


class ApiError(DevClusterError):
    """The API server answered with an error."""

    def __init__(self, method: str, path: str, code: int, text: str) -> None:
        super().__init__(f"{method} {path}: {code} {text}")
        self.code = code


@dataclass(frozen=True)
class Api:
    """One user's access to one API server."""

    server: str
    token: str
    authority: Path

    def request(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        content_type: str = "application/json",
        timeout: float = 10.0,
    ) -> Any:  # noqa: ANN401  # JSON is whatever the server sent
        """Make one request.

        Args:
            method: HTTP method.
            path: Path below the server's root, with its query.
            body: Object to send as JSON.
            content_type: Media type of the body; patches have their own.
            timeout: Seconds for connecting and for each read.

        Returns:
            The decoded JSON answer, or the text where it is none (health endpoints).

        Raises:
            ApiError: The server answered with 400 or above.
            OSError: There is no server, or no answer.
        """
        target = urllib.parse.urlsplit(self.server)
        context = ssl.create_default_context(cafile=str(self.authority))
        connection = http.client.HTTPSConnection(target.hostname or "", target.port, context=context, timeout=timeout)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type, "Accept": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        except http.client.HTTPException as error:
            raise ConnectionError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()
        if answer.status >= 400:
            raise ApiError(method, path, answer.status, text.strip())
        return json.loads(text) if text.startswith("{") else text


def read_kubeconfig(path: Path, authority: Path) -> Api:
    """Access with the server and token of a kubeconfig that this tool wrote."""
    document = json.loads(path.read_text())
    return Api(document["clusters"][0]["cluster"]["server"], document["users"][0]["user"]["token"], authority)
