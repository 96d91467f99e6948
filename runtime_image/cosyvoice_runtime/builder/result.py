"""What came of a build: at most 4096 bytes of JSON, since the kubelet keeps no more of a termination message."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cosyvoice_runtime.builder.reasons import BuildError, Reason
from cosyvoice_runtime.jobs import leave_result

VERSION = 1
LIMIT = 4096
_SHORTEST_MESSAGE = 200


@dataclass(frozen=True)
class Accuracy:
    """How near one graph of the engine is to its original, on fixed inputs."""

    graph: str
    cosine: float
    max_error: float

    def document(self) -> dict[str, Any]:
        """As it is reported."""
        return {"graph": self.graph, "cosine": round(self.cosine, 6), "maxError": float(f"{self.max_error:.3g}")}


@dataclass(frozen=True)
class Result:
    """Success or failure of one build or verification: `size` in bytes, `seconds` that it took, exit `status` of a failed one."""

    key: str | None
    reason: Reason | None = None
    message: str = ""
    seconds: float = 0.0
    size: int = 0
    reused: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    accuracy: Sequence[Accuracy] = ()
    status: int = 1

    @classmethod
    def failed(cls, key: str | None, error: BuildError, seconds: float, status: int = 1) -> Result:
        """The result of a build that failed."""
        return cls(key, error.reason, error.message, seconds, status=status)

    @property
    def succeeded(self) -> bool:
        """Whether the engine can be used."""
        return self.reason is None

    def document(self) -> dict[str, Any]:
        """As it is reported."""
        return {
            "version": VERSION,
            "outcome": "Succeeded" if self.succeeded else "Failed",
            "reason": self.reason,
            "message": self.message,
            "key": self.key,
            "seconds": round(self.seconds, 3),
            "bytes": self.size,
            "reused": self.reused,
            "versions": self.versions,
            "accuracy": [one.document() for one in self.accuracy],
        }


def encode(result: Result) -> str:
    """The result as JSON of at most 4096 bytes in UTF-8.

    What is too long is cut where it says least: the accuracy of the best graphs goes first, then the middle of the message,
    then the versions.
    """
    result = replace(result, message="".join(char if char.isprintable() else " " for char in result.message))
    worst = sorted(result.accuracy, key=lambda one: one.cosine)
    while _excess(result) > 0 and result.accuracy:
        worst = worst[: len(worst) // 2]
        result = replace(result, accuracy=tuple(worst))
    while (excess := _excess(result)) > 0 and len(result.message) > _SHORTEST_MESSAGE:
        # A character takes up to 12 bytes as JSON, so this comes near the limit from above, in few steps.
        shorter = max(_SHORTEST_MESSAGE, len(result.message) - max(excess // 12, 32))
        result = replace(result, message=_cut(result.message, shorter))
    if _excess(result) > 0:
        result = replace(result, versions={})
    return _json(result)


def _json(result: Result) -> str:
    return json.dumps(result.document(), ensure_ascii=False, separators=(",", ":"))


def _excess(result: Result) -> int:
    return len(_json(result).encode("utf-8", "replace")) - LIMIT


def _cut(message: str, length: int) -> str:
    """Keep its beginning, which names the object, and its end, which names the next step."""
    mark = " [...] "
    head = (length - len(mark)) * 2 // 3
    return message[:head] + mark + message[len(message) - (length - len(mark) - head) :]


def report(result: Result, termination_message: Path) -> None:
    """Print the result, and leave it where the kubelet takes it into the container's status."""
    leave_result(encode(result), termination_message)
