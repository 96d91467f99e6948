"""Writes what is generated from the models: the CRD, the chart that carries it, and the API reference."""

from cosyvoice_operator.crdgen.files import main

__all__ = ["main"]
