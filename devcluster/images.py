"""Builds container images from a short description, without docker, a registry or a base image.

An image has two layers: the system (Debian packages and wheels), which changes rarely, and the project's own files.
Both are kept in the cache under the content they were made of, so that a changed source file costs seconds.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from devcluster import build, oci, rootfs
from devcluster.errors import DevClusterError
from devcluster.imagespec import ImageSpec, find_specs, read_spec
from devcluster.locks import exclusive
from devcluster.paths import PROJECT, cache_home
from devcluster.progress import Progress

# Part of every key: raise it when the builder's own rules change what comes out.
BUILDER = 1
REGISTRY = "docker.io/local"
PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Image:
    """An image in the cache."""

    reference: str
    archive: Path


def build_image(spec: ImageSpec, progress: Progress, project: Path = PROJECT) -> Image:
    """Build an image, or take it from the cache.

    Raises:
        DevClusterError: A source is missing, or a download or the assembly fails.
    """
    system_key = _key(_system_parts(spec, project))
    key = _key([system_key, *_project_parts(spec, project)])
    image = _image(spec.name, key)
    folder = image.archive.parent
    if image.archive.exists():
        return image
    with exclusive(folder / f".{spec.name}.lock"):
        if image.archive.exists():
            return image
        system = folder / f"{spec.name}-{system_key}.layer"
        digest = system.with_suffix(".sha256")  # written last, so that it says that the layer is complete
        with tempfile.TemporaryDirectory(dir=folder, prefix=f".{spec.name}-") as name:
            scratch = Path(name)
            if not digest.exists():
                rootfs.make_system(spec, project, scratch, progress)
                digest.write_text(oci.write_layer(scratch / "system", system).digest)
            with progress.step(f"Packing image {spec.name}:{key}"):
                rootfs.make_project(spec, project, scratch / "project")
                lower = oci.Layer(system, digest.read_text(), system.stat().st_size)
                upper = oci.write_layer(scratch / "project", scratch / "project.layer")
                oci.write_archive(image.archive, image.reference, [lower, upper], _config(spec))
        _drop_old(folder, spec.name, {image.archive, system, digest})
    return image


def archive_of(reference: str) -> Path:
    """Where the archive of an image lies once it is built."""
    return cache_home() / "images" / f"{reference.rpartition('/')[2].replace(':', '-')}.tar"


def pause_image(progress: Progress) -> Image:
    """The image whose container holds a pod's namespaces."""
    build.ensure([build.PAUSE], progress)
    image = _image("pause", build.PAUSE.key())
    if not image.archive.exists():
        with tempfile.TemporaryDirectory(dir=image.archive.parent, prefix=".pause-") as scratch:
            root = Path(scratch) / "root"
            oci.copy_file(build.PAUSE.folder() / "pause", root / "pause")
            layer = oci.write_layer(root, Path(scratch) / "layer")
            oci.write_archive(image.archive, image.reference, [layer], oci.ImageConfig(("/pause",), user="65535:65535"))
    return image


def _image(name: str, key: str) -> Image:
    reference = f"{REGISTRY}/{name}:{key}"
    archive = archive_of(reference)
    archive.parent.mkdir(parents=True, exist_ok=True)
    return Image(reference, archive)


def _config(spec: ImageSpec) -> oci.ImageConfig:
    return oci.ImageConfig(spec.entrypoint, {"PATH": PATH, **spec.env}, spec.user, spec.workdir)


def _system_parts(spec: ImageSpec, project: Path) -> Iterator[bytes]:
    chosen = ("debs", "exclude", "site", "bytecode")
    values = asdict(spec)
    yield json.dumps([BUILDER, *(values[name] for name in chosen)]).encode()
    for source in (spec.requirements, spec.wheels, spec.assemble):
        yield (_existing(project, source).read_bytes() if source else b"")


def _project_parts(spec: ImageSpec, project: Path) -> Iterator[bytes]:
    yield json.dumps(asdict(spec), sort_keys=True).encode()
    for source in (*spec.packages, *(copy.source for copy in spec.copies)):
        root = _existing(project, source)
        for path in rootfs.project_files(root):
            executable = bool(path.stat().st_mode & 0o111)
            yield f"{source}\0{path.relative_to(root.parent)}\0{executable}\0".encode()
            yield path.read_bytes()


def _key(parts: Iterator[bytes] | Sequence[bytes | str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:16]


def _existing(project: Path, source: str) -> Path:
    path = project / source
    if not path.exists():
        raise DevClusterError(f"{path} does not exist", hint="paths in image.toml are relative to the project's root")
    return path


def _drop_old(folder: Path, name: str, keep: set[Path]) -> None:
    """Remove what an image was before; a name may be the beginning of another image's, hence the exact length."""
    for path in folder.glob(f"{name}-{'[0-9a-f]' * 16}.*"):
        if path not in keep:
            path.unlink()


def load_source(source: str, progress: Progress) -> Image:
    """An image by name (built if need be), by the path of its `image.toml`, or by the path of an archive.

    Raises:
        DevClusterError: There is nothing of that name.
    """
    specs = find_specs()
    if source in specs:
        return build_image(read_spec(specs[source]), progress)
    path = Path(source)
    if path.name == "image.toml" and path.exists():
        return build_image(read_spec(path), progress)
    if path.suffix == ".tar" and path.exists():
        return Image(oci.reference(path), path)
    known = ", ".join(sorted(specs)) or "none"
    raise DevClusterError(f"no image named {source}", hint=f"known images: {known}; or give a path to an OCI archive")
