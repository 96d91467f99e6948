"""Keys, certificates and kubeconfigs."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from devcluster.certs import Certificate, make_pki, make_tokens, write_kubeconfigs
from devcluster.paths import ClusterPaths

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


@pytest.fixture
def paths(tmp_path):
    return ClusterPaths(tmp_path, "x")


def test_certificates_are_of_the_authority_and_name_the_server(paths):
    make_pki(paths, [Certificate("server", "kube-apiserver", "org", ("127.0.0.1",), ("localhost",))])
    verify = ["openssl", "verify", "-purpose", "sslserver", "-verify_ip", "127.0.0.1", "-CAfile", paths.pki / "ca.crt"]
    assert subprocess.run([*verify, paths.pki / "server.crt"], capture_output=True, check=False).returncode == 0
    text = subprocess.run(
        ["openssl", "x509", "-in", paths.pki / "server.crt", "-noout", "-subject"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "O = org, CN = kube-apiserver" in text


def test_all_key_files_are_readable_by_their_owner_only(paths):
    make_pki(paths, [Certificate("server", "s")])
    make_tokens(paths)
    assert {path.stat().st_mode & 0o777 for path in paths.pki.iterdir()} == {0o600}
    assert paths.pki.stat().st_mode & 0o777 == 0o700


def test_every_user_has_a_token_and_a_kubeconfig_of_its_own(paths):
    make_pki(paths, [])
    tokens = make_tokens(paths)
    write_kubeconfigs(paths, "https://127.0.0.1:1", tokens)
    assert len(set(tokens.values())) == len(tokens)
    admin = json.loads(paths.kubeconfig.read_text())
    assert admin["users"][0]["user"]["token"] == tokens["admin"]
    assert paths.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert json.loads(paths.kubeconfig_of("kubelet").read_text())["users"][0]["user"]["token"] == tokens["kubelet"]
    assert make_tokens(paths)["admin"] != tokens["admin"]
