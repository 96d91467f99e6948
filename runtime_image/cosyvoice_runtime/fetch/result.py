"""What came of a fetch: at most 4096 bytes of JSON, since the kubelet keeps no more of a termination message."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosyvoice_runtime.fetch.errors import FetchError, Reason
from cosyvoice_runtime.fetch.manifest import Manifest
from cosyvoice_runtime.jobs import leave_result

VERSION = 1
LIMIT = 4096


@dataclass(frozen=True)
class Result:
    """Success or failure of one fetch; `path` is relative to the cache, or absolute where the model is mounted."""

    reason: Reason | None = None
    message: str = ""
    digest: str | None = None
    path: str | None = None
    size: int = 0
    files: int = 0
    reused: bool = False
    seconds: float = 0.0

    @classmethod
    def of(cls, manifest: Manifest, path: str, *, reused: bool, message: str = "") -> Result:
        """The result of a fetch that succeeded."""
        return cls(None, message, manifest.digest, path, manifest.size, len(manifest.files), reused)

    @classmethod
    def failed(cls, error: FetchError) -> Result:
        """The result of a fetch that failed."""
        return cls(error.reason, error.message)

    @property
    def succeeded(self) -> bool:
        """Whether the model can be used."""
        return self.reason is None

    def document(self, message: str) -> dict[str, Any]:
        """As it is reported, with a message."""
        return {
            "version": VERSION,
            "outcome": "Succeeded" if self.succeeded else "Failed",
            "reason": self.reason,
            "message": message,
            "digest": self.digest,
            "path": self.path,
            "bytes": self.size,
            "seconds": round(self.seconds, 3),
            "files": self.files,
            "reused": self.reused,
        }


def encode(result: Result) -> str:
    """The result as JSON of at most 4096 bytes in UTF-8; a message that is too long loses its middle."""
    message = "".join(char if char.isprintable() else " " for char in result.message)
    text = _json(result, message)
    while (excess := len(text.encode("utf-8", "replace")) - LIMIT) > 0:
        # A character takes up to 12 bytes as JSON, so this comes near the limit from above. The beginning names the
        # object and the end the next step.
        head = len(message) * 2 // 3
        cut = max(excess // 12, 16)
        message = message[: head - cut] + " [...] " + message[head + 8 :]
        text = _json(result, message)
    return text


def _json(result: Result, message: str) -> str:
    return json.dumps(result.document(message), ensure_ascii=False, separators=(",", ":"))


def report(result: Result, termination_message: Path) -> None:
    """Print the result, and leave it where the kubelet takes it into the container's status."""
    leave_result(encode(result), termination_message)
