"""Waiting for a CustomResourceDefinition."""

from __future__ import annotations

import time
from collections.abc import Callable

from devcluster.errors import DevClusterError

_ESTABLISHED = '{.status.conditions[?(@.type=="Established")].status}'


def wait_until_established(kubectl: Callable[..., str], name: str, *, within: float = 30.0) -> None:
    """Wait until the API server serves the resources of a CRD.

    `kubectl wait` fails outright on a CRD that was made a moment ago and has no conditions at all yet, so this asks by itself.

    Args:
        kubectl: Runs kubectl and gives what it prints.
        name: Name of the CRD.
        within: Seconds.

    Raises:
        DevClusterError: It was not established in time.
    """
    deadline = time.monotonic() + within
    # Unchecked: in its first moment a CRD has null for conditions, over which the template fails.
    while kubectl("get", "crd", name, "-o", f"jsonpath={_ESTABLISHED}", check=False) != "True":
        if time.monotonic() > deadline:
            raise DevClusterError(
                f"CRD {name} is not established after {within:.0f} s", hint=f"kubectl describe crd {name}"
            )
        time.sleep(0.1)
