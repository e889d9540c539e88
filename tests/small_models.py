"""Models in files, made of what ships."""

from pathlib import Path

from doap import load
from doap.networks import registry
from doap.networks.registry import read_card, save


def with_extents(path: Path, **extents: float) -> str:
    """A shipped model under its own name, with other extents by detector, written to `path`."""
    model = load("doap-demo-128")
    model.extents = extents
    card = read_card(registry.SHIPPED / "doap-demo-128.safetensors")
    save(model, path, card.architecture, card.origin)
    return str(path)
