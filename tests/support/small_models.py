"""Small model files for tests."""

from pathlib import Path

from doap import load
from doap.networks.card import read_card
from doap.networks.registry import find_weights, save


def with_extents(path: Path, name: str = "doap-demo-128", **extents: float) -> str:
    """Write a demo model with this name and these extents per detector to `path`, and return the path."""
    model = load("doap-demo-128")
    model.name, model.extents = name, extents
    card = read_card(find_weights("doap-demo-128"))
    save(model, path, card.architecture, card.origin)
    return str(path)
