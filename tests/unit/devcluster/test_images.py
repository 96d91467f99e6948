"""Image descriptions and the keys of what is made of them."""

from __future__ import annotations

import tarfile

import pytest

from devcluster import DevClusterError, images, imagespec
from devcluster.progress import SilentProgress

SPEC = """
name = "tiny"
packages = ["src/tiny"]
copy = [{ from = "data", to = "/data" }]
links = [{ path = "/bin/run", target = "/data/a" }]
site = "/opt/site"
entrypoint = ["/bin/run"]
env = { A = "1" }
"""


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    for file, text in {
        "src/tiny/__init__.py": "A = 1\n",
        "data/a": "a",
        "data/.hidden": "h",
        "image.toml": SPEC,
    }.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    return root


def build(project):
    return images.build_image(imagespec.read_spec(project / "image.toml"), SilentProgress(), project)


def layers(image, tmp_path):
    """Names in each layer, lowest first."""
    with tarfile.open(image.archive) as archive:
        blobs = [member for member in archive.getmembers() if member.name.startswith("blobs/")][2:]
        found = []
        for blob in blobs:
            with tarfile.open(fileobj=archive.extractfile(blob)) as layer:
                found.append({member.name for member in layer.getmembers() if not member.isdir()})
    return found


def test_an_image_holds_packages_files_links_and_a_user_above_the_system(project, tmp_path):
    image = build(project)
    lower, upper = layers(image, tmp_path)
    assert upper == {"opt/site/tiny/__init__.py", "data/a", "bin/run", "etc/passwd", "etc/group"}
    assert {"bin", "sbin", "lib", "lib64"} == lower
    assert image.reference.startswith("docker.io/local/tiny:")


def test_an_unchanged_image_is_not_built_again(project):
    first = build(project)
    written = first.archive.stat().st_mtime_ns
    (project / "src/tiny/__pycache__").mkdir()
    (project / "src/tiny/__pycache__/x.pyc").write_text("caches do not count")
    assert build(project) == first
    assert first.archive.stat().st_mtime_ns == written


@pytest.mark.parametrize(
    "change",
    [
        lambda project: (project / "src/tiny/__init__.py").write_text("A = 2\n"),
        lambda project: (project / "data/a").chmod(0o755),
        lambda project: (project / "data/a").rename(project / "data/b"),
        lambda project: (project / "image.toml").write_text(SPEC.replace('A = "1"', 'A = "2"')),
    ],
    ids=["source", "mode", "name", "environment"],
)
def test_a_change_gives_a_new_key_on_the_same_system_layer_and_drops_the_old_image(project, change):
    first = build(project)
    kept = list(first.archive.parent.glob("*.layer"))
    change(project)
    second = build(project)
    assert second.reference != first.reference
    assert not first.archive.exists()
    assert list(first.archive.parent.glob("*.layer")) == kept


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "Invalid value"),
        ('name = "x"', "entrypoint"),
        ('name = "x"\nentrypoint = ["x"]\ndebts = ["libc6"]', "unknown fields debts"),
        ('name = "x"\nentrypoint = ["x"]\ncopy = [{ from = "a" }]', "to"),
    ],
)
def test_a_wrong_description_is_refused_with_what_is_wrong(tmp_path, text, message):
    file = tmp_path / "image.toml"
    file.write_text(text)
    with pytest.raises(DevClusterError, match=message):
        imagespec.read_spec(file)


def test_a_source_that_is_missing_is_named(project):
    (project / "data/a").unlink()
    (project / "data/.hidden").unlink()
    (project / "data").rmdir()
    with pytest.raises(DevClusterError, match="data does not exist"):
        build(project)


def test_descriptions_are_found_by_the_name_of_their_image(project):
    assert imagespec.find_specs(project.parent) == {"tiny": project / "image.toml"}
    with pytest.raises(DevClusterError, match="no image named tinny"):
        images.load_source("tinny", SilentProgress())


def test_the_version_of_python_is_read_from_the_packages():
    assert imagespec.python_version(["libc6", "python3.11-minimal", "python3.11"]) == "3.11"
    assert imagespec.python_version(["libpython3.11-minimal"]) == ""
