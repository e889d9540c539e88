"""Conversion of models: binary ones from real-valued ones, and ours from weights published elsewhere."""

from doap.networks.conversion.binary import binarise

__all__ = ["binarise"]
