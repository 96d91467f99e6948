"""Rollouts of one pool: how they replace pods, and when they are done."""

from __future__ import annotations

from cosyvoice_operator.core.model import Json


def settled(deployment: Json | None, replicas: int) -> bool:
    """Tell whether a Deployment runs only the wanted version, in the wanted number, as far as its controller has said."""
    if deployment is None:
        return replicas == 0
    status = deployment.get("status") or {}
    return bool(
        deployment["spec"].get("replicas") == replicas
        and status.get("observedGeneration") == deployment["metadata"].get("generation")
        and status.get("updatedReplicas", 0) == replicas
        and status.get("replicas", 0) == replicas
    )


def surge(*, on_gpu: bool, replicas: int, others_serve: bool) -> int:
    """Give ``maxSurge`` of a pool.

    On a full GPU pool a surge pod would wait for ever and the rollout with it, so a pool of several replaces one pod at a time. A lone
    GPU pod is replaced in place only while another pool serves; else its successor comes first, and is told as waiting if no GPU is free.
    """
    return 0 if on_gpu and (replicas > 1 or others_serve) else 1


def unavailable(*, surge: int, waiting: int) -> int:
    """Give ``maxUnavailable`` of a pool.

    A pod that waits for a GPU, and that other pools stand in for, is no pod that the rollout has taken: counted as one it would keep the
    old pods, and with them the GPUs that their successors wait for, as long as the shortage lasts.
    """
    return 0 if surge else 1 + waiting
