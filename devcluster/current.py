"""The user's own cluster in the place of ours, where `CLUSTER=current` asks for it."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import DevClusterError, MissingToolError

VARIABLE = "CLUSTER"


def wanted() -> bool:
    """Whether the user wants the current context of the kubeconfig to be used.

    Raises:
        DevClusterError: The variable has a value that means nothing.
    """
    value = os.environ.get(VARIABLE, "")
    if value not in {"", "current"}:
        raise DevClusterError(f"{VARIABLE}={value} means nothing", hint=f"set {VARIABLE}=current, or leave it unset")
    return value == "current"


@dataclass(frozen=True)
class CurrentCluster:
    """A cluster that this tool has not made, and neither changes nor takes down; for the rest like `Cluster`."""

    name: str
    kubeconfig: Path

    @classmethod
    def find(cls) -> CurrentCluster:
        """The cluster of the current context.

        Raises:
            MissingToolError: There is no kubectl.
            DevClusterError: There is no current context, or its API server does not answer.
        """
        files = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
        cluster = cls("current", Path(files.split(os.pathsep)[0]))
        cluster.kubectl("get", "--raw", "/version")
        return cluster

    def kubectl_command(self, *arguments: str) -> list[str]:
        """The command line of the user's kubectl."""
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            raise MissingToolError(f"{VARIABLE}=current needs kubectl", hint="https://kubernetes.io/docs/tasks/tools/")
        return [kubectl, "--kubeconfig", str(self.kubeconfig), *arguments]

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl and return what it prints.

        Raises:
            DevClusterError: It failed, unless `check` is False.
        """
        command = self.kubectl_command(*arguments)
        result = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if check and result.returncode != 0:
            raise DevClusterError(f"kubectl {' '.join(arguments)}: {result.stderr.strip() or result.stdout.strip()}")
        return result.stdout

    def load_image(self, archive: Path) -> str:
        """Refuse: images of a cluster of one's own come from its registry."""
        raise DevClusterError(
            f"{archive.name} cannot be loaded into a cluster of your own", hint="push it to a registry"
        )

    def start_kwok(self, *node_files: Path) -> None:
        """Refuse: nodes are not simulated in a cluster that is not ours."""
        raise DevClusterError(f"no simulated nodes in a cluster of your own ({len(node_files)} files)")

    def down(self) -> None:
        """Leave the cluster as it is."""
