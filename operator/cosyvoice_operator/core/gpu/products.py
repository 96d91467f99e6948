"""What is known of NVIDIA's products without asking a node: figures that must not move with a driver's rounding."""

from __future__ import annotations

from dataclasses import dataclass

HOME_ARCH = "amd64"
"""Architecture of the hosts of every card that doesn't say otherwise."""


@dataclass(frozen=True, slots=True)
class Product:
    """One card.

    Attributes:
        compute_capability: CUDA compute capability, ``major.minor``.
        memory_mib: The least memory that drivers report for it, in MiB. One card shows 15109 or 15360, for error correction and firmware
            take their share.
        arch: Architecture of the hosts that it is in.
    """

    compute_capability: str
    memory_mib: int
    arch: str = HOME_ARCH


def version(compute_capability: str) -> tuple[int, ...]:
    """Give a compute capability as it compares: 8.9 is less than 10.0."""
    return tuple(int(part) for part in compute_capability.split("."))


PRODUCTS: dict[str, Product] = {
    # Pascal, Volta, Turing
    "P4": Product("6.1", 7606),
    "P40": Product("6.1", 22919),
    "P100-PCIE-16GB": Product("6.0", 16276),
    "V100-SXM2-16GB": Product("7.0", 16160),
    "V100-SXM2-32GB": Product("7.0", 32480),
    "V100-PCIE-16GB": Product("7.0", 16160),
    "V100-PCIE-32GB": Product("7.0", 32480),
    "T4": Product("7.5", 15109),
    "T4G": Product("7.5", 15109, "arm64"),
    # Ampere
    "A2": Product("8.6", 15356),
    "A10": Product("8.6", 22731),
    "A10G": Product("8.6", 22731),
    "A16": Product("8.6", 15356),
    "A30": Product("8.0", 24062),
    "A40": Product("8.6", 45634),
    "A100-SXM4-40GB": Product("8.0", 40326),
    "A100-PCIE-40GB": Product("8.0", 40326),
    "A100-SXM4-80GB": Product("8.0", 80994),
    "A100-80GB-PCIe": Product("8.0", 80994),
    "RTX-A4000": Product("8.6", 15352),
    "RTX-A5000": Product("8.6", 23028),
    "RTX-A6000": Product("8.6", 46068),
    "GeForce-RTX-3060": Product("8.6", 12053),
    "GeForce-RTX-3090": Product("8.6", 24265),
    # Ada Lovelace
    "L4": Product("8.9", 22888),
    "L20": Product("8.9", 46068),
    "L40": Product("8.9", 45776),
    "L40S": Product("8.9", 45776),
    "RTX-4000-Ada-Generation": Product("8.9", 20475),
    "RTX-6000-Ada-Generation": Product("8.9", 46068),
    "GeForce-RTX-4070-SUPER": Product("8.9", 12282),
    "GeForce-RTX-4080": Product("8.9", 16376),
    "GeForce-RTX-4090": Product("8.9", 24564),
    # Hopper
    "H20": Product("9.0", 97871),
    "H100-PCIe": Product("9.0", 81079),
    "H100-80GB-HBM3": Product("9.0", 81079),
    "H100-NVL": Product("9.0", 95320),
    "H200": Product("9.0", 140000),
    "GH200-480GB": Product("9.0", 97000, "arm64"),
    # Blackwell
    "B200": Product("10.0", 180000),
    "B300": Product("10.3", 270000),
    "GB200": Product("10.0", 180000, "arm64"),
    "GB300": Product("10.3", 270000, "arm64"),
    "GeForce-RTX-5080": Product("12.0", 16303),
    "GeForce-RTX-5090": Product("12.0", 32607),
    "RTX-PRO-4500-Blackwell-Server-Edition": Product("12.0", 32000),
    "RTX-PRO-6000-Blackwell-Server-Edition": Product("12.0", 97250),
    "RTX-PRO-6000-Blackwell-Workstation-Edition": Product("12.0", 97250),
}
"""Products by normalised name. Round figures of memory are estimates on the safe side. The table needn't be complete: a card that isn't
here takes its figures from its nodes' labels."""
