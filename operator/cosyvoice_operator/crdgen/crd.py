"""The CustomResourceDefinition around the schema: names, columns, subresources."""

from __future__ import annotations

from typing import Any

from cosyvoice_operator import api
from cosyvoice_operator.api.deployment import CosyVoiceDeployment
from cosyvoice_operator.crdgen.schema import Schema, structural_schema

COLUMNS = (
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', "Whether the promised units are ready"),
    ("Serving", "string", ".status.serving.summary", "Units that are ready, of those that were asked for"),
    ("Tier", "string", ".status.serving.tier", "Tier that serves"),
    ("GPU", "string", ".status.serving.gpu", "GPU types that serve"),
    ("Engines", "string", '.status.conditions[?(@.type=="EnginesReady")].status', "Whether the engines are built"),
    ("Load", "string", ".status.serving.load", "Longest model load among the pools that serve"),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the resource was created"),
)
"""Printer columns: name, type, path, description."""

WIDE_COLUMNS = (
    ("Why", "string", '.status.conditions[?(@.type=="FallbackActive")].message', "Why not on the first tier"),
    ("Stalled", "string", '.status.conditions[?(@.type=="Stalled")].reason', "Why a person must act"),
)
"""Columns of ``kubectl get -o wide``."""


def custom_resource_definition() -> dict[str, Any]:
    """Build the CRD of CosyVoiceDeployment."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{api.PLURAL}.{api.GROUP}"},
        "spec": {
            "group": api.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": api.KIND,
                "listKind": f"{api.KIND}List",
                "plural": api.PLURAL,
                "singular": api.SINGULAR,
                "shortNames": [api.SHORT_NAME],
                "categories": list(api.CATEGORIES),
            },
            "versions": [
                {
                    "name": api.VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [_column(column, 0) for column in COLUMNS]
                    + [_column(column, 1) for column in WIDE_COLUMNS],
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "schema": {"openAPIV3Schema": _root_schema()},
                }
            ],
        },
    }


def _root_schema() -> Schema:
    """Give the schema of the whole resource; of ``metadata`` a CRD may only say that it is an object."""
    schema = structural_schema(CosyVoiceDeployment)
    return {
        "description": schema["description"],
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": schema["properties"]["spec"],
            "status": schema["properties"]["status"],
        },
        "x-kubernetes-validations": schema["x-kubernetes-validations"],
    }


def _column(column: tuple[str, str, str, str], priority: int) -> dict[str, Any]:
    name, kind, path, description = column
    shown = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return {**shown, "priority": priority} if priority else shown
