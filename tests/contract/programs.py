"""Helm, and the Lua engine of Argo CD: the real ones, built once from their public Go modules into the cache."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.build import Program, ensure
from devcluster.progress import ConsoleProgress

HERE = Path(__file__).parent


class TestProgram(Program):
    """A Go program whose module lies beside the tests that use it."""

    __test__ = False

    @property
    def source(self) -> Path:
        """Folder of the module."""
        return HERE / self.name

    @property
    def path(self) -> Path:
        """The program; built on first use."""
        ensure([self], ConsoleProgress())
        return self.folder() / self.name


_CHARTUTIL = "helm.sh/helm/v3/pkg/chartutil.k8sVersion"
HELM = TestProgram(
    "helm",
    package="helm.sh/helm/v3/cmd/helm",
    # Without these, `helm template` takes the cluster for a Kubernetes 1.20.
    ldflags=f"-s -w -X {_CHARTUTIL}Major=1 -X {_CHARTUTIL}Minor=37",
)
LUA = TestProgram("lua")


@dataclass(frozen=True)
class Helm:
    """Helm with a home of its own, so that a developer's repositories and plugins play no part."""

    home: Path
    kubeconfig: Path | None = None

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command; its result tells whether it worked."""
        folders = {f"HELM_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        access = {"KUBECONFIG": str(self.kubeconfig)} if self.kubeconfig else {}
        return subprocess.run(
            [HELM.path, *arguments],
            env={**os.environ, **folders, **access},
            capture_output=True,
            text=True,
            check=False,
        )

    def must(self, *arguments: str) -> str:
        """Run a command that has to work, and give what it prints."""
        result = self(*arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout


def lua_health(script: Path, obj: dict[str, Any]) -> dict[str, str]:
    """What a health check of Argo CD says of an object."""
    result = subprocess.run([LUA.path, script], input=json.dumps(obj), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return dict(json.loads(result.stdout))
