"""What a pod gives its builder, read once from the environment."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cosyvoice_runtime.builder.reasons import BuildError, Reason

REQUEST = "COSYVOICE_BUILD_REQUEST"
TERMINATION_MESSAGE = "COSYVOICE_TERMINATION_MESSAGE"
DEFAULT_TERMINATION_MESSAGE = "/dev/termination-log"


@dataclass(frozen=True)
class Surroundings:
    """Paths, the pod, and the time there is; `timeout` is seconds from the start of this process, None for no end."""

    cache: Path
    pod_uid: str
    timeout: float | None
    host: str
    port: int

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Surroundings:
        """Read the environment.

        Raises:
            BuildError: A number is none.
        """
        timeout = _number(environment, "COSYVOICE_TIMEOUT", "")
        return cls(
            cache=Path(environment.get("COSYVOICE_CACHE") or "/cache"),
            # Outside a pod, so that two people on one machine do not write to one directory.
            pod_uid=environment.get("COSYVOICE_POD_UID") or str(uuid.uuid4()),
            timeout=timeout,
            host=environment.get("COSYVOICE_HOST") or "0.0.0.0",  # noqa: S104 - a pod's address is known only to the cluster
            port=int(_number(environment, "COSYVOICE_PORT", "8080") or 0),
        )


def _number(environment: Mapping[str, str], name: str, default: str) -> float | None:
    text = environment.get(name) or default
    try:
        number = float(text) if text else None
    except ValueError:
        raise BuildError(Reason.INTERNAL, f"{name}={text} is no number; write seconds or a port, as digits") from None
    if number is not None and number < 0:
        raise BuildError(Reason.INTERNAL, f"{name}={text} is below 0")
    return number
