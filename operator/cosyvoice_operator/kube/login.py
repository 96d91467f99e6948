"""Who the operator is to the API server: in a pod its ServiceAccount, elsewhere the kubeconfig."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client.configuration import Configuration

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class LoginError(Exception):
    """There are no usable credentials. The message names what was tried."""


class Login:
    """Address and credentials of one API server, kept fresh: a ServiceAccount token lives an hour and its file is read again."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration

    @property
    def server(self) -> str:
        """Root address of the API server, without a slash at the end."""
        return str(self.configuration.host).rstrip("/")

    async def authorization(self) -> str | None:
        """Give the ``Authorization`` header for a request made now; None where a client certificate speaks for us."""
        token: str | None = await self.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        return token

    def ssl_context(self) -> ssl.SSLContext:
        """Make a TLS context that trusts the cluster's CA and shows our client certificate, if there is one."""
        context = ssl.create_default_context(
            cafile=self.configuration.ssl_ca_cert, cadata=self.configuration.ca_cert_data
        )
        if self.configuration.cert_file:
            context.load_cert_chain(self.configuration.cert_file, keyfile=self.configuration.key_file)
        if not self.configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def session(self, connections: int) -> aiohttp.ClientSession:
        """Make an HTTP session for long-lived watches, with its own bounded pool and a fresh token on each request."""

        async def authorize(
            request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            authorization = await self.authorization()
            if authorization:
                request.headers["Authorization"] = authorization
            return await handler(request)

        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, ssl=self.ssl_context()),
            middlewares=(authorize,),
            # One watch event can hold an object of several hundred kilobytes on one line.
            read_bufsize=2**21,
        )


async def load_login(kubeconfig: Path | None, context: str | None, connections: int) -> Login:
    """Find credentials.

    Args:
        kubeconfig: Kubeconfig to use whatever else there is; None to look around.
        context: Context of the kubeconfig; None for its current one.
        connections: Most connections that clients made from this login open at once.

    Raises:
        LoginError: Neither a ServiceAccount nor a readable kubeconfig was found.
    """
    configuration: Any = Configuration()
    in_pod = kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").exists()
    try:
        if in_pod:
            config.load_incluster_config(client_configuration=configuration)
        else:
            await config.load_kube_config(
                config_file=str(kubeconfig) if kubeconfig else None, context=context, client_configuration=configuration
            )
    except (config.ConfigException, OSError) as error:
        where = (
            "the pod's ServiceAccount" if in_pod else str(kubeconfig or os.environ.get("KUBECONFIG", "~/.kube/config"))
        )
        raise LoginError(f"no access to a cluster through {where}: {error}") from error
    configuration.connection_pool_maxsize = connections
    # With trust_env aiohttp looks for a .netrc file before each request, in a thread: milliseconds each time when the loop is busy.
    configuration.client_session_kwargs = {"trust_env": False}
    # Retries are decided by the queue, which knows what it is still about when it tries again.
    configuration.retries = None
    return Login(configuration)
