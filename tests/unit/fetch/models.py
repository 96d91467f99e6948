"""Small models with the file names of the large ones."""

from __future__ import annotations

import random

from cosyvoice_runtime.fetch import families

LARGE = 3 << 20


def model(family: str) -> dict[str, bytes]:
    """All files of a family, small but for one; and what hubs keep beside a model."""
    noise = random.Random(family)
    names = [name for need in families.FAMILIES[family] for name in need.options[0]]
    files = {name: noise.randbytes(LARGE if name.endswith("flow.pt") else 2000) for name in names}
    return files | {"README.md": b"# A model\n", ".gitattributes": b"*.pt filter=lfs\n"}


def lay(folder, files):
    """Write files into a folder."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
