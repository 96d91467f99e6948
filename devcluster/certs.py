"""Keys, certificates, tokens and kubeconfigs of one cluster: made anew for each, so that none is worth stealing."""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import DevClusterError
from devcluster.paths import ClusterPaths, write_private

DAYS = "365"
# Who talks to the API server, and as whom. The kubelet is a node user, so that the Node authorizer and the
# NodeRestriction admission plugin treat it as on any other cluster.
GROUPS = {
    "admin": ("admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", ""),
    "kwok": ("devcluster:kwok", "system:masters"),
    "kubelet": ("system:node:node-real", "system:nodes"),
}


@dataclass(frozen=True)
class Certificate:
    """What one certificate says."""

    name: str
    common_name: str
    organization: str = ""
    addresses: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


def make_pki(paths: ClusterPaths, certificates: Sequence[Certificate]) -> None:
    """Make the authority, the given certificates below it, and the key that signs ServiceAccount tokens.

    Files `ca.crt`, `<name>.crt`, `<name>.key`, `sa.key` and `sa.pub` are written to the cluster's pki folder.
    """
    pki = paths.pki
    pki.mkdir(parents=True, exist_ok=True, mode=0o700)
    _openssl(
        ["req", "-x509", *_new_key(pki / "ca.key"), "-subj", "/CN=devcluster", "-out", str(pki / "ca.crt"),
         "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    )  # fmt: skip
    with ThreadPoolExecutor() as pool:
        service_account = pool.submit(_make_signing_key, pki)
        for issued in [pool.submit(_issue, pki, certificate) for certificate in certificates]:
            issued.result()
        service_account.result()
    for file in pki.iterdir():
        file.chmod(0o600)


def make_tokens(paths: ClusterPaths) -> dict[str, str]:
    """A random token for each user; also writes the API server's token file."""
    tokens = {user: secrets.token_hex(24) for user in GROUPS}
    lines = [f'{tokens[user]},{name},{name},"{groups}"' for user, (name, groups) in GROUPS.items()]
    write_private(paths.pki / "tokens.csv", "\n".join(lines) + "\n")
    return tokens


def write_kubeconfigs(paths: ClusterPaths, server: str, tokens: dict[str, str]) -> None:
    """Write the administrator's kubeconfig and one for each component."""
    authority = base64.b64encode((paths.pki / "ca.crt").read_bytes()).decode()
    for user, token in tokens.items():
        context = f"devcluster-{paths.name}"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": context, "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": f"{context}-{user}", "user": {"token": token}}],
            "contexts": [{"name": context, "context": {"cluster": context, "user": f"{context}-{user}"}}],
            "current-context": context,
        }
        path = paths.kubeconfig if user == "admin" else paths.kubeconfig_of(user)
        # JSON is YAML, and needs no library to be written correctly.
        write_private(path, json.dumps(document, indent=2) + "\n")


def _new_key(path: Path) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout", str(path), "-days", DAYS]


def _issue(pki: Path, certificate: Certificate) -> None:
    subject = f"/O={certificate.organization}" if certificate.organization else ""
    names = [f"DNS:{host}" for host in certificate.hosts] + [f"IP:{address}" for address in certificate.addresses]
    _openssl(
        ["req", "-x509", *_new_key(pki / f"{certificate.name}.key"), "-subj", f"{subject}/CN={certificate.common_name}",
         "-CA", str(pki / "ca.crt"), "-CAkey", str(pki / "ca.key"), "-out", str(pki / f"{certificate.name}.crt"),
         "-addext", "basicConstraints=critical,CA:FALSE", "-addext", "keyUsage=critical,digitalSignature",
         "-addext", "extendedKeyUsage=serverAuth,clientAuth",
         *(["-addext", f"subjectAltName={','.join(names)}"] if names else [])]
    )  # fmt: skip


def _make_signing_key(pki: Path) -> None:
    _openssl(["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(pki / "sa.key")])
    _openssl(["pkey", "-in", str(pki / "sa.key"), "-pubout", "-out", str(pki / "sa.pub")])


def _openssl(arguments: Sequence[str]) -> None:
    result = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False, umask=0o077)
    if result.returncode != 0:
        raise DevClusterError(
            f"openssl {arguments[0]} failed: {result.stderr.strip()}", hint="OpenSSL 3.0 or newer is needed"
        )
