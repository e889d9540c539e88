"""Models in files, made of what ships."""

from pathlib import Path

from doap import load
from doap.networks.registry import find_weights, read_card, save


def with_extents(path: Path, name: str = "doap-demo-128", **extents: float) -> str:
    """A demo model under this name, with extents by detector, written to `path`."""
    model = load("doap-demo-128")
    model.name, model.extents = name, extents
    card = read_card(find_weights("doap-demo-128"))
    save(model, path, card.architecture, card.origin)
    return str(path)
