"""Starts etcd, API server, controller manager and scheduler, and waits until each says that it is ready."""

from __future__ import annotations

from dataclasses import dataclass

from devcluster.api import Api, ApiError
from devcluster.build import KUBE
from devcluster.certs import Certificate, make_pki, make_tokens, write_kubeconfigs
from devcluster.network import NODE_IP, SERVICE_CIDR, SERVICE_IP
from devcluster.paths import ClusterPaths
from devcluster.processes import Command, clean_environment

LOOPBACK = "127.0.0.1"
PORTS = ("etcd", "etcd-peer", "apiserver", "controller-manager", "scheduler")


@dataclass(frozen=True)
class ControlPlane:
    """One cluster's control plane: command lines and readiness; starting is left to the caller.

    Args:
        paths: The cluster's files.
        ports: A port for each name in `PORTS`.
        address: Where the API server listens: loopback, or the real node's own address.
    """

    paths: ClusterPaths
    ports: dict[str, int]
    address: str

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://{self.address}:{self.ports['apiserver']}"

    def prepare(self) -> Api:
        """Make keys, certificates, tokens and kubeconfigs; returns the administrator's access."""
        make_pki(
            self.paths,
            [
                Certificate(
                    "apiserver",
                    "kube-apiserver",
                    addresses=(LOOPBACK, NODE_IP, SERVICE_IP),
                    hosts=("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
                           "kubernetes.default.svc.cluster.local"),
                ),
                Certificate("etcd", "etcd", addresses=(LOOPBACK,), hosts=("localhost",)),
                Certificate("kubelet-client", "kube-apiserver-kubelet-client", organization="system:masters"),
                Certificate("kubelet", "system:node:node-real", organization="system:nodes", addresses=(NODE_IP,)),
                Certificate("components", "devcluster-components", addresses=(LOOPBACK,), hosts=("localhost",)),
            ],
        )  # fmt: skip
        tokens = make_tokens(self.paths)
        write_kubeconfigs(self.paths, self.server, tokens)
        return Api(self.server, tokens["admin"], self.paths.pki / "ca.crt")

    def etcd(self) -> Command:
        """One member without fsync: a test cluster's data need not survive a power cut."""
        client, peer = (f"https://{LOOPBACK}:{self.ports[name]}" for name in ("etcd", "etcd-peer"))
        pki = self.paths.pki
        return self._command(
            "etcd",
            "--name=devcluster",
            f"--data-dir={self.paths.etcd}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=devcluster={peer}",
            # Every local user can reach a loopback port, and etcd holds all Secrets: certificates are required.
            f"--cert-file={pki / 'etcd.crt'}",
            f"--key-file={pki / 'etcd.key'}",
            f"--trusted-ca-file={pki / 'ca.crt'}",
            "--client-cert-auth",
            f"--peer-cert-file={pki / 'etcd.crt'}",
            f"--peer-key-file={pki / 'etcd.key'}",
            f"--peer-trusted-ca-file={pki / 'ca.crt'}",
            "--peer-client-cert-auth",
            "--unsafe-no-fsync",
            "--log-level=error",
        )

    def apiserver(self) -> Command:
        """The API server with the defaults of a real one for admission, priority and fairness."""
        pki = self.paths.pki
        alone = self.address == LOOPBACK
        return self._command(
            "apiserver",
            f"--etcd-servers=https://{LOOPBACK}:{self.ports['etcd']}",
            f"--etcd-cafile={pki / 'ca.crt'}",
            f"--etcd-certfile={pki / 'etcd.crt'}",
            f"--etcd-keyfile={pki / 'etcd.key'}",
            f"--bind-address={self.address}",
            f"--secure-port={self.ports['apiserver']}",
            # A loopback address is refused here; without a real node nothing is ever told this one.
            f"--advertise-address={NODE_IP}",
            *(["--endpoint-reconciler-type=none"] if alone else []),
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--token-auth-file={pki / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={pki / 'sa.pub'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
            f"--kubelet-client-key={pki / 'kubelet-client.key'}",
            f"--kubelet-certificate-authority={pki / 'ca.crt'}",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
            "--profiling=false",
        )

    def controller_manager(self) -> Command:
        """The controller manager, with client limits that do not slow a test down."""
        pki = self.paths.pki
        return self._command(
            "controller-manager",
            *self._client("controller-manager"),
            f"--service-account-private-key-file={pki / 'sa.key'}",
            f"--root-ca-file={pki / 'ca.crt'}",
            "--use-service-account-credentials",
        )

    def scheduler(self) -> Command:
        """The scheduler, with client limits that do not slow a test down."""
        return self._command("scheduler", *self._client("scheduler"))

    def _client(self, name: str) -> list[str]:
        kubeconfig = self.paths.kubeconfig_of(name)
        return [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={self.ports[name]}",
            f"--tls-cert-file={self.paths.pki / 'components.crt'}",
            f"--tls-private-key-file={self.paths.pki / 'components.key'}",
            "--leader-elect=false",
            # The defaults (20 and 50 a second) would make the controllers, not the operator, the slowest part.
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
            "--profiling=false",
        ]

    def _command(self, component: str, *arguments: str) -> Command:
        return Command(
            name=component,
            argv=[str(KUBE.folder() / "kube"), component, *arguments],
            log=self.paths.log_of(component),
            environment=clean_environment(self.paths.folder),
        )


def api_ready(api: Api) -> bool:
    """Whether the API server serves, with its bootstrap roles and default namespaces in place."""
    if api.request("GET", "/readyz", timeout=2) != "ok":
        return False
    api.request("GET", "/api/v1/namespaces/default", timeout=2)
    return True


def controllers_ready(api: Api) -> bool:
    """Whether pods can be created: the default ServiceAccount and the root CA exist in the default namespace."""
    try:
        api.request("GET", "/api/v1/namespaces/default/serviceaccounts/default", timeout=2)
        api.request("GET", "/api/v1/namespaces/default/configmaps/kube-root-ca.crt", timeout=2)
    except ApiError as error:
        if error.code == 404:
            return False
        raise
    return True
