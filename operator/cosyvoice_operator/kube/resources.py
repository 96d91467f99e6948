"""The kinds that the operator reads and writes, and where they live in the API: fixed, so that nothing is discovered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cosyvoice_operator.core.naming import GROUP, MANAGED_BY_LABEL, MANAGER


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind.

    Attributes:
        kind: As in ``kind:`` of an object.
        group: API group; empty for the core group.
        version: API version.
        plural: As in its address.
        namespaced: Whether objects have a namespace.
        selector: Label selector of the objects that concern us; empty for all.
        optional: Whether an API server may not have it, or not let us see it: then there is none.
    """

    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool = True
    selector: str = ""
    optional: bool = False

    @property
    def api_version(self) -> str:
        """As in ``apiVersion:`` of an object."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def rule_name(self) -> str:
        """As people and access rules name it: ``deployments.apps``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Give the address of an object, or of a collection where ``name`` is empty."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        place = f"/namespaces/{namespace}" if namespace and self.namespaced else ""
        return "/".join(part for part in (f"{root}{place}/{self.plural}", name, subresource) if part)


_OURS = f"{MANAGED_BY_LABEL}={MANAGER}"

COSYVOICE_DEPLOYMENT = Resource("CosyVoiceDeployment", GROUP, "v1alpha1", "cosyvoicedeployments")
NODE = Resource("Node", "", "v1", "nodes", namespaced=False)
RESOURCE_SLICE = Resource("ResourceSlice", "resource.k8s.io", "v1", "resourceslices", namespaced=False, optional=True)
POD = Resource("Pod", "", "v1", "pods", selector=_OURS)
DEPLOYMENT = Resource("Deployment", "apps", "v1", "deployments", selector=_OURS)
SERVICE = Resource("Service", "", "v1", "services", selector=_OURS)
SERVICE_ACCOUNT = Resource("ServiceAccount", "", "v1", "serviceaccounts", selector=_OURS)
POD_DISRUPTION_BUDGET = Resource("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets", selector=_OURS)
PERSISTENT_VOLUME_CLAIM = Resource("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims", selector=_OURS)
JOB = Resource("Job", "batch", "v1", "jobs", selector=_OURS)
EVENT = Resource("Event", "events.k8s.io", "v1", "events")
LEASE = Resource("Lease", "coordination.k8s.io", "v1", "leases")

CHILDREN = (DEPLOYMENT, SERVICE, SERVICE_ACCOUNT, POD_DISRUPTION_BUDGET, PERSISTENT_VOLUME_CLAIM, JOB)
"""Kinds of objects that the operator makes for a CosyVoiceDeployment."""

WATCHED = (COSYVOICE_DEPLOYMENT, NODE, RESOURCE_SLICE, POD, *CHILDREN)

_CHILD_BY_KIND = {resource.kind: resource for resource in CHILDREN}


def child_resource(kind: str) -> Resource:
    """Find the kind of a child. Raises KeyError for what the operator never applies."""
    return _CHILD_BY_KIND[kind]


def resource_version(obj: dict[str, Any]) -> int:
    """Read ``metadata.resourceVersion``: of one kind they can be compared as numbers (KEP-5504), which every server here does."""
    return int(obj["metadata"].get("resourceVersion") or 0)
