"""Writes OCI image archives from folders, byte for byte the same for the same content."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import stat
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from devcluster.errors import DevClusterError

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MTIME = 1_577_836_800  # 2020-01-01: one date for all, so that a rebuilt layer keeps its digest


@dataclass(frozen=True)
class Layer:
    """One layer, as a plain tar on disk."""

    path: Path
    digest: str  # sha256, hexadecimal
    size: int


@dataclass(frozen=True)
class ImageConfig:
    """How a container of the image starts."""

    entrypoint: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = "/"


def write_layer(root: Path, target: Path) -> Layer:
    """Pack a folder as a layer: all files owned by root, readable by all, with one date, in one order."""
    with target.open("wb") as raw:
        hashing = _HashingFile(raw)
        with tarfile.open(fileobj=cast("IO[bytes]", hashing), mode="w", format=tarfile.GNU_FORMAT) as tar:
            for path in _walk(root):
                _add(tar, path, path.relative_to(root).as_posix())
    return Layer(target, hashing.digest.hexdigest(), target.stat().st_size)


def write_archive(target: Path, reference: str, layers: Sequence[Layer], config: ImageConfig) -> None:
    """Write an image archive in OCI layout; an old archive stays until the new one is complete.

    Args:
        target: The archive.
        reference: Full name of the image, which an import gives it.
        layers: Its layers, lowest first.
        config: How its containers start.
    """
    image = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "Entrypoint": list(config.entrypoint),
            "Env": [f"{name}={value}" for name, value in config.env.items()],
            "User": config.user,
            "WorkingDir": config.workdir,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in layers]},
    }
    image_blob = json.dumps(image).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _descriptor("application/vnd.oci.image.config.v1+json", image_blob),
        "layers": [
            {"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": f"sha256:{layer.digest}",
             "size": layer.size}
            for layer in layers
        ],
    }  # fmt: skip
    manifest_blob = json.dumps(manifest).encode()
    names = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference}
    entry = {**_descriptor(manifest["mediaType"], manifest_blob), "annotations": names}
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    with tarfile.open(temporary, "w") as tar:
        _add_bytes(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add_bytes(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode())
        for blob in (image_blob, manifest_blob):
            _add_bytes(tar, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)
        for layer in {layer.digest: layer for layer in layers}.values():
            info = tarfile.TarInfo(f"blobs/sha256/{layer.digest}")
            info.size = layer.size
            with layer.path.open("rb") as file:
                tar.addfile(info, file)
    temporary.replace(target)


def reference(archive: Path) -> str:
    """The full name that an archive gives its image.

    Raises:
        DevClusterError: It is no OCI archive, or its image has no name.
    """
    try:
        with tarfile.open(archive) as tar:
            index = json.load(cast("IO[bytes]", tar.extractfile("index.json")))
        name: str = index["manifests"][0]["annotations"]["io.containerd.image.name"]
    except (OSError, KeyError, IndexError, ValueError, tarfile.TarError) as error:
        raise DevClusterError(f"{archive} is no OCI archive with a named image: {error!r}") from error
    return name


def _descriptor(media_type: Any, blob: bytes) -> dict[str, Any]:  # noqa: ANN401  # a string out of a JSON object
    return {"mediaType": media_type, "digest": f"sha256:{hashlib.sha256(blob).hexdigest()}", "size": len(blob)}


def _walk(root: Path) -> list[Path]:
    found: list[Path] = []
    for folder, folders, files in os.walk(root):
        found.extend(Path(folder) / name for name in (*folders, *files))
    return sorted(found)


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    status = path.lstat()
    info = tarfile.TarInfo(name)
    info.mtime = MTIME
    if stat.S_ISLNK(status.st_mode):
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, os.readlink(path), 0o777  # noqa: PTH115  # keeps it as is
        tar.addfile(info)
    elif stat.S_ISDIR(status.st_mode):
        # Containers run as another user than the one that unpacked this.
        info.type, info.mode = tarfile.DIRTYPE, stat.S_IMODE(status.st_mode) | 0o555
        tar.addfile(info)
    elif stat.S_ISREG(status.st_mode):
        executable = 0o111 if status.st_mode & 0o111 else 0
        # No set-uid programs: nothing in these images may gain rights.
        info.size, info.mode = status.st_size, (stat.S_IMODE(status.st_mode) & 0o755) | 0o444 | executable
        with path.open("rb") as file:
            tar.addfile(info, file)


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


class _HashingFile:
    """Passes writes on and hashes them, so that a layer is read only once."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self._raw.write(data)

    def tell(self) -> int:
        return self._raw.tell()


def copy_file(source: Path, target: Path) -> None:
    """Copy a file's content and whether it is executable."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if source.stat().st_mode & 0o111 else 0o644)
