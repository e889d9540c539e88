"""Small model files for tests."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import torch

from doap import load
from doap.networks.architecture import Architecture, build_network
from doap.networks.card import read_card
from doap.networks.descriptor import Descriptor
from doap.networks.l2net import L2Net
from doap.networks.registry import find_weights, save
from doap.types import Kind


def with_extents(path: Path, name: str = "doap-demo-128", **extents: float) -> str:
    """Write a demo model with this name, extent 12 and these extents per detector to `path`, and return the path."""
    model = load("doap-demo-128", fast=False)
    model.name, model.extent, model.extents = name, 12.0, extents
    card = read_card(find_weights("doap-demo-128"))
    save(model, path, card.architecture, card.origin)
    return str(path)


def untrained(name: str = "test", extents: Mapping[str, float] = MappingProxyType({})) -> Descriptor:
    """Return a narrow L2Net with random weights, of extent 12 for other detectors."""
    return Descriptor(L2Net(32, width=2), "real", 12.0, name, extents).eval()


def make_teacher(path: Path, seed: int = 1, kind: Kind = "real", **settings: object) -> str:
    """Save an untrained model with a card; even a random network distinguishes patches."""
    torch.manual_seed(seed)
    architecture = Architecture.model_validate({"network": "tiny", "width": 16, "dimensions": 16, **settings})
    network = build_network(architecture)
    size = network.input_size
    with torch.no_grad():
        for _ in range(40):  # statistics for batch normalisation
            network(torch.rand(16, 1, 8, 8).repeat_interleave(size, 2).repeat_interleave(size, 3)[..., ::8, ::8] * 255)
    save(Descriptor(network, kind, 12.0, "teacher"), path, architecture)
    return str(path)
