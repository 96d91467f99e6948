"""Free ports for components, chosen anew at each start so that clusters can stand side by side."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence

# Below the kernel's ephemeral range (from 32768), so that an outgoing connection never takes a chosen port before
# its component binds it, and below the NodePort range (30000 to 32767).
FIRST, LAST = 20000, 29999


def is_free(port: int, addresses: Sequence[str]) -> bool:
    """Whether a TCP port can be bound on every one of the addresses."""
    for address in addresses:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True


def choose(names: Sequence[str], addresses: Sequence[str] = ("127.0.0.1",)) -> dict[str, int]:
    """A free port for each name.

    Ports are drawn at random, so that two clusters that start at the same moment hardly ever draw the same one;
    the one that loses sees its component end with `address already in use` and starts again with new ports.
    """
    chosen: dict[str, int] = {}
    candidates = random.sample(range(FIRST, LAST + 1), k=LAST + 1 - FIRST)
    for name in names:
        while True:
            port = candidates.pop()
            if is_free(port, addresses):
                chosen[name] = port
                break
    return chosen
