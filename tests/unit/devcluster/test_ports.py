"""Ports."""

from __future__ import annotations

import socket

from devcluster import ports


def test_every_name_gets_a_port_of_its_own_outside_the_ephemeral_and_nodeport_ranges():
    names = [f"component-{number}" for number in range(50)]
    chosen = ports.choose(names)
    assert list(chosen) == names
    assert len(set(chosen.values())) == 50
    assert all(20000 <= port < 30000 for port in chosen.values())


def test_a_port_that_something_listens_on_is_not_free():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not ports.is_free(port, ["127.0.0.1"])
    assert ports.is_free(port, ["127.0.0.1"])


def test_a_port_must_be_free_on_all_addresses():
    with socket.create_server(("127.0.0.2", 0)) as server:
        port = server.getsockname()[1]
        assert not ports.is_free(port, ["127.0.0.1", "127.0.0.2"])
