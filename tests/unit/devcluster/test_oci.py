"""Image archives."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile

import pytest

from devcluster import DevClusterError, oci


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    (folder / "bin").mkdir(parents=True, mode=0o700)
    program = folder / "bin" / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o4700)
    (folder / "secret").write_text("x")
    (folder / "secret").chmod(0o600)
    (folder / "sh").symlink_to("bin/program")
    return folder


def members(path):
    with tarfile.open(path) as tar:
        return {member.name: member for member in tar.getmembers()}


def test_the_same_content_gives_the_same_layer_whatever_its_dates(root, tmp_path):
    first = oci.write_layer(root, tmp_path / "one")
    os.utime(root / "secret", (1, 1))
    second = oci.write_layer(root, tmp_path / "two")
    assert first.digest == second.digest == hashlib.sha256((tmp_path / "one").read_bytes()).hexdigest()
    assert first.size == (tmp_path / "one").stat().st_size


def test_everything_in_a_layer_is_roots_and_readable_by_all_and_nothing_gains_rights(root, tmp_path):
    oci.write_layer(root, tmp_path / "layer")
    found = members(tmp_path / "layer")
    assert {name: oct(member.mode) for name, member in found.items() if not member.issym()} == {
        "bin": "0o755",
        "bin/program": "0o755",
        "secret": "0o644",
    }
    assert found["sh"].linkname == "bin/program"
    assert {(member.uid, member.gid) for member in found.values()} == {(0, 0)}


def test_an_archive_has_every_blob_under_its_digest_and_the_image_under_its_name(root, tmp_path):
    layer = oci.write_layer(root, tmp_path / "layer")
    archive = tmp_path / "image.tar"
    config = oci.ImageConfig(["/bin/program"], {"A": "b"}, "10001:10001", "/tmp")
    oci.write_archive(archive, "docker.io/local/x:1", [layer], config)

    assert oci.reference(archive) == "docker.io/local/x:1"
    with tarfile.open(archive) as tar:
        blobs = {
            member.name.rpartition("/")[2]: tar.extractfile(member).read()
            for member in tar.getmembers()
            if member.name.startswith("blobs/")
        }
        index = json.load(tar.extractfile("index.json"))
    assert all(hashlib.sha256(content).hexdigest() == digest for digest, content in blobs.items())
    manifest = json.loads(blobs[index["manifests"][0]["digest"].removeprefix("sha256:")])
    image = json.loads(blobs[manifest["config"]["digest"].removeprefix("sha256:")])
    assert image["config"] == {
        "Entrypoint": ["/bin/program"],
        "Env": ["A=b"],
        "User": "10001:10001",
        "WorkingDir": "/tmp",
    }
    assert image["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]] == [f"sha256:{layer.digest}"]


def test_what_is_no_image_is_told(tmp_path):
    file = tmp_path / "x.tar"
    file.write_text("no tar")
    with pytest.raises(DevClusterError, match="no OCI archive"):
        oci.reference(file)
