"""Ranges that the machine already routes somewhere."""

from __future__ import annotations

import pytest

from devcluster.network import find_overlap, refuse_overlap

ROUTES = [
    {"dst": "default", "gateway": "192.0.2.1", "dev": "eth0"},
    {"dst": "192.0.2.0/24", "dev": "eth0"},
    {"type": "blackhole", "dst": "10.250.0.0/16"},
    {"dst": "10.8.0.1", "dev": "tun0"},
]


@pytest.mark.parametrize(
    ("cidr", "found"),
    [
        ("10.244.0.0/24", None),
        ("10.250.0.0/16", None),  # our own blackhole
        ("192.0.2.128/25", "192.0.2.0/24"),
        ("10.8.0.0/24", "10.8.0.1"),
    ],
)
def test_a_range_overlaps_routes_but_not_the_default_nor_a_blackhole(cidr, found):
    route = find_overlap(ROUTES, cidr)
    assert (route or {}).get("dst") == found


def test_a_range_that_nothing_routes_is_not_refused():
    refuse_overlap("127.250.0.0/16")
