"""Pairs of different photos for benchmarks/wide.py: none should be verified."""

from dataclasses import dataclass
from functools import lru_cache

import doap
from doap.choices import MatchGeometry
from doap.types import Grey


@dataclass(frozen=True, eq=False)
class UnrelatedPair:
    """Two different photos, and how to match them."""

    first: Grey
    second: Grey
    geometry: MatchGeometry
    model: str
    device: str


def find_false(pair: UnrelatedPair) -> str | None:
    """Return the name of the step that verified an unrelated pair, None if none did."""
    model = open_model(pair.model, pair.device)
    result = doap.match_wide(pair.first, pair.second, model, geometry=pair.geometry, device=pair.device)
    return None if result.step is None else last_step(result.tilts)


@lru_cache(1)
def open_model(name: str, device: str) -> doap.Descriptor:
    """Load a model, once per process."""
    return doap.load(name, device=device)


def last_step(tilts: tuple[float, ...]) -> str:
    """Return the name of the last step, given the tilts of all."""
    return f"tilt {tilts[-1]:.3g}" if tilts else "plain"
