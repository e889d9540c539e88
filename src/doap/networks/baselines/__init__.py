"""Peers to compare with, by the same door as our own models: handcrafted by name, published by their weights.

A published network comes as a bare .safetensors file, without a card: it is known by the names and shapes of
its tensors, and does its own input normalisation.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from doap.networks.baselines import opencv
from doap.networks.baselines.deepdesc import DeepDesc
from doap.networks.baselines.desdis import DesDis
from doap.networks.baselines.liop import liop
from doap.networks.baselines.matchnet import MatchNet
from doap.networks.baselines.mkd import mkd
from doap.networks.baselines.sift import sift
from doap.networks.baselines.tfeat import HardTFeat, TFeat
from doap.networks.descriptor import Descriptor
from doap.networks.network import PatchNetwork

HANDCRAFTED: dict[str, Callable[[str], Descriptor]] = {
    "sift": sift,
    "rootsift": partial(sift, root=True),
    **opencv.DESCRIPTORS,
    "mkd": mkd,
    "liop": liop,
}

PUBLISHED: tuple[Callable[[], PatchNetwork], ...] = (
    TFeat,
    HardTFeat,
    partial(DesDis, 8),
    partial(DesDis, 32),
    MatchNet,
    DeepDesc,
)

# Half a patch's side in units of its frame's scale. Published networks were trained on cut patches and say none,
# so they get what our own models are trained at.
DEFAULT_EXTENT = 12.0


def list_baselines() -> list[str]:
    """Names of the handcrafted descriptors that `doap.load` knows.

    Example:
        >>> from doap.networks.baselines import list_baselines
        >>> "rootsift" in list_baselines()
        True
    """
    return sorted(HANDCRAFTED)


def handcrafted(name: str) -> Descriptor:
    """One of `list_baselines()`.

    Raises:
        DoapError: if the library that computes it is not installed.
    """
    return HANDCRAFTED[name](name)


def load_published(path: Path) -> Descriptor | None:
    """The published network whose weights these are, or None where they are nobody's known here."""
    try:
        with safe_open(path, "pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            network = _recognise(shapes)
            if network is None:
                return None
            network.load_state_dict({name: file.get_tensor(name) for name in shapes})
    except SafetensorError:
        return None
    return Descriptor(network, "real", DEFAULT_EXTENT, path.stem)


def _recognise(shapes: dict[str, tuple[int, ...]]) -> PatchNetwork | None:
    for build in PUBLISHED:
        with torch.device("meta"):
            expected = {name: tuple(value.shape) for name, value in build().state_dict().items()}
        if expected == shapes:
            return build()
    return None
