"""Conversion of models: binary ones from real-valued ones, and ours from weights published elsewhere."""

from doap.networks.conversion.binary import binarise
from doap.networks.conversion.published import convert

__all__ = ["binarise", "convert"]
