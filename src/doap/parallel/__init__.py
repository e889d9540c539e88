"""Engines that spread tasks over processes of this machine, or over a Ray cluster."""

from doap.parallel.engine import ENGINES, Engine, EngineName
from doap.parallel.opening import open_engine

__all__ = ["ENGINES", "Engine", "EngineName", "open_engine"]
