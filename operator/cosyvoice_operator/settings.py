"""The operator's own settings: environment variables that begin with ``COSYVOICE_OPERATOR_``."""

from __future__ import annotations

import socket
import uuid
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_settings import BaseSettings, SettingsConfigDict

from cosyvoice_operator import __version__
from cosyvoice_operator.api.defaults import Images
from cosyvoice_operator.core.gpu import NodeRule, normalise_product
from cosyvoice_operator.core.model import PlanConfig

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_REGISTRY = "docker.io/local"


def _own_namespace() -> str:
    return _POD_NAMESPACE.read_text().strip() if _POD_NAMESPACE.exists() else "default"


def _own_identity() -> str:
    # A container that is restarted in place keeps its host name; it must not take itself for the holder that it replaced.
    return f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"


class GPUNodes(BaseModel):
    """Nodes that nothing tells the GPU type of, chosen by one of their labels; see docs/gpus.md."""

    model_config = ConfigDict(alias_generator=to_camel, frozen=True, extra="forbid")

    label: str = Field(min_length=1, description="Key of a node label, for example node.kubernetes.io/instance-type.")
    values: tuple[str, ...] = Field(min_length=1, description="Values of it that choose the nodes.")
    product: str = Field(min_length=1, description="Their GPU product, in the words of GPU Feature Discovery.")
    memory_mib: int | None = Field(None, gt=0, alias="memoryMiB", description="Memory of one GPU, in MiB.")
    compute_capability: str | None = Field(None, pattern=r"^\d+\.\d+$", description="For example 8.9.")

    def rule(self) -> NodeRule:
        """Give it as the core reads it."""
        product = normalise_product(self.product)
        return NodeRule(self.label, self.values, product, self.memory_mib, self.compute_capability)


class Settings(BaseSettings):
    """All settings, with their defaults. Unknown variables of the prefix are ignored, so that a newer chart runs an older operator."""

    model_config = SettingsConfigDict(env_prefix="COSYVOICE_OPERATOR_", frozen=True, extra="ignore")

    kubeconfig: Path | None = Field(
        None, description="Kubeconfig to use; left out: the pod's ServiceAccount, else KUBECONFIG."
    )
    context: str | None = Field(None, description="Context of the kubeconfig; left out: its current one.")

    image_cpu: str = Field(f"{_REGISTRY}/cosyvoice-runtime-cpu:{__version__}", description="Image of CPU pods.")
    image_gateway: str = Field(
        f"{_REGISTRY}/cosyvoice-runtime-gateway:{__version__}", description="Image of the gateway beside Triton."
    )
    image_triton: str = Field(
        f"{_REGISTRY}/cosyvoice-triton-demo:{__version__}", description="Image of Triton for family Demo."
    )

    image_fetch: str = Field(
        f"{_REGISTRY}/cosyvoice-fetch:{__version__}", description="Image of the Jobs that fetch models."
    )
    image_builder: str = Field(
        f"{_REGISTRY}/cosyvoice-builder:{__version__}",
        description="Image of the Jobs that build engines for ONNX Runtime.",
    )
    image_gpu_builder: str = Field(
        f"{_REGISTRY}/cosyvoice-builder-tensorrt:{__version__}",
        description="Image of the Jobs that build engines for Triton.",
    )

    builds: int = Field(8, ge=1, description="Engine builds and model fetches that may run at once in the cluster.")
    builds_per_namespace: int = Field(2, ge=1, description="The same for one namespace.")

    gpu_nodes: tuple[GPUNodes, ...] = Field(
        (),
        description="GPU types of nodes that no label tells, as JSON: a list of objects with label, values, product, and for products "
        "that the operator does not know memoryMiB and computeCapability.",
    )

    leader_election: bool = Field(
        default=True, description="Work only while holding the Lease. Off: run a single replica only."
    )
    namespace: str = Field(default_factory=_own_namespace, description="Namespace of the Lease: the operator's own.")
    lease_name: str = Field("cosyvoice-operator", description="Name of the Lease.")
    identity: str = Field(default_factory=_own_identity, description="Name of this replica in the Lease and in Events.")
    lease_duration: float = Field(
        15.0, gt=0, description="Seconds after which another replica may take a Lease that isn't renewed."
    )
    renew_deadline: float = Field(
        10.0, gt=0, description="Seconds without a renewal after which the holder ends itself."
    )
    retry_period: float = Field(2.0, gt=0, description="Seconds between two attempts to take or renew the Lease.")

    workers: int = Field(16, ge=1, description="Resources reconciled at the same time.")
    spacing: float = Field(
        0.2, ge=0, description="Seconds between two reconciles of one resource. A spec change never waits."
    )
    retry_base: float = Field(
        0.1, gt=0, description="Seconds until a failed reconcile is tried again; doubles with each failure."
    )
    retry_limit: float = Field(300.0, gt=0, description="Most seconds between two tries.")
    blocked_retry: float = Field(
        30.0, gt=0, description="Seconds until a child that something is in the way of is tried again."
    )
    resync_interval: float = Field(300.0, gt=0, description="Seconds between two full lists.")

    request_timeout: float = Field(15.0, gt=0, description="Seconds for one request of the API server.")
    connections: int = Field(32, ge=2, description="Most connections to the API server, watches aside.")
    write_qps: float = Field(
        1000.0, gt=0, description="Writes a second; a fuse. The server's 429 and Retry-After slow them down before."
    )
    write_burst: float = Field(2000.0, ge=1, description="Writes that may be made at once after a pause.")

    probes: bool = Field(
        default=True,
        description="Ask runtime pods for their reports. Off where pods are simulated and have no network.",
    )
    probe_timeout: float = Field(2.0, gt=0, description="Seconds for one report.")
    probe_concurrency: int = Field(16, ge=1, description="Pods asked at once.")

    host: str = Field("0.0.0.0", description="Address of /healthz, /readyz and /metrics.")  # noqa: S104 - the kubelet and Prometheus come from outside
    port: int = Field(8080, ge=0, le=65535, description="Port of the same; 0 takes a free one and logs it.")
    stuck_after: float = Field(
        120.0, gt=0, description="Seconds that a key may wait or be worked on before /healthz fails."
    )
    shutdown_timeout: float = Field(
        15.0, gt=0, description="Seconds that running reconciles get to finish after SIGTERM."
    )

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Least severe level that is logged."
    )
    log_style: Literal["json", "text"] = Field("json", description="One JSON object a line, or text for a terminal.")

    def gpu_rules(self) -> tuple[NodeRule, ...]:
        """Give what was set of nodes that no label tells the GPU type of."""
        return tuple(nodes.rule() for nodes in self.gpu_nodes)

    def plan_config(self) -> PlanConfig:
        """Give the part that planning depends on."""
        images = Images(
            cpu=self.image_cpu,
            gateway=self.image_gateway,
            triton=self.image_triton,
            fetch=self.image_fetch,
            builder=self.image_builder,
            gpu_builder=self.image_gpu_builder,
        )
        return PlanConfig(images, self.gpu_rules(), builds=self.builds, builds_per_namespace=self.builds_per_namespace)
