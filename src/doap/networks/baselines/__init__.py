"""Baselines: handcrafted descriptors, loaded by name, and published networks, loaded from their weights.

A published network is a .safetensors file without a card. It is recognised by the names and shapes of its tensors and
normalises its own input.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from doap.choices import DEFAULT_EXTENT
from doap.networks.baselines.deepdesc import DeepDesc
from doap.networks.baselines.desdis import DesDis
from doap.networks.baselines.liop import build_liop
from doap.networks.baselines.matchnet import MatchNet
from doap.networks.baselines.mkd import build_mkd
from doap.networks.baselines.opencv import OPENCV_DESCRIPTORS
from doap.networks.baselines.sift import build_sift
from doap.networks.baselines.tfeat import HardTFeat, TFeat
from doap.networks.descriptor import Descriptor
from doap.networks.network import PatchNetwork, load_weights

HANDCRAFTED: dict[str, Callable[[str], Descriptor]] = {
    "sift": build_sift,
    "rootsift": partial(build_sift, root=True),
    **OPENCV_DESCRIPTORS,
    "mkd": build_mkd,
    "liop": build_liop,
}

PUBLISHED: tuple[Callable[[], PatchNetwork], ...] = (
    TFeat,
    HardTFeat,
    partial(DesDis, 8),
    partial(DesDis, 32),
    MatchNet,
    DeepDesc,
)


def list_baselines() -> list[str]:
    """Return the sorted names of the handcrafted baselines that `doap.load` accepts.

    Example:
        >>> from doap.networks.baselines import list_baselines
        >>> "rootsift" in list_baselines()
        True
    """
    return sorted(HANDCRAFTED)


def load_handcrafted(name: str) -> Descriptor:
    """Load one of `list_baselines()`.

    Raises:
        DoapError: If the library that computes it is not installed.
    """
    return HANDCRAFTED[name](name)


def load_published(path: Path) -> Descriptor | None:
    """Load a published network from its weights.

    Args:
        path: A .safetensors file.

    Returns:
        The network, named after the file; None if the tensors are not those of a known network. Published networks
        were trained on extracted patches and define no extent: they get that of our own models.

    Raises:
        DoapError: If the values of a known network are not finite.
    """
    try:
        with safe_open(path, "pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            network = _recognise(shapes)
            if network is None:
                return None
            load_weights(network, {name: file.get_tensor(name) for name in shapes}, path)
    except SafetensorError:
        return None
    return Descriptor(network, "real", DEFAULT_EXTENT, path.stem)


def _recognise(shapes: dict[str, tuple[int, ...]]) -> PatchNetwork | None:
    """Return a new network whose tensors have these names and shapes."""
    for build in PUBLISHED:
        with torch.device("meta"):
            expected = {name: tuple(value.shape) for name, value in build().state_dict().items()}
        if expected == shapes:
            return build()
    return None
